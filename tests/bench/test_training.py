"""What `milbench bench training` measures is what training does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from milbench import Bags
from milbench.bench import training
from milbench.bench.training import Training
from tests._helpers.command_line import TINY, Milbench
from tests._helpers.training import train

CPU = torch.device("cpu")


def started(*settings: str, task: str = TINY, loss: str = "noisy-or") -> Training:
    (cell,) = training.plan([loss], [task], settings).cells
    return Training(cell, CPU, None)


@pytest.mark.parametrize("optimizer", ["adamw", "psgd"])
@pytest.mark.parametrize("loss_precision", ["float32", "float64"])
def test_the_steps_that_are_measured_are_those_of_the_engine(
    tmp_path: Path, optimizer: str, loss_precision: str
) -> None:
    settings = ["recipe.epochs=1", f"recipe.optimizer={optimizer}", f"recipe.loss_precision={loss_precision}"]
    (cell,) = training.plan(["noisy-or"], [TINY], settings).cells
    ours = Training(cell, CPU, None)
    for bags in ours.batches(ours.it.steps):
        ours.seconds_of_parts(bags)
    weights = train(cell, tmp_path / "cell").weights
    found = ours.it.model.network.state_dict()
    assert {f"network.{name}" for name in found} == {*weights}
    assert all(torch.equal(value, weights[f"network.{name}"]) for name, value in found.items())


def test_batches_that_are_drawn_together_are_charged_to_all_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, now = started("task.batches=12"), [0.0]
    draw = ours.it.task.train_batches

    def in_groups(epoch: int, rng: torch.Generator) -> Iterator[Bags]:
        for number, bags in enumerate(draw(epoch, rng)):
            now[0] += 4 if number % 4 == 0 else 0
            yield bags

    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    monkeypatch.setattr(ours.it.task, "train_batches", in_groups)
    assert ours.seconds_of_data(limit=100) == 1
    assert ours.seconds_of_data(limit=1) == 4, "the time is over after one batch"


def test_the_command_prints_a_row_a_loss(milbench: Milbench) -> None:
    ran = milbench(
        "bench", "training", "--task", TINY, "--loss", "noisy-or,position", "--quick", "--device", "cpu",
        "-p", "recipe.precision=float32",
    )  # fmt: skip
    assert ran.code == 0, ran
    assert "tiny, noisy-or" in ran.out
    assert "tiny, position" in ran.out
    assert "extended-digits" in milbench("bench", "training", "--task", "extended-digit").complaint()
