"""The contract tests for tasks find faults that are put into the template of a task.

A fault replaces some lines of the template. Its task has 600 bags of two to six points in three
classes: 400 bags to train on, 100 to validate on and 100 to test on.
"""

import inspect
from pathlib import Path
from typing import Any

import pytest
import torch
from _pytest.mark import ParameterSet

from milbench import Bags, generator
from milbench.testing import TaskContract
from milbench.testing.task_contract import bag_digests, untrained_scores
from tests._helpers.command_line import REPOSITORY

TEMPLATE = REPOSITORY / "milbench" / "templates" / "my_task.py"
# Parts of the template, and what faults replace them by.
LABELS = "label_matrix(things, 3), mask"
LABELS_AS_FLOATS = "label_matrix(things, 3).float(), mask"
LABELS_OF_THE_NEXT_CLASS = "label_matrix(things, 3).roll(1, 1), mask"
NETWORK = '{"mlp": InstanceMLP}'
NAME = '    name = "my-task"\n'
SPLIT = '        order = torch.randperm(len(bags), generator=generator(self.name, "split", seed))\n'
MASK_AND_TRUTH = "mask, truth)"
SAME_ORIGIN = "origin=__import__('milbench').Origin(torch.zeros(600, dtype=torch.long))"
"""An argument of `Bags` that gives all 600 bags of the template the number 0."""
CENTRED = """class Centred(InstanceMLP):
    def forward(self, instances):
        return super().forward(instances - instances.mean(dim=1, keepdim=True))

InstanceMLP = Centred

class MyTask"""
"""A network that subtracts the mean of the instances, in which it counts the padding too."""
RECIPE = "    def recipe(self)"
FORMAT_WITH_OTHER_CLASSES = """    def format_from(self, memory):
        return BagFormat(inputs=2, class_names=('a', 'b', 'c'))

"""


def network(arguments: str) -> str:
    """Return code for the networks of the task: the template's network with other arguments."""
    return NETWORK.replace("InstanceMLP", f"lambda inputs, classes, seed: InstanceMLP({arguments})")


def problem_with(body: str) -> dict[str, str]:
    """Return changes of the template, which then loads a problem of a class with this body."""
    faulty = f"class Faulty(FixedBags):\n{body}\n\n\nclass MyTask(Task)"
    return {"class MyTask(Task)": faulty, "FixedBags.in_memory(": "Faulty.in_memory("}


def batches_with(*lines: str) -> dict[str, str]:
    """Return changes by which the problem runs these lines before the batches of an epoch."""
    body = ["    def train_batches(self, epoch, rng):", *(f"        {line}" for line in lines)]
    body.append("        yield from super().train_batches(epoch, rng)")
    return problem_with("\n".join(body))


def fault(test: str, changes: dict[str, str], *, name: str) -> ParameterSet:
    """Return a case: the contract test that must fail, and the replacements in the template."""
    return pytest.param(test, changes, id=f"{test}-{name}")


