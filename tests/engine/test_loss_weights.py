"""Weights that a loss has of its own: where they come from, that they are trained, and that they come back.

That a resumed cell ends with the same ones is in `test_train.py`.
"""

from __future__ import annotations

from pathlib import Path

import torch

from milbench import Bags, Loss, load_loss
from milbench.engine.folders import Root
from milbench.inference.load import load_trained
from tests._helpers.training import small_cell, train

OWN = ("loss.v", "loss.w")


def built(seed: int) -> Loss:
    return load_loss("attention").build(3, seed)


def test_the_cells_seed_draws_them(tmp_path: Path) -> None:
    for seed in (4, 5):
        still = small_cell("attention", seed, recipe={"optimizer": "sgd", "lr": 1e-30})
        weights = train(still, tmp_path / f"{seed}").weights
        assert torch.equal(weights["loss.v"], built(seed).get_parameter("v"))


def test_a_loaded_run_scores_with_the_weights_that_were_stored(root: Path) -> None:
    cell, place = small_cell("attention"), Root(root).make()
    trained = train(cell, place.cell(cell.id).path)
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
