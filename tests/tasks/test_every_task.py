"""The contract tests of every built-in task, on small files where its data are files, and of tasks of third parties."""

from pathlib import Path
from typing import Any, ClassVar

import pytest

from milbench import Bags, Problem, Scores, UsageError, generator, load_task
from milbench.contracts.registry import tasks
from milbench.evaluation.metrics import outcomes
from milbench.testing import TaskContract
from milbench.testing.task_contract import bag_digests, untrained_scores
from tests._helpers.command_line import REPOSITORY, TINY
from tests._helpers.small_data import PARAMS
from tests._helpers.tasks import loaded

FEW: dict[str, Any] = {"bags_per_epoch": 100}
SMALL: dict[str, Any] = {
    "num_classes": 2,
    "min_size": 2,
    "max_size": 3,
    "class_rate": 0.15,
    "dimension": 4,
}
TRIED: dict[str, tuple[str, dict[str, Any]]] = {
    "SyntheticBags": ("synthetic-bags", FEW),
    "DependentClasses": ("synthetic-bags", FEW | {"num_classes": 4, "label_sets": "together", "empty_share": 0.3,
                                                  "context": 0.5, "test_sizes": "10-20"}),
    "SaturatedBags": ("synthetic-bags", FEW | {"num_classes": 8, "min_size": 4, "max_size": 5, "label_sets": "uniform",
                                               "labels_per_bag": 4, "imbalance": 100}),
    "ExtendedDigits": ("extended-digits", FEW),
    **{name.title().replace("-", ""): (name, params) for name, params in PARAMS.items()},
    "MNISTBagsOfAllClasses": ("mnist-bags", PARAMS["mnist-bags"] | {"labels": "all", "bag_size": 3}),
    "Tiny": (TINY, {}),
    "Template": (str(REPOSITORY / "milbench" / "templates" / "my_task.py"), {}),
}  # fmt: skip


class OnFiles(TaskContract):
    """The contract of a task whose data are files."""

    @pytest.fixture
    def data_dir(self, data_of_all: Path) -> Path:
        return data_of_all


for _name, (_task, _params) in TRIED.items():
    globals()[f"Test{_name}"] = type(f"Test{_name}", (OnFiles,), {"task": _task, "params": _params})


class TestFewSyntheticBagsWithErrors(TaskContract):
    task = "synthetic-bags"
    params: ClassVar = FEW | {"training_bags": 60, "labels_dropped": 0.2, "labels_added": 0.05}

    def test_label_sets_agree_with_the_truth(self, problem: Problem, batches: list[Bags]) -> None:
        """Those of test bags alone: training label sets have errors, and no truth, which would know better."""
        assert all(bags.truth is None for bags in batches)
        super().test_label_sets_agree_with_the_truth(problem, [])


class TestSyntheticBagsValidatedOnErrors(TestFewSyntheticBagsWithErrors):
    params: ClassVar = TestFewSyntheticBagsWithErrors.params | {"noise_in": "training+validation"}


def test_every_built_in_task_has_contract_tests() -> None:
    registry = tasks()
    tried = {task for task, _ in TRIED.values()}
    assert {n for n in registry.names() if registry.entry(n).origin == "milbench"} <= tried