FAULTS = [
    fault(
        "batches_depend_on_the_generator_alone",
        batches_with("rng = torch.Generator().manual_seed(int(torch.randint(1 << 30, ())))"),
        name="global generator",
    ),
    fault(
        "another_seed_or_epoch_gives_other_batches",
        batches_with("rng = generator('one')"),
        name="one generator for all",
    ),
    fault(
        "an_earlier_epoch_does_not_matter",
        batches_with(
            "self.drawn = getattr(self, 'drawn', 0) + 1", "torch.rand(self.drawn, generator=rng)"
        ),
        name="state from epoch to epoch",
    ),
    fault(
        "one_task_loads_problems_of_several_seeds",
        problem_with(
            "    def __init__(self, **fields):\n"
            "        super().__init__(**fields)\n"
            "        type(self).last_seed = self.seed\n\n"
            "    def train_batches(self, epoch, rng):\n"
            "        torch.rand(self.last_seed, generator=rng)\n"
            "        yield from super().train_batches(epoch, rng)"
        ),
        name="seed kept by the class",
    ),
    fault(
        "one_seed_gives_one_problem",
        {', generator=generator(self.name, "split", seed))': ")"},
        name="random split",
    ),
    fault(
        "a_task_does_not_change",
        {SPLIT: f"{SPLIT}        self.order = order\n"},
        name="state kept by load",
    ),
    fault(
        "batches_fit_together",
        # An epoch has one step more: 400 bags are 12 batches of 32, and a smaller one.
        problem_with("    @property\n    def steps_per_epoch(self):\n        return 400 // 32"),
        name="number of steps",
    ),
    fault("batches_fit_together", {LABELS: LABELS_AS_FLOATS}, name="labels as floats"),
    fault(
        "batches_fit_together",
        {NAME: f'{NAME}    bag_kind = "images"\n'},
        name="other kind of bags",
    ),
    fault(
        "batches_fit_together",
        problem_with(
            "    def __init__(self, **fields):\n"
            "        super().__init__(**{**fields, 'max_labels': 1})"
        ),
        name="too few labels at most",
    ),
    fault(
        "label_sets_agree_with_the_truth",
        {LABELS: LABELS_OF_THE_NEXT_CLASS},
        name="labels of the next class",
    ),
    fault(
        "label_sets_agree_with_the_truth",
        {"position_classes=classes)": "position_classes=classes.roll(1, 0))"},
        name="positions of another bag",
    ),
    fault(
        "origins_tell_evaluated_bags_apart",
        {MASK_AND_TRUTH: MASK_AND_TRUTH.replace(")", f", {SAME_ORIGIN})")},
        name="one origin for all",
    ),
    fault("it_says_what_it_is", {NETWORK: "{}"}, name="no network"),
    # The task says that it has no bags to test on, but its problem has 100.
    fault("it_says_what_it_is", {NAME: f"{NAME}    is_tested = False\n"}, name="no test bags"),
    fault(
        "its_format_says_what_bags_are_like",
        {'("right", "above", "below")': '["right", "above", "below"]'},
        name="list of class names",
    ),
    fault(
        "every_network_fits_the_bags",
        {NETWORK: network("inputs, classes - 1, seed")},
        name="one class too few",
    ),
    fault(
        "initial_weights_depend_on_the_seed_alone",
        {NETWORK: network("inputs, classes, id(object())")},
        name="weights without a seed",
    ),
    fault(
        "padding_does_not_reach_the_logits",
        {"class MyTask": CENTRED},
        name="mean of padded instances",
    ),
    fault(
        "a_trained_network_can_be_used_where_the_data_are_not",
        {RECIPE: FORMAT_WITH_OTHER_CLASSES + RECIPE},
        name="other class names elsewhere",
    ),
    fault(
        "no_bag_is_in_two_splits",
        {'"validation": validation': '"validation": test'},
        name="one bag in two splits",
    ),
    fault(
        "the_task_says_where_seeds_split_the_same_bags",
        # All seeds split the same 600 bags. The template says so by returning the ratio of test
        # bags to training bags; 0 would mean that each seed has bags of its own.
        {"return 100 / 400": "return 0.0"},
        name="no overlap",
    ),
    fault(
        "the_metric_that_losses_are_ranked_by_is_measured",
        {NAME: f'{NAME}    primary = "no_such_error"\n'},
        name="unknown metric",
    ),
    fault(
        "evaluations_are_always_the_same",
        problem_with(
            "    def evaluate(self, score):\n"
            "        test = self.splits['test'].bags[0].selected(torch.randperm(9))\n"
            "        split_type = type(self.splits['test'])\n"
            "        split = split_type(single_instance=(), bags=[test])\n"
            "        self.splits = {**self.splits, 'test': split}\n"
            "        return super().evaluate(score)"
        ),
        name="random test bags",
    ),
    fault(
        "the_gallery_is_a_few_bags_always_the_same",
        problem_with(
            "    def gallery(self):\n"
            "        return self.splits['test'].bags[0].selected(torch.randperm(8))"
        ),
        name="random gallery",
    ),
    fault(
        "a_wrong_parameter_is_one_line_that_names_it",
        {"batch_bags: Annotated[int, Field(ge=1)] = 32": "batch_bags=32"},
        name="parameter without a type",
    ),
    fault(
        "the_digest_of_the_data_is_one_line_and_always_the_same",
        {'return f"{len(bags)} bags': 'return f"{torch.rand(())} bags'},
        name="random digest",
    ),
]


@pytest.mark.parametrize(("test", "changes"), FAULTS)
def test_a_fault_of_a_task_is_noticed(test: str, changes: dict[str, str], tmp_path: Path) -> None:
    """The contract test fails because of the fault.

    The same tests pass on the template without faults, as `tests/cli/test_new.py` shows.
    """
    text = TEMPLATE.read_text("utf-8")
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    file = tmp_path / "faulty.py"
    file.write_text(text)
    contract = type("TestFaulty", (TaskContract,), {"task": str(file)})()
    method = getattr(contract, f"test_{test}")
    names = inspect.signature(method).parameters
    arguments = {name: fixture_value(contract, name) for name in names}
    with pytest.raises((AssertionError, RuntimeError, pytest.fail.Exception)):
        method(**arguments)


@pytest.mark.parametrize("padding", [0.0, 7.0])
def test_the_digest_of_a_set_does_not_depend_on_padding(padding: float) -> None:
    """A bag is padded to the largest bag of its batch, and in training its batch is another one."""
    small = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    # A bag of two instances beside a bag of five.
    instances = torch.full((2, 5, 2), padding)
    instances[:, :2] = small
    mask = torch.tensor([[True, True, False, False, False], [True] * 5])
    batch = Bags(instances, torch.zeros(2, 1, dtype=torch.bool), mask)
    (alone,) = bag_digests(Bags(small[None], batch.labels[:1]))
    padded, large = bag_digests(batch)
    assert padded == alone
    assert large != alone


def test_the_digest_of_a_sequence_does_not_depend_on_padding() -> None:
    # Sequences are padded with NaN and have no mask in `Bags`: a network recognises the padding.
    sequence = torch.tensor([[1.0, 2.0, 3.0]])
    padded = torch.cat([sequence, torch.full((1, 2), torch.nan)], dim=1)
    labels = torch.zeros(1, 1, dtype=torch.bool)
    assert bag_digests(Bags(padded[None], labels)) == bag_digests(Bags(sequence[None], labels))


def fixture_value(contract: TaskContract, name: str) -> Any:
    """Return the value of a fixture of the contract tests, whose methods are called directly."""
    if name == "data_dir":
        return None
    described = contract.describe()
    if name == "described":
        return described
    problem = contract.load(None)
    if name == "batches":
        return list(problem.train_batches(0, generator("contract")))
    if name == "evaluation":
        return problem.evaluate(untrained_scores(described, problem))
    return problem
