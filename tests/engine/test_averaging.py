"""The mean of weights, against the weights of every step written down by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from milbench.engine import train as train_module
from milbench.engine.parts import Setup
from tests._helpers.training import normed_network, small_cell, train

STEPS = 8  # two epochs of four


def weights_by_step(network: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, torch.Tensor]]:
    """Return the weights after every step of a training without a mean."""
    weights: list[dict[str, torch.Tensor]] = []
    step = train_module.train_step

    def watched(setup: Setup, *arguments: Any) -> torch.Tensor:
        value = step(setup, *arguments)
        weights.append({name: weight.detach().clone() for name, weight in setup.model.state_dict().items()})
        return value

    with monkeypatch.context() as patch:
        patch.setattr(train_module, "train_step", watched)
        train(small_cell(networks=[network], recipe={"epochs": 2}), folder / "plain")
    return weights


@pytest.mark.parametrize(("share", "last"), [(0.5, 4), (0.3, 2)])
def test_the_kept_weights_are_the_mean_of_those_after_the_last_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float, last: int
) -> None:
    """Also where torch takes all weights at once, as on a GPU, in an operation that refuses BatchNorm's counter."""
    monkeypatch.setattr("torch.optim.swa_utils._get_foreach_kernels_supported_devices", lambda: ["cpu"])
    network = normed_network(tmp_path)
    by_step = weights_by_step(network, tmp_path, monkeypatch)
    assert len(by_step) == STEPS
    cell = small_cell(networks=[network], recipe={"epochs": 2, "average_last": share})
    averaged = train(cell, tmp_path / "mean").weights
    for name in (name for name, weight in averaged.items() if weight.is_floating_point()):
        weight = averaged[name]
        expected = torch.stack([weights[name].double() for weights in by_step[-last:]]).mean(dim=0)
        torch.testing.assert_close(weight.double(), expected, rtol=1e-5, atol=1e-6)


def test_training_does_not_see_the_mean_and_the_evaluation_does(tmp_path: Path) -> None:
    plain = train(small_cell(recipe={"epochs": 2}), tmp_path / "plain").history
    mean = train(small_cell(recipe={"epochs": 2, "average_last": 0.5}), tmp_path / "mean").history
    same = {key for key in plain if plain[key] == mean[key]}
    assert {key for key in plain if key[1] == "train/loss" or key[0] == 1} <= same, "it begins after the first epoch"
    assert any(key[1].startswith("test/") for key in plain.keys() - same)
