"""Which epochs are evaluated, on how many bags and in which precision, and that training does not depend on it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from milbench import Recipe, UsageError
from milbench.api.plan import Cell
from milbench.engine import trainer as trainer_module
from milbench.engine import worker
from milbench.engine.objective import network_logits
from milbench.engine.planning import make_plan
from milbench.engine.spec import make_spec
from milbench.store.progress import Progress
from tests._helpers.command_line import TINY
from tests._helpers.idx_files import small_mnist
from tests._helpers.training import Recorder, Stop, small_cell, train, without_clock


def cell(task: str = TINY, loss: str = "noisy-or", **recipe: Any) -> Cell:
    return small_cell(loss, 3, task, recipe=recipe)


def evaluated(row: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in row.items() if not name.startswith(("train/", "cost/"))}


@pytest.mark.parametrize(("every", "epochs"), [(1, [1, 2, 3, 4, 5]), (2, [2, 4, 5]), (5, [5]), (9, [5])])
def test_an_evaluation_now_and_then_finds_what_one_after_every_epoch_finds(
    tmp_path: Path, every: int, epochs: list[int]
) -> None:
    whole = train(cell(epochs=5), tmp_path / "whole.pt")
    callback = Recorder()
    some = train(cell(epochs=5, evaluate_every=every), tmp_path / "some.pt", callback)
    assert [epoch for epoch, row in enumerate(some.history, start=1) if evaluated(row)] == epochs
    for epoch, (expected, found) in enumerate(zip(whole.history, some.history, strict=True), start=1):
        assert found["train/loss"] == expected["train/loss"]
        assert evaluated(found) == (evaluated(expected) if epoch in epochs else {})
    assert all(torch.equal(some.weights[k], whole.weights[k]) for k in whole.weights)
    assert some.decoder == whole.decoder != None  # noqa: E711
    assert list(callback.epochs) == [1, 2, 3, 4, 5]


class Scored:
    """What is scored in each evaluation: bags, and whether in half precision."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[int, bool]] = []
        logits = network_logits

        def counted(network: Any, bags: Any, device: Any, *, half: bool = False) -> Any:
            self.calls.append((len(bags), half))
            return logits(network, bags, device, half=half)

        monkeypatch.setattr(trainer_module, "network_logits", counted)


class Splitting(Recorder):
    """Empties a list of calls at the end of each epoch, and keeps what was in it."""

    def __init__(self, scored: Scored) -> None:
        super().__init__()
        self.scored = scored
        self.by_epoch: list[list[tuple[int, bool]]] = []

    def epoch(self, epoch: int, metrics: dict[str, float]) -> None:
        super().epoch(epoch, metrics)
        self.by_epoch.append(list(self.scored.calls))
        self.scored.calls.clear()


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_an_interim_evaluation_uses_few_bags_in_the_precision_of_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    settings: dict[str, Any] = {"epochs": 3, "steps_per_epoch": 2, "precision": precision, "evaluate_every": 1}
    scored = Scored(monkeypatch)
    whole = train(cell("synthetic-bags", **settings), tmp_path / "whole.pt")
    scored.calls.clear()
    callback = Splitting(scored)
    few = train(cell("synthetic-bags", **settings, interim_bags=260), tmp_path / "few.pt", callback)
    half = precision == "bfloat16"
    for calls in callback.by_epoch[:2]:
        # Single instances and bags of two splits, the bags in batches of 250.
        assert sorted(calls) == sorted([(260, half), (250, half), (10, half)] * 2)
    assert sum(bags for bags, _ in callback.by_epoch[2]) == 2 * (1000 + 4000)
    assert not any(in_half for _, in_half in callback.by_epoch[2])
    for row in few.history[:2]:
        assert evaluated(row)
        assert all(name.startswith("interim/") for name in evaluated(row))
        for split in ("validation", "test"):
            excess = row[f"interim/{split}/set_error"] - row[f"interim/{split}/bayes_set_error"]
            assert row[f"interim/{split}/excess_set_error"] == excess
            # A share of 260 bags is a whole number of them.
            assert (row[f"interim/{split}/bayes_set_error"] * 260) % 1 == pytest.approx(0, abs=1e-9)
    assert evaluated(few.history[2]) == evaluated(whole.history[2])
    assert all(torch.equal(few.weights[k], whole.weights[k]) for k in whole.weights)


