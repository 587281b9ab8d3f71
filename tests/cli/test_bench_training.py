"""What `milbench bench training` measures is what the trainer does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from milbench.cli import bench_training
from milbench.cli.bench_files import Seconds
from milbench.cli.bench_plain_loop import one_by_one
from milbench.cli.bench_training import PARTS, Clock, MeasuredTrainer
from milbench.engine.callback import Callback
from milbench.engine.trainer import Trainer
from tests._helpers.command_line import TINY, Milbench

CPU = torch.device("cpu")


def measured(task: str = "extended-digits", loss: str = "noisy-or", *settings: str) -> MeasuredTrainer:
    (cell,) = bench_training.plan([loss], [task], settings, None).cells
    trainer = MeasuredTrainer(cell, CPU, None, Callback(), Path())
    trainer.prepare()
    return trainer


def test_the_steps_that_are_measured_are_those_of_the_trainer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ours = measured(TINY, "noisy-or", "recipe.epochs=1", "recipe.schedule=constant")
    taken = ours.steps_timed(3)
    assert set(taken) == set(PARTS)
    assert all(seconds > 0 for seconds in taken.values())
    trained = Trainer(ours.cell, CPU, None, Callback(), tmp_path / "x.pt").run()
    found = ours.model.state_dict()  # after four batches, of which one is not timed
    assert {*found} == {*trained.weights}
    assert all(torch.equal(value, trained.weights[name]) for name, value in found.items())


def test_parts_within_parts_count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    clock = Clock()
    with clock.part("optimiser"):
        now[0] += 1
        with clock.part("forward"):
            now[0] += 10
        now[0] += 100
        with clock.part("backward"):
            now[0] += 1000
    with clock.part("data"):
        now[0] += 10_000
    assert clock.seconds == {"data": 10_000, "forward": 10, "loss": 0, "backward": 1000, "optimiser": 101}


@pytest.mark.parametrize(
    ("schedule", "share"),
    [
        (["recipe.evaluate_every=1"], 5 * 4.0),
        (["recipe.evaluate_every=2"], 3 * 4.0),
        (["recipe.evaluate_every=2", "recipe.interim_bags=10"], 2 * 0.5 + 4.0),
        (["recipe.evaluate_every=9", "recipe.interim_bags=10"], 4.0),
    ],
)
def test_the_share_of_evaluations_is_that_of_the_whole_training(
    schedule: list[str], share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = measured("extended-digits", "noisy-or", "recipe.epochs=5", *schedule)
    monkeypatch.setattr(bench_training, "seconds_of", lambda work: work() or 4.0)
    evaluated: list[int] = []
    monkeypatch.setattr(trainer, "evaluate", evaluated.append)
    found = bench_training._evaluations(trainer, bench_training.QUICK)
    assert set(evaluated) == ({5} if "recipe.interim_bags=10" not in schedule or "=9" in schedule[0] else {2, 5})
    if "interim evaluation" in found:
        found["interim evaluation"] = Seconds(0.5, 0.5)
    steps = 5 * trainer.steps * 0.25
    assert bench_training._evaluation_share(trainer, found, 0.25) == pytest.approx(share / steps)


def test_the_plain_loop_pastes_whole_digits_and_labels_them() -> None:
    trainer = measured()
    like = trainer.batches(1)[0]
    bags = one_by_one(trainer.task, None)(like, torch.Generator().manual_seed(0))
    assert bags.instances.shape == like.instances.shape
    assert bags.labels.shape == like.labels.shape
    digits: Any = trainer.task
    pictures = digits.load(None).train
    # Where both digits are apart, the ink on a canvas is that of two training digits of its classes.
    for canvas, labels in zip(bags.instances, bags.labels, strict=True):
        assert 1 <= int(labels.sum()) <= 2
        assert 0 < float(canvas.sum()) <= 2 * float((pictures.pixels / 16).sum(dim=(1, 2, 3)).max())
    loop = trainer.plain_loop()
    assert loop is not None
    before = [p.clone() for p in loop.network.parameters()]
    loop.step(like, torch.Generator().manual_seed(0))
    assert all((p != b).any() for p, b in zip(loop.network.parameters(), before, strict=True))
    assert measured("extended-digits", "position").plain_loop() is None


def test_the_operations_of_a_step_are_those_of_its_convolutions() -> None:
    trainer = measured()
    (bags,) = trainer.batches(1)
    with FlopCounterMode(display=False) as counter:
        trainer.step(bags)
    height, width = bags.instances.shape[-2:]
    expected, channels = 0, 1
    for layer in trainer.task.layers():  # type: ignore[attr-defined]
        height, width = ((n + 2 * layer.padding - layer.kernel) // layer.stride + 1 for n in (height, width))
        forward = 2 * len(bags) * height * width * channels * layer.channels * layer.kernel**2
        expected += forward * (2 if channels == 1 else 3)  # the pixels need no gradient
        channels = layer.channels
    assert counter.get_total_flops() == expected


def test_bench_training_writes_what_it_prints(milbench: Milbench, tmp_path: Path) -> None:
    words = ["bench", "training", "--task", TINY, "--loss", "noisy-or,position", "--quick", "--device", "cpu"]
    ran = milbench(*words, "--json", str(tmp_path / "x.json"))
    assert ran.code == 0, ran
    assert "tiny, position" in ran.out
    content = json.loads((tmp_path / "x.json").read_text())
    assert content["machine"]["threads"] == 1
    assert content["machine"]["torch"] in torch.__version__
    first, second = content["rows"]
    assert [first["name"], second["name"]] == ["tiny, noisy-or", "tiny, position"]
    # In every repetition a step takes as long as its parts, so none is shorter than the shortest of them together.
    assert first["seconds"]["step"]["least"] >= sum(first["seconds"][part]["least"] for part in PARTS) > 0
    assert "plain step" in first["seconds"]
    assert "plain step" not in second["seconds"]
    printed = milbench(*words, "--json", "-")
    assert [row["name"] for row in json.loads(printed.out)["rows"]] == ["tiny, noisy-or", "tiny, position"]
    assert milbench("bench", "compare", str(tmp_path / "x.json"), str(tmp_path / "x.json")).code == 0


def test_wrong_names_and_places_are_one_line(milbench: Milbench, tmp_path: Path) -> None:
    assert "extended-digits" in milbench("bench", "training", "--task", "extended-digit").complaint()
    for precision, says in (("auto", "name what to measure"), ("tf32", "needs an NVIDIA GPU")):
        words = ["--task", TINY, "--loss", "noisy-or", "--device", "cpu", "-p", f"recipe.precision={precision}"]
        assert says in milbench("bench", "training", *words).complaint()
    ran = milbench("bench", "training", "--task", TINY, "--loss", "noisy-or", "--quick", "--json", str(tmp_path))
    assert str(tmp_path) in ran.complaint()
