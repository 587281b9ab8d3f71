"""The contract tests of tasks notice what they are there for: faults that are put into the template of a task."""

import inspect
from pathlib import Path
from typing import Any

import pytest
import torch

from milbench import Bags, generator
from milbench.testing import TaskContract
from milbench.testing.task import bag_digests, untrained_scores
from tests._helpers.command_line import REPOSITORY

ORDER, DIGEST = (
    "order = torch.randperm(len(self.train), generator=rng)",
    'return f"{len(everything)} bags',
)
LABELS, SHOWN = (
    "label_matrix(things, CLASSES), mask",
    'return self.splits["test"].bags[0].parts(8)[0]',
)
ONE_NUMBER = "origin=__import__('milbench').Origin(torch.zeros(600, dtype=torch.long))"
NETWORK, INPUTS = '{"mlp": InstanceMLP}', "    inputs = FEATURES"
SPLITS, EVALUATES = (
    '{"validation": validation, "test": test}',
    "        return evaluate_bags(score, self.splits,",
)
EARLIER_EPOCHS = "self.drawn = getattr(self, 'drawn', 0) + 1\n        torch.rand(self.drawn, generator=rng)\n        "
DRAWN_ANEW = (
    "        self.splits['test'] = EvalSplit((), [self.train.selected(torch.randperm(9))])\n"
)
CENTRED = """class Centred(InstanceMLP):
    def forward(self, instances):
        return super().forward(instances - instances.mean(dim=1, keepdim=True))

InstanceMLP = Centred

class MyTask"""


def network(arguments: str) -> str:
    return NETWORK.replace("InstanceMLP", f"lambda inputs, classes, seed: InstanceMLP({arguments})")


FAULTS = [
    ("batches_depend_on_the_generator_alone", ORDER, ORDER.replace(", generator=rng", "")),
    (
        "another_seed_or_epoch_gives_other_batches",
        ORDER,
        ORDER.replace("=rng", "=generator('one')"),
    ),
    ("an_earlier_epoch_does_not_matter", ORDER, EARLIER_EPOCHS + ORDER),
    ("batches_fit_together", "-(-len(self.train) // self.batch_bags)", "len(self.train) // 32"),
    ("batches_fit_together", LABELS, LABELS.replace("),", ").float(),")),
    ("batches_fit_together", INPUTS, f'    bag_kind = "images"\n{INPUTS}'),
    ("label_sets_agree_with_the_truth", LABELS, LABELS.replace("),", ").roll(1, 1),")),
    (
        "label_sets_agree_with_the_truth",
        "position_classes=classes)",
        "position_classes=classes.roll(1, 0))",
    ),
    ("origins_tell_evaluated_bags_apart", f"{LABELS}, truth", f"{LABELS}, truth, {ONE_NUMBER}"),
    ("batches_fit_together", "int(train.labels.sum(dim=1).max())", "1"),
    ("it_says_what_it_is", NETWORK, "{}"),
    ("every_network_fits_the_bags", NETWORK, network("inputs, classes - 1, seed")),
    ("initial_weights_depend_on_the_seed_alone", NETWORK, network("inputs, classes, id(object())")),
    ("padding_does_not_reach_the_logits", "class MyTask", CENTRED),
    ("no_bag_is_in_two_splits", SPLITS, SPLITS.replace("validation,", "test,")),
    ("the_task_says_where_seeds_split_the_same_bags", "return 1 / (SHARE - 2)", "return 0.0"),
    ("the_metric_that_losses_are_ranked_by_is_measured", '= "set_error"', '= "instance_error"'),
    ("evaluations_are_always_the_same", EVALUATES, DRAWN_ANEW + EVALUATES),
    (
        "the_gallery_is_a_few_bags_always_the_same",
        SHOWN,
        "return self.train.selected(torch.randperm(8))",
    ),
    (
        "a_wrong_parameter_is_one_line_that_names_it",
        "batch_bags: Annotated[int, Field(ge=1)] = 32",
        "batch_bags=32",
    ),
    (
        "the_digest_of_the_data_is_one_line_and_always_the_same",
        DIGEST,
        'return f"{torch.rand(())} bags',
    ),
]
"""The contract test that fails, a piece of the template my_task.py, and what does something else."""


@pytest.mark.parametrize(("test", "old", "new"), FAULTS, ids=[fault[0] for fault in FAULTS])
def test_a_fault_of_a_task_is_noticed(test: str, old: str, new: str, tmp_path: Path) -> None:
    text = (REPOSITORY / "milbench" / "templates" / "my_task.py").read_text("utf-8")
    assert old in text
    file = tmp_path / "faulty.py"
    file.write_text(text.replace(old, new))
    contract = type("TestFaulty", (TaskContract,), {"task": str(file)})()
    method = getattr(contract, f"test_{test}")
    arguments = {name: made(contract, name) for name in inspect.signature(method).parameters}
    with pytest.raises((AssertionError, RuntimeError, pytest.fail.Exception)):
        method(**arguments)


def test_a_bag_is_known_again_among_larger_ones() -> None:
    """Bags are padded to the largest of their batch, which differs between training and evaluation."""
    bag = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    for padding in (0.0, 7.0):
        padded = torch.full((2, 5, 2), padding)
        padded[:, :2] = bag
        mask = torch.tensor([[True, True, False, False, False], [True] * 5])
        batch = Bags(padded, torch.zeros(2, 1, dtype=torch.bool), mask)
        of_batch = bag_digests(batch)
        assert of_batch[0] == bag_digests(Bags(bag[None], batch.labels[:1]))[0] != of_batch[1]
    sequence = torch.tensor([[1.0, 2.0, 3.0]])
    longer = torch.cat([sequence, torch.full((1, 2), torch.nan)], dim=1)
    labels = torch.zeros(1, 1, dtype=torch.bool)
    assert bag_digests(Bags(longer[None], labels)) == bag_digests(Bags(sequence[None], labels))


def made(contract: TaskContract, name: str) -> Any:
    """Return what a test of a contract asks for, as pytest makes it."""
    task = contract.make(None)
    if name == "batches":
        return list(task.train_batches(0, generator("contract")))
    if name == "evaluation":
        return task.evaluate(untrained_scores(task))
    return {"data_dir": None, "prepared": task}[name]