@pytest.mark.parametrize("stop_after", [(1, 2), (1, 4), (2, 4), (3, 1), (4, 4)])
@pytest.mark.parametrize("interim", [None, 5])
def test_a_stopped_cell_ends_bit_for_bit_where_an_unbroken_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop_after: tuple[int, int], interim: int | None
) -> None:
    monkeypatch.setattr(trainer_module, "CHECKPOINT_INTERVAL", -1.0)
    monkeypatch.setattr(trainer_module, "PROGRESS_INTERVAL", -1.0)
    planned = cell(epochs=5, evaluate_every=2, interim_bags=interim)
    unbroken = train(planned, tmp_path / "unbroken.pt")
    with pytest.raises(Stop):
        train(planned, tmp_path / "broken.pt", Recorder(stop_after))
    resumed = train(planned, tmp_path / "broken.pt")
    assert without_clock(resumed.history) == without_clock(unbroken.history)
    assert resumed.decoder == unbroken.decoder
    assert all(torch.equal(resumed.weights[k], unbroken.weights[k]) for k in unbroken.weights)


ON_MNIST = {"cross-entropy": "c9caaa045a29fc5c", "position": "c23120f4982fbc06"}
"""Ids of cells on the images of `small_mnist` that version 0.1.0 gave before recipes had these fields."""


def on_mnist(folder: Path, loss: str, **recipe: Any) -> Cell:
    values = {"name": "t", "losses": [loss], "tasks": ["mnist"], "seeds": 3, "recipe": recipe}
    return make_plan(make_spec({**values, "task": {"mnist": {"any_data": True}}}), small_mnist(folder)).cells[0]


@pytest.mark.parametrize("loss", ON_MNIST)
def test_a_cell_keeps_the_id_of_earlier_versions_where_its_result_is_the_same(tmp_path: Path, loss: str) -> None:
    assert on_mnist(tmp_path, loss, evaluate_every=1, interim_bags="none", clip_norm=1.0).id == ON_MNIST[loss]
    assert on_mnist(tmp_path, loss, evaluate_every=2).id not in ON_MNIST.values()


def test_a_schedule_other_than_that_of_earlier_versions_is_another_cell() -> None:
    as_before = cell("synthetic-bags", evaluate_every=1, interim_bags="none")
    assert Recipe.from_stored(as_before.recipe).evaluate_every == 1
    others = [
        cell("synthetic-bags", evaluate_every=2),
        cell("synthetic-bags", evaluate_every=3),
        cell("synthetic-bags", evaluate_every=1, interim_bags=7),
    ]
    assert len({as_before.id, *(other.id for other in others)}) == 4
    assert json.loads(json.dumps(others[2].recipe))["interim_bags"] == 7


@pytest.mark.parametrize("setting", [{"evaluate_every": 0}, {"interim_bags": 0}, {"evaluate_every": 1.5}])
def test_a_schedule_without_sense_is_refused(setting: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"recipe.*{next(iter(setting))}"):
        cell(**setting)


def test_live_progress_keeps_the_errors_of_the_last_evaluation() -> None:
    callback = object.__new__(worker._StoreCallback)
    logged: list[tuple[int, dict[str, float]]] = []
    callback.store = SimpleNamespace(log=lambda run, epoch, metrics: logged.append((epoch, metrics)))  # type: ignore[assignment]
    callback.run_id, callback.progress = "r", Progress(3)
    rows = [{"train/loss": 2.0, "test/set_error": 0.5}, {"train/loss": 1.0}, {"interim/test/set_error": 0.25}]
    shown = []
    for epoch, row in enumerate(rows, start=1):
        callback.epoch(epoch, row)
        shown.append(callback.progress.errors)
    assert shown == [{"test/set_error": 0.5}, {"test/set_error": 0.5}, {"interim/test/set_error": 0.25}]
    assert logged == list(enumerate(rows, start=1))
