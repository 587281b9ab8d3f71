"""Which epochs are evaluated, on how many bags and in which precision, and that training does not depend on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from milbench.api.plan import Cell
from milbench.engine import evaluate as evaluate_module
from milbench.engine.cell import CellFolder
from milbench.engine.parts import network_logits
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


class Scored:
    """What is scored in each evaluation: bags, and whether in half precision."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[int, bool]] = []
        logits = network_logits

        def counted(network: Any, bags: Any, device: Any, *, half: bool = False) -> Any:
            self.calls.append((len(bags), half))
            return logits(network, bags, device, half=half)

        monkeypatch.setattr(evaluate_module, "network_logits", counted)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_an_interim_evaluation_uses_few_bags_in_the_precision_of_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    settings: dict[str, Any] = {"epochs": 3, "steps_per_epoch": 2, "precision": precision, "evaluate_every": 1}
    scored = Scored(monkeypatch)
    by_epoch: list[list[tuple[int, bool]]] = []
    append = CellFolder.append

    def keep(folder: CellFolder, epoch: int, metrics: dict[str, float]) -> None:
        append(folder, epoch, metrics)
        by_epoch.append([*scored.calls])
        scored.calls.clear()

    whole = train(cell("synthetic-bags", **settings), tmp_path / "whole")
    scored.calls.clear()
    monkeypatch.setattr("milbench.engine.cell.CellFolder.append", keep)
    few = train(cell("synthetic-bags", **settings, interim_bags=260), tmp_path / "few")
    half = precision == "bfloat16"
    for calls in by_epoch[:2]:
        # Single instances and bags of two splits, the bags in batches of 250.
        assert sorted(calls) == sorted([(260, half), (250, half), (10, half)] * 2)
    assert sum(bags for bags, _ in by_epoch[2]) == 2 * (1000 + 4000)
    assert not any(in_half for _, in_half in by_epoch[2])
    for epoch in (1, 2):
        row = evaluated(few, epoch)
        assert row
        assert all(name.startswith("interim/") for name in row)
        for split in ("validation", "test"):
            excess = row[f"interim/{split}/set_error"] - row[f"interim/{split}/bayes_set_error"]
            assert row[f"interim/{split}/excess_set_error"] == excess
            # A share of 260 bags is a whole number of them.
            assert (row[f"interim/{split}/bayes_set_error"] * 260) % 1 == pytest.approx(0, abs=1e-9)
    assert evaluated(few, 3) == evaluated(whole, 3)
    assert all(torch.equal(few.weights[k], whole.weights[k]) for k in whole.weights)
