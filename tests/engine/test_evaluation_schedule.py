"""Which epochs are evaluated, and that training does not depend on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from milbench.api.plan import Cell
from tests._helpers.command_line import TINY
from tests._helpers.training import Trained, small_cell, train


def cell(task: str = TINY, loss: str = "noisy-or", **recipe: Any) -> Cell:
    return small_cell(loss, 3, task, recipe=recipe)


def evaluated(trained: Trained, epoch: int) -> dict[str, float]:
    return {n: value for (e, n), value in trained.history.items() if e == epoch and not n.startswith("train/")}


@pytest.mark.parametrize(("every", "epochs"), [(1, [1, 2, 3, 4, 5]), (2, [2, 4, 5]), (9, [5])])
def test_an_evaluation_now_and_then_finds_what_one_after_every_epoch_finds(
    tmp_path: Path, every: int, epochs: list[int]
) -> None:
    whole = train(cell(epochs=5), tmp_path / "whole")
    some = train(cell(epochs=5, evaluate_every=every), tmp_path / "some")
    for epoch in range(1, 6):
        assert some.history[epoch, "train/loss"] == whole.history[epoch, "train/loss"]
        assert evaluated(some, epoch) == (evaluated(whole, epoch) if epoch in epochs else {})
    assert all(torch.equal(some.weights[k], whole.weights[k]) for k in whole.weights)
    assert some.folder.decoder.read_text() == whole.folder.decoder.read_text()
