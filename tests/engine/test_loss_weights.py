"""Weights that a loss has of its own: where they come from, that they are trained, and that they come back."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from milbench import Bags, Loss, load_loss
from milbench.engine.folders import Root
from milbench.inference.load import load_trained
from tests._helpers import training
from tests._helpers.training import Stop, Trained, small_cell, stop_after

OWN = ("loss.v", "loss.w")


def built(seed: int) -> Loss:
    return load_loss("attention").build(3, seed)


def train(path: Path, seed: int = 0, **recipe: object) -> Trained:
    return training.train(small_cell("attention", seed, recipe=recipe), path)


@pytest.mark.parametrize("optimizer", ["adamw", "psgd"])
def test_every_optimiser_trains_them_and_a_resumed_cell_ends_bit_for_bit(tmp_path: Path, optimizer: str) -> None:
    unbroken = train(tmp_path / "unbroken", optimizer=optimizer)
    start = built(0)
    for name in OWN:
        assert not torch.equal(unbroken.weights[name], start.get_parameter(name.removeprefix("loss."))), name
    with pytest.MonkeyPatch.context() as patch:
        stop_after(2, patch)
        with pytest.raises(Stop):
            train(tmp_path / "broken", optimizer=optimizer)
    resumed = train(tmp_path / "broken", optimizer=optimizer)
    assert all(torch.equal(resumed.weights[name], unbroken.weights[name]) for name in unbroken.weights)


def test_the_cells_seed_draws_them(tmp_path: Path) -> None:
    started = [train(tmp_path / f"{seed}", seed, optimizer="sgd", lr=1e-30).weights for seed in (4, 5)]
    for seed, weights in zip((4, 5), started, strict=True):
        assert torch.equal(weights["loss.v"], built(seed).get_parameter("v"))


def test_a_loaded_run_scores_with_the_weights_that_were_stored(root: Path) -> None:
    cell, place = small_cell("attention"), Root(root).make()
    trained = training.train(cell, place.cell(cell.id).path)
    trained.folder.finish(trained.result)
    loaded = load_trained(place.find(cell.id), torch.device("cpu"))
    for name in OWN:
        stored = trained.weights[name]
        assert torch.equal(loaded.loss.get_parameter(name.removeprefix("loss.")), stored)
        assert (stored - built(cell.seed).get_parameter(name.removeprefix("loss."))).abs().max() > 1e-3, "not initial"
    bag = Bags(torch.randn(1, 5, 2), torch.zeros(1, 3))
    with torch.no_grad():
        expected = loaded.loss.presence_scores(loaded.network(bag.instances).double())
    torch.testing.assert_close(loaded.scores(bag).presence, expected)
