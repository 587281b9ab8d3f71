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
from tests._helpers.contract_faults import FAULTS, FAULTS_WITHOUT_TRUTH

TEMPLATES = REPOSITORY / "milbench" / "templates"


@pytest.mark.parametrize(
    ("template", "params", "fault"),
    [
        *(("my_task.py", {"bags_per_epoch": 70}, fault) for fault in FAULTS),
        *(("my_task_without_truth.py", {}, fault) for fault in FAULTS_WITHOUT_TRUTH),
    ],
)
def test_a_fault_of_a_task_is_noticed(template: str, params: dict[str, Any], fault: str, tmp_path: Path) -> None:
    old, new, test = {**FAULTS, **FAULTS_WITHOUT_TRUTH}[fault]
    text = (TEMPLATES / template).read_text("utf-8")
    assert old in text
    file = tmp_path / "faulty.py"
    file.write_text(text.replace(old, new))
    contract = type("TestFaulty", (TaskContract,), {"task": str(file), "params": params})()
    method = getattr(contract, test)
    with pytest.MonkeyPatch.context() as patch:
        given = {name: made(contract, name, patch) for name in inspect.signature(method).parameters}
        with pytest.raises((AssertionError, pytest.fail.Exception)):
            method(**given)


def test_a_bag_is_known_again_among_larger_ones() -> None:
    """Bags are padded to the largest of their batch, which differs between training and evaluation."""
    bag = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    for padding in (0.0, 7.0):
        padded = torch.full((2, 5, 2), padding)
        padded[:, :2] = bag
        mask = torch.tensor([[True, True, False, False, False], [True] * 5])
        batch = Bags(padded, torch.zeros(2, 1, dtype=torch.bool), mask)
        found = digests(batch)
        assert found[0] == digests(Bags(bag[None], batch.labels[:1]))[0] != found[1]
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
