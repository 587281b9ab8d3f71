"""The contract tests for every built-in task and for tasks from files, on small data."""

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
    "DependentClasses": (
        "synthetic-bags",
        {
            **FEW,
            "num_classes": 4,
            "label_sets": "together",
            "empty_share": 0.3,
            "context": 0.5,
            "test_sizes": "10-20",
        },
    ),
    "SaturatedBags": (
        "synthetic-bags",
        {
            **FEW,
            "num_classes": 8,
            "min_size": 4,
            "max_size": 5,
            "label_sets": "uniform",
            "labels_per_bag": 4,
            "imbalance": 100,
        },
    ),
    "ExtendedDigits": ("extended-digits", FEW),
    "MNISTBagsOfAllClasses": (
        "mnist-bags",
        {**PARAMS["mnist-bags"], "labels": "all", "bag_size": 3},
    ),
    "Tiny": (TINY, {}),
    "Template": (str(REPOSITORY / "milbench" / "templates" / "my_task.py"), {}),
}
"""The task and the parameters for each class of contract tests, by the name of the class."""
for _name, _params in PARAMS.items():
    TRIED[_name.title().replace("-", "")] = (_name, _params)


class OnFiles(TaskContract):
    """The contract of a task whose data are files."""

    @pytest.fixture
    def data_dir(self, data_of_all: Path) -> Path:
        return data_of_all


# pytest collects test classes from a module, so this makes a class for each entry of TRIED.
for _name, (_task, _params) in TRIED.items():
    globals()[f"Test{_name}"] = type(f"Test{_name}", (OnFiles,), {"task": _task, "params": _params})


class TestFewSyntheticBagsWithErrors(TaskContract):
    task = "synthetic-bags"
    params: ClassVar = FEW | {"training_bags": 60, "labels_dropped": 0.2, "labels_added": 0.05}

    def test_label_sets_agree_with_the_truth(self, problem: Problem, batches: list[Bags]) -> None:
        """Check the label sets of test bags alone, since those of training bags have errors.

        Training bags must have no truth, which would give the right label sets away.
        """
        assert all(bags.truth is None for bags in batches)
        super().test_label_sets_agree_with_the_truth(problem, [])


class TestSyntheticBagsValidatedOnErrors(TestFewSyntheticBagsWithErrors):
    params: ClassVar = TestFewSyntheticBagsWithErrors.params | {"noise_in": "training+validation"}


def test_every_built_in_task_has_contract_tests() -> None:
    registry = tasks()
    built_in = {name for name in registry.names() if registry.entry(name).origin == "milbench"}
    tried = {task for task, _ in TRIED.values()}
    assert built_in <= tried


def assert_refused(task: str, params: dict[str, Any], complaint: str) -> None:
    """Assert that parameters are refused in one line that names the task."""
    with pytest.raises(UsageError, match=complaint) as caught:
        load_task(task, **PARAMS.get(task, {}) | params)
    assert "\n" not in str(caught.value)
    assert f"{task}: " in str(caught.value)


@pytest.mark.parametrize(("task", "params", "complaint"), [
    pytest.param("extended-digits", {"digits_per_bag": 50},
                 "digits_per_bag = 50 is too large: at most 9 digits of 8 pixels fit",
                 id="more digits than fit"),
    pytest.param("extended-digits", {"bags_per_epoch": 99_999_999_999_999},
                 "bags_per_epoch = 99999999999999 is wrong.* 10000000", id="too many bags"),
    pytest.param("image-bags", {"crop": 32},
                 "task.crop=32 may leave nothing of an image of task.size=32",
                 id="a crop of the whole image"),
    pytest.param("feature-bags", {"folds": 1},
                 "task.folds=1 leaves no bag to train on", id="one fold"),
    pytest.param("feature-bags", {"folds": 3, "splits": "x.json"},
                 "task.folds=3 would be other folds than those of task.splits",
                 id="folds of two kinds"),
    pytest.param("feature-bags", {"repeats": 3},
                 "task.repeats=3 needs the number of folds", id="repetitions without folds"),
    pytest.param("feature-bags", {"folds": 2, "validation": 0.5},
                 "task.folds=2 and task.validation=0.5 leave no bag to train on",
                 id="two folds and half to validate"),
])  # fmt: skip
def test_parameters_that_do_not_fit_together_are_reported_in_one_line(
    task: str, params: dict[str, Any], complaint: str
) -> None:
    assert_refused(task, params, complaint)


@pytest.mark.parametrize(("params", "complaint"), [
    pytest.param({"min_size": 6},
                 "min_size = 6 is larger than max_size = 3", id="smallest above largest"),
    pytest.param({"num_classes": 3, "label_sets": "together"},
                 "together needs pairs of classes, num_classes = 3 is odd",
                 id="a class without a partner"),
    # With bags of 2.5 instances on average, each of two classes is to occur in
    # 1 - (1 - 0.4)^2.5 = 0.72 of the bags.
    pytest.param({"label_sets": "exclusive", "class_rate": 0.4},
                 r"the probabilities of two such classes add up to 1\.44",
                 id="exclusive and too frequent"),
    pytest.param({"labels_per_bag": 2},
                 "labels_per_bag = 2 is for label_sets = uniform, not for independent",
                 id="a number of another rule"),
    pytest.param({"label_sets": "uniform", "labels_per_bag": 3},
                 "more than 2: num_classes = 2, and the smallest bag has 2",
                 id="more labels than classes"),
    pytest.param({"label_sets": "constant", "empty_share": 0.1},
                 "empty_share = 0.1: with label_sets = constant no bag is",
                 id="empty and constant"),
    pytest.param({"num_classes": 10, "class_rate": 0.05, "dimension": 10, "empty_share": 0.1},
                 "at most 8 classes", id="too many label sets"),
    pytest.param({"context": 0.1, "dimension": 2},
                 "2 classes and context need as many axes and one more, dimension = 2",
                 id="no axis for context"),
    pytest.param({"test_sizes": "9-6"},
                 "test_sizes = 9-6: the smallest is larger than the largest",
                 id="test sizes in the wrong order"),
])  # fmt: skip
def test_synthetic_bags_that_cannot_be_are_reported_in_one_line(
    params: dict[str, Any], complaint: str
) -> None:
    assert_refused("synthetic-bags", SMALL | params, complaint)