@pytest.mark.parametrize(("task", "params", "complaint"), [
    ("extended-digits", {"digits_per_bag": 50}, "digits_per_bag = 50 is too large: at most 9 digits of 8 pixels fit"),
    ("extended-digits", {"bags_per_epoch": 99_999_999_999_999}, "bags_per_epoch = 99999999999999 is wrong.* 10000000"),
    ("image-bags", {"crop": 32}, "task.crop=32 may leave nothing of an image of task.size=32"),
    ("feature-bags", {"folds": 1}, "task.folds=1 leaves no bag to train on"),
    ("feature-bags", {"folds": 3, "splits": "x.json"}, "task.folds=3 would be other folds than those of task.splits"),
    ("feature-bags", {"repeats": 3}, "task.repeats=3 needs the number of folds"),
    ("feature-bags", {"folds": 2, "validation": 0.5}, "task.folds=2 and task.validation=0.5 leave no bag to train on"),
    *(("synthetic-bags", SMALL | params, complaint) for params, complaint in (
        ({"min_size": 6}, "min_size = 6 is larger than max_size = 3"),
        ({"num_classes": 3, "label_sets": "together"}, "together needs pairs of classes, num_classes = 3 is odd"),
        ({"label_sets": "exclusive", "class_rate": 0.4}, r"the probabilities of two such classes add up to 1\.44"),
        ({"labels_per_bag": 2}, "labels_per_bag = 2 is for label_sets = uniform, not for independent"),
        ({"label_sets": "uniform", "labels_per_bag": 3}, "more than 2: num_classes = 2, and the smallest bag has 2"),
        ({"label_sets": "constant", "empty_share": 0.1}, "empty_share = 0.1: with label_sets = constant no bag is"),
        ({"num_classes": 10, "class_rate": 0.05, "dimension": 10, "empty_share": 0.1}, "at most 8 classes"),
        ({"context": 0.1, "dimension": 2}, "2 classes and context need as many axes and one more, dimension = 2"),
        ({"test_sizes": "9-6"}, "test_sizes = 9-6: the smallest is larger than the largest"),
    )),
])  # fmt: skip
def test_parameters_that_do_not_fit_together_are_one_line(
    task: str, params: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(UsageError, match=complaint) as caught:
        load_task(task, **PARAMS.get(task, {}) | params)
    assert "\n" not in str(caught.value)
    assert f"{task}: " in str(caught.value)


@pytest.mark.parametrize("name", sorted(tasks().names()))
def test_an_evaluation_can_be_limited_to_few_bags(name: str, data_of_all: Path) -> None:
    task, limit = load_task(name, **PARAMS.get(name, {})), 4
    problem = task.load(data_of_all, limit=limit)
    of_network, sizes = untrained_scores(task, problem), list[int]()

    def score(bags: Bags) -> Scores:
        sizes.append(len(bags))
        return of_network(bags)

    found = problem.evaluate(score)
    assert max(sizes) == limit
    # Bags and single instances of two splits; house numbers for a threshold, then two splits at three scales.
    assert sum(sizes) <= (7 if name == "svhn" else 4) * limit
    assert found.predictions is not None
    by_metric = outcomes(found.predictions)
    assert {"set_error", "label_error", "own_label_error"} <= set(by_metric)
    assert all(len(of_bags) == limit for of_bags in by_metric.values())
    of_bags = {one.items for metric, one in by_metric.items() if metric != "instance_error"}
    assert len(of_bags) == 1, "the metrics of bags have the same items"


ORIGINS: list[tuple[str, dict[str, Any]]] = [
    *((name, PARAMS.get(name, {})) for name in sorted(tasks().names())),
    ("handwritten-words", PARAMS["handwritten-words"] | {"bags": "drawn"}),
    ("mnist-bags", PARAMS["mnist-bags"] | {"labels": "all"}),
]
MADE_OF_ITEMS = {"extended-digits", "extended-mnist", "mnist-bags", "soundscapes", "spoken-digits"}


@pytest.mark.parametrize(("name", "params"), ORIGINS)
def test_built_in_tasks_say_what_evaluated_bags_are_made_of(
    name: str, params: dict[str, Any], data_of_all: Path
) -> None:
    problem = loaded(name, data_of_all, 0, 8, **params)
    has_items = name in MADE_OF_ITEMS or params.get("bags") == "drawn"
    for split in problem.splits.values():
        for batches in (split.bags, split.single_instance):
            for number in range(len(batches)):
                origin = batches[number].origin
                assert origin is not None
                assert (origin.items is not None) == has_items
    assert next(iter(problem.train_batches(0, generator("t")))).origin is None


@pytest.mark.parametrize("name", ["mnist-bags", "soundscapes", "spoken-digits"])
def test_training_bags_depend_on_seeds_and_test_bags_on_folds(name: str, data_of_all: Path) -> None:
    """Soundscapes have five folds, the others one."""
    one, same, other = (loaded(name, data_of_all, seed, 8, **PARAMS[name]) for seed in (0, 5, 1))
    train = [bag_digests(next(drawn.train_batches(0, generator("t")))) for drawn in (one, same)]
    parts = [drawn.splits["test"].bags[0] for drawn in (one, same, other)]
    # Sequences are standardised by those that are trained on: where their events are tells them apart.
    tested = [
        bag_digests(bags) if name == "mnist-bags" else bags.truth.boxes.tolist() for bags in parts
    ]
    assert train[0] != train[1]
    assert tested[0] == tested[1]
    assert (tested[0] == tested[2]) == (name != "soundscapes")
