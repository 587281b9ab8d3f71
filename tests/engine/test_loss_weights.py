"""Weights that a loss has of its own: where they come from, that they are trained, and that they come back."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from milbench.engine.callback import Callback
from milbench.engine.cell_parts import loss_for
from milbench.engine.trainer import TrainedCell, Trainer

from milbench import Loss, UsageError, load_loss
from milbench.engine.planning import make_plan
from milbench.engine.spec import make_spec
from milbench.inference.load import load_trained
from tests._helpers import training
from tests._helpers.command_line import PLUGINS, TINY
from tests._helpers.handmade import publish, store_in
from tests._helpers.training import Recorder, Stop, small_cell

WEIGHTED = str(PLUGINS / "weighted_loss.py")
OWN = ("loss.scale", "loss.mixing")


def built(seed: int) -> Loss:
    return load_loss(WEIGHTED).build(3, seed)


def train(path: Path, seed: int = 0, callback: Callback | None = None, **recipe: object) -> TrainedCell:
    return training.train(small_cell(WEIGHTED, seed, recipe=recipe), path, callback)


def test_initial_weights_depend_on_the_seed_alone() -> None:
    first = built(1).get_parameter("scale")
    torch.rand(3)
    assert torch.equal(built(1).get_parameter("scale"), first)
    assert not torch.equal(built(2).get_parameter("scale"), first)


def test_a_loss_that_was_not_built_or_for_other_classes_says_so() -> None:
    logits, labels = torch.zeros(2, 5, 6), torch.ones(2, 4, dtype=torch.bool)
    with pytest.raises(UsageError, match=r"weighted has weights for a number of classes: call build\(num_classes=4\)"):
        load_loss(WEIGHTED)(logits, labels)
    with pytest.raises(UsageError, match=r"weighted has weights for 3 classes: call build\(num_classes=4\)"):
        built(0).presence_scores(logits)
    assert load_loss("exact").build(3)(logits, labels).shape == (2,), "a loss without such weights takes any number"


@pytest.mark.parametrize("optimizer", ["adamw", "sgd", "psgd", "muon"])
def test_every_optimiser_trains_them_and_a_resumed_cell_ends_bit_for_bit(
    tmp_path: Path, optimizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("milbench.engine.trainer.CHECKPOINT_INTERVAL", -1.0)
    monkeypatch.setattr("milbench.engine.trainer.PROGRESS_INTERVAL", -1.0)
    unbroken = train(tmp_path / "unbroken.pt", optimizer=optimizer)
    start = built(0)
    for name in OWN:
        assert not torch.equal(unbroken.weights[name], start.get_parameter(name.removeprefix("loss."))), name
    with pytest.raises(Stop):
        train(tmp_path / "broken.pt", callback=Recorder((1, 2)), optimizer=optimizer)
    resumed = train(tmp_path / "broken.pt", optimizer=optimizer)
    assert all(torch.equal(resumed.weights[name], unbroken.weights[name]) for name in unbroken.weights)


def test_the_cells_seed_draws_them(tmp_path: Path) -> None:
    started = [train(tmp_path / f"{seed}.pt", seed, optimizer="sgd", lr=1e-30).weights for seed in (4, 5)]
    for seed, weights in zip((4, 5), started, strict=True):
        assert torch.equal(weights["loss.scale"], built(seed).get_parameter("scale"))


def test_a_loaded_run_scores_with_the_weights_that_were_stored(
    tmp_path: Path, fresh_database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (cell,) = make_plan(make_spec({"name": "t", "losses": [WEIGHTED], "tasks": [TINY]}), None).cells
    trainer = Trainer(cell, torch.device("cpu"), None, Callback(), tmp_path / "c.pt")
    trainer.run()
    store = store_in(tmp_path / "root", fresh_database)
    loaded = load_trained(store, publish(store, cell, trainer.network, loss=trainer.loss), torch.device("cpu"))
    points = torch.randn(5, 2)
    with torch.no_grad():
        logits = trainer.network(points.unsqueeze(0)).double()
        expected = trainer.loss.presence_scores(logits)
    torch.testing.assert_close(loaded.scores(points).presence, expected)
    fresh = loss_for(cell, trainer.task).presence_scores(logits)
    assert (fresh - expected).abs().max() > 1e-3, "the weights of the run, not initial ones"