@pytest.mark.parametrize("name", sorted(tasks().names()))
def test_an_evaluation_can_be_limited_to_few_bags(name: str, data_of_all: Path) -> None:
    limit = 4
    task = load_task(name, **PARAMS.get(name, {}))
    problem = task.load(data_of_all, limit=limit)
    scores_of_network = untrained_scores(task, problem)
    sizes: list[int] = []

    def score(bags: Bags) -> Scores:
        sizes.append(len(bags))
        return scores_of_network(bags)

    found = problem.evaluate(score)
    assert max(sizes) == limit
    assert sum(sizes) <= most_batches(name) * limit
    assert found.predictions is not None
    by_metric = outcomes(found.predictions)
    assert {"set_error", "label_error", "own_label_error"} <= set(by_metric)
    assert all(len(of_metric) == limit for of_metric in by_metric.values())
    # The instance error is measured on single instances, not on bags.
    of_bags = {one.items for metric, one in by_metric.items() if metric != "instance_error"}
    assert len(of_bags) == 1, "the metrics of bags have the same items"


def most_batches(name: str) -> int:
    """Return the largest number of batches, each of `limit` bags, that a task is evaluated on."""
    if name == "svhn":
        # One batch chooses the threshold. House numbers of two splits are read at three scales.
        return 1 + 2 * 3
    # A batch of bags and one of single instances, for each of two splits.
    return 2 * 2


ORIGINS = [pytest.param(name, PARAMS.get(name, {}), id=name) for name in sorted(tasks().names())]
ORIGINS += [
    pytest.param(
        "handwritten-words", PARAMS["handwritten-words"] | {"bags": "drawn"}, id="drawn words"
    ),
    pytest.param("mnist-bags", PARAMS["mnist-bags"] | {"labels": "all"}, id="all digits"),
]
"""Each task with its parameters; some are tried again with bags that are made in another way."""
MADE_OF_ITEMS = {"extended-digits", "extended-mnist", "mnist-bags", "soundscapes", "spoken-digits"}


@pytest.mark.parametrize(("name", "params"), ORIGINS)
def test_built_in_tasks_say_what_evaluated_bags_are_made_of(
    name: str, params: dict[str, Any], data_of_all: Path
) -> None:
    problem = loaded(name, data_of_all, limit=8, **params)
    has_items = name in MADE_OF_ITEMS or params.get("bags") == "drawn"
    for split in problem.splits.values():
        for batches in (split.bags, split.single_instance):
            for number in range(len(batches)):
                origin = batches[number].origin
                assert origin is not None
                assert (origin.items is not None) == has_items


@pytest.mark.parametrize(("name", "params"), ORIGINS)
def test_training_bags_do_not_say_where_they_come_from(
    name: str, params: dict[str, Any], data_of_all: Path
) -> None:
    problem = loaded(name, data_of_all, limit=8, **params)
    assert next(iter(problem.train_batches(0, generator("t")))).origin is None


DRAWN_ONCE_A_SEED = ["mnist-bags", "soundscapes", "spoken-digits"]
"""Tasks that sample their training bags once for each seed."""


@pytest.mark.parametrize("name", DRAWN_ONCE_A_SEED)
def test_training_bags_depend_on_the_seed(name: str, data_of_all: Path) -> None:
    """Seeds 0 and 5 have other training bags even in soundscapes, where both test on fold 0."""
    one = first_training_bags(name, data_of_all, seed=0)
    assert first_training_bags(name, data_of_all, seed=5) != one


@pytest.mark.parametrize("name", DRAWN_ONCE_A_SEED)
def test_test_bags_are_the_same_for_seeds_of_a_fold(name: str, data_of_all: Path) -> None:
    assert first_test_bags(name, data_of_all, seed=0) == first_test_bags(name, data_of_all, seed=5)


@pytest.mark.parametrize("name", ["mnist-bags", "spoken-digits"])
def test_test_bags_without_folds_are_the_same_for_all_seeds(name: str, data_of_all: Path) -> None:
    assert first_test_bags(name, data_of_all, seed=0) == first_test_bags(name, data_of_all, seed=1)


def test_another_fold_of_soundscapes_has_other_test_bags(data_of_all: Path) -> None:
    one = first_test_bags("soundscapes", data_of_all, seed=0)
    assert first_test_bags("soundscapes", data_of_all, seed=1) != one


def first_training_bags(name: str, data_dir: Path, seed: int) -> Any:
    """Return digests of the first training bags of a seed."""
    problem = loaded(name, data_dir, seed, 8, **PARAMS[name])
    return bag_digests(next(iter(problem.train_batches(0, generator("t")))))


def first_test_bags(name: str, data_dir: Path, seed: int) -> Any:
    """Return digests of the first test bags of a seed, or the times of their events."""
    problem = loaded(name, data_dir, seed, 8, **PARAMS[name])
    bags = problem.splits["test"].bags[0]
    if name == "mnist-bags":
        return bag_digests(bags)
    # The frames of equal sequences may differ, since they are standardised by the training bags of
    # the seed. So sequences are compared by when their events are.
    return bags.truth.boxes.tolist()
