"""What `milbench bench training` measures is what training does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from milbench import Bags
from milbench.bench import training
from milbench.engine.parts import set_up
from tests._helpers.command_line import TINY, Milbench


def test_batches_that_are_drawn_together_are_charged_to_all_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    (cell,) = training.plan(["noisy-or"], [TINY], ["task.batches=12"]).cells
    ours, now = set_up(cell, torch.device("cpu"), None), [0.0]
    draw = ours.task.train_batches

    def in_groups(epoch: int, rng: torch.Generator) -> Iterator[Bags]:
        for number, bags in enumerate(draw(epoch, rng)):
            now[0] += 4 if number % 4 == 0 else 0
            yield bags

    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    monkeypatch.setattr(ours.task, "train_batches", in_groups)
    assert training.seconds_of_data(ours, limit=100) == 1
    assert training.seconds_of_data(ours, limit=1) == 4, "the time is over after one batch"


def test_the_command_prints_a_row_a_loss(milbench: Milbench) -> None:
    ran = milbench(
        "bench", "training", "--task", TINY, "--loss", "noisy-or,position", "--quick", "--device", "cpu",
        "-p", "recipe.optimizer=psgd",
    )  # fmt: skip
    assert ran.code == 0, ran
    assert "tiny, noisy-or" in ran.out
    assert "tiny, position" in ran.out
    assert "extended-digits" in milbench("bench", "training", "--task", "extended-digit").complaint()
