"""The contract tests of tasks notice what they are there for: faults that are put into the template of a task."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import torch

from milbench import Bags, generator
from milbench.testing import TaskContract
from milbench.testing.task import digests, untrained
from tests._helpers.command_line import REPOSITORY

ORDER = "order = torch.randperm(len(self.train), generator=rng)"
LABELS = "label_matrix(things, CLASSES), mask"
EVALUATES = "        return evaluate_bags(score, self.splits,"
NETWORK = '{"mlp": InstanceMLP}'
SPLITS = '{"validation": validation, "test": test}'
FAULTS = {
    "draws from the generator of the process": (
        ORDER,
        ORDER.replace(", generator=rng", ""),
        "test_batches_depend_on_the_generator_alone",
    ),
    "has the same batches in every epoch": (
        ORDER,
        ORDER.replace("=rng", "=generator('one')"),
        "test_another_seed_or_epoch_gives_other_batches",
    ),
    "depends on the epochs before": (
        ORDER,
        f"self.drawn = getattr(self, 'drawn', 0) + 1\n        torch.rand(self.drawn, generator=rng)\n        {ORDER}",
        "test_an_earlier_epoch_does_not_matter",
    ),
    "forgets the last batch": (
        "return -(-len(self.train) // self.batch_bags)",
        "return len(self.train) // self.batch_bags",
        "test_an_epoch_has_as_many_batches_as_it_says",
    ),
    "has labels of numbers": (LABELS, LABELS.replace("),", ").float(),"), "test_batches_fit_together"),
    "has labels that are not its instances'": (
        LABELS,
        LABELS.replace("),", ").roll(1, 1),"),
        "test_label_sets_agree_with_the_truth",
    ),
    "has another class by position": (
        "position_classes=classes)",
        "position_classes=classes.roll(1, 0))",
        "test_label_sets_agree_with_the_truth",
    ),
    "has too small a bound": (
        "self.max_labels = int(train.labels.sum(dim=1).max())",
        "self.max_labels = 1",
        "test_no_label_set_is_larger_than_max_labels",
    ),
    "has no network": (NETWORK, "{}", "test_it_says_what_it_is"),
    "has a network without background": (
        NETWORK,
        NETWORK.replace("InstanceMLP", "lambda inputs, classes, seed: InstanceMLP(inputs, classes - 1, seed)"),
        "test_every_network_fits_the_bags",
    ),
    "says that its bags are images": (
        "    inputs = FEATURES",
        '    bag_kind = "images"\n    inputs = FEATURES',
        "test_batches_fit_together",
    ),
    "starts from the weights of the process": (
        NETWORK,
        NETWORK.replace("InstanceMLP", "lambda inputs, classes, seed: InstanceMLP(inputs, classes, id(object()))"),
        "test_initial_weights_depend_on_the_seed_alone",
    ),
    "has a network that sees the padding": (
        "class MyTask",
        (
            "class Centred(InstanceMLP):\n"
            "    def forward(self, instances):\n"
            "        return super().forward(instances - instances.mean(dim=1, keepdim=True))\n\n\n"
            "InstanceMLP = Centred\n\n\nclass MyTask"
        ),
        "test_padding_does_not_reach_the_logits",
    ),
    "validates on its test bags": (SPLITS, SPLITS.replace("validation,", "test,"), "test_no_bag_is_in_two_splits"),
    "hides that seeds split the same bags": (
        "return 1 / (SHARE - 2)",
        "return 0.0",
        "test_the_task_says_where_seeds_split_the_same_bags",
    ),
    "is ranked by what it does not measure": (
        'primary = "set_error"',
        'primary = "instance_error"',
        "test_an_evaluation_has_the_metric_that_losses_are_ranked_by",
    ),
    "evaluates on bags drawn anew": (
        EVALUATES,
        "        self.splits['test'] = EvalSplit((), [self.train.selected(torch.randperm(9))])\n" + EVALUATES,
        "test_an_evaluation_is_always_the_same",
    ),
    "shows other bags every time": (
        'return self.splits["test"].bags[0].part(0, 8)',
        "return self.train.selected(torch.randperm(8))",
        "test_the_gallery_is_a_few_bags_always_the_same",
    ),
    "takes a parameter unchecked": (
        "batch_bags: Annotated[int, Field(ge=1)] = 32",
        "batch_bags=32",
        "test_a_wrong_parameter_is_one_line_that_names_it",
    ),
    "has another digest every time": (
        'return f"{len(everything)} bags',
        'return f"{torch.rand(())} bags',
        "test_the_digest_of_the_data_is_one_line_and_always_the_same",
    ),
}
"""What a task does wrong -> text of the template my_task.py, its replacement, and the test that fails."""


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_a_task_is_noticed(fault: str, tmp_path: Path) -> None:
    old, new, test = FAULTS[fault]
    text = (REPOSITORY / "milbench" / "templates" / "my_task.py").read_text("utf-8")
    assert old in text
    file = tmp_path / "faulty.py"
    file.write_text(text.replace(old, new))
    contract = type("TestFaulty", (TaskContract,), {"task": str(file)})()
    method = getattr(contract, test)
    with pytest.MonkeyPatch.context() as patch:
        arguments = {name: made(contract, name, patch) for name in inspect.signature(method).parameters}
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
        of_batch = digests(batch)
        assert of_batch[0] == digests(Bags(bag[None], batch.labels[:1]))[0] != of_batch[1]
    sequence = torch.tensor([[1.0, 2.0, 3.0]])
    longer = torch.cat([sequence, torch.full((1, 2), torch.nan)], dim=1)
    labels = torch.zeros(1, 1, dtype=torch.bool)
    assert digests(Bags(longer[None], labels)) == digests(Bags(sequence[None], labels))


def made(contract: TaskContract, name: str, patch: pytest.MonkeyPatch) -> Any:
    """Return what a test of a contract asks for, as pytest makes it."""
    task = contract.make(None)
    if name == "batches":
        return list(task.train_batches(0, generator("contract")))
    if name == "evaluation":
        return task.evaluate(untrained(task))
    return {"data_dir": None, "monkeypatch": patch, "prepared": task}[name]
