"""What `milbench bench training` measures is what the trainer does."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from milbench import Bags, Evaluation
from milbench.bench import training
from milbench.bench.files import Seconds
from milbench.bench.plain_loop import one_by_one
from milbench.bench.training import PARTS, QUICK, Clock, MeasuredTrainer
from milbench.engine.callback import Callback
from milbench.engine.trainer import Trainer
from tests._helpers.command_line import TINY, Milbench

CPU = torch.device("cpu")


def measured(task: str = "extended-digits", loss: str = "noisy-or", *settings: str) -> MeasuredTrainer:
    (cell,) = training.plan([loss], [task], settings, None).cells
    trainer = MeasuredTrainer(cell, CPU, None, Callback(), Path())
    trainer.prepare()
    return trainer


def test_the_steps_that_are_measured_are_those_of_the_trainer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ours = measured(TINY, "noisy-or", "recipe.epochs=1", "recipe.schedule=constant")
    taken = ours.steps_timed(3, drawing=1.0)
    assert set(taken) == set(PARTS)
    assert all(seconds > 0 for seconds in taken.values())
    trained = Trainer(ours.cell, CPU, None, Callback(), tmp_path / "x.pt").run()
    found = ours.model.state_dict()  # after four batches, of which one is not timed
    assert {*found} == {*trained.weights}
    assert all(torch.equal(value, trained.weights[name]) for name, value in found.items())


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Stop the clock; whoever adds to the one element lets time pass."""
    now = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    return now


def draw_in_groups(trainer: MeasuredTrainer, monkeypatch: pytest.MonkeyPatch, now: list[float], size: int) -> None:
    """Let the task take a second for each batch, but draw `size` of them at once."""
    one_by_one = trainer.task.train_batches

    def train_batches(epoch: int, rng: torch.Generator) -> Iterator[Bags]:
        batches = list(one_by_one(epoch, rng))
        for number, bags in enumerate(batches):
            if number % size == 0:
                now[0] += len(batches[number : number + size])
            yield bags

    monkeypatch.setattr(trainer.task, "train_batches", train_batches)


def test_batches_that_are_drawn_together_are_charged_to_all_steps(
    monkeypatch: pytest.MonkeyPatch, now: list[float]
) -> None:
    trainer = measured(TINY, "noisy-or", "task.batches=12")
    draw_in_groups(trainer, monkeypatch, now, size=10)
    # The two steps after an untimed one lie within the first group.
    assert trainer.steps_timed(2, drawing=100) == dict.fromkeys(PARTS, 0.0) | {"data": 1.0}
    assert trainer.data_timed(limit=1) == 10  # for one batch: the time is over


def test_data_are_part_of_the_step_and_of_a_plain_loop_that_cannot_draw(
    monkeypatch: pytest.MonkeyPatch, now: list[float]
) -> None:
    trainer = measured(TINY)
    draw_in_groups(trainer, monkeypatch, now, size=4)
    monkeypatch.setattr(trainer, "prepare", lambda: None)
    train = trainer._train_step

    def train_step(*args: Any) -> torch.Tensor:
        now[0] += 3
        return train(*args)

    monkeypatch.setattr(trainer, "_train_step", train_step)
    monkeypatch.setattr(training, "_evaluations", lambda *_: {"evaluation": Seconds(4.0, 4.0)})
    row = training._row("tiny", trainer, 1e9, replace(QUICK, drawing=100))
    medians = {name: taken.median for name, taken in row.seconds.items()}
    assert medians == dict.fromkeys(PARTS, 0.0) | {
        "data": 1, "optimiser": 3, "step": 4, "plain step": 1, "evaluation": 4,
    }  # fmt: skip
    assert row.numbers["data share"] == 0.25
    assert row.numbers["plain/ours"] == 0.25
    assert row.numbers["bags/s"] == 8 / 4


@pytest.mark.parametrize("settings", [["recipe.steps_per_epoch=1"], ["task.batches=1"], ["task.batches=2"]])
def test_a_short_epoch_is_followed_by_the_next_one(settings: list[str]) -> None:
    trainer = measured(TINY, "noisy-or", *settings)
    assert all(seconds > 0 for seconds in trainer.steps_timed(4, drawing=1.0).values())
    batches = trainer.batches(4)
    assert len(batches) == 4
    (second,) = islice(trainer._batches(1), 1) if trainer.steps == 1 else islice(trainer._batches(0), 1, 2)
    assert torch.equal(batches[0].instances, second.instances)
    assert len({bags.instances.sum().item() for bags in batches}) == 4


def test_the_first_evaluation_is_on_few_bags_and_not_timed(monkeypatch: pytest.MonkeyPatch, now: list[float]) -> None:
    trainer = measured("extended-digits", "noisy-or")
    limits: list[int | None] = []

    def evaluate(score: Any) -> Evaluation:
        limits.append(trainer.task.evaluation_limit)
        now[0] += 0.125 if len(limits) > 1 else 100  # such as imports
        return Evaluation({})

    monkeypatch.setattr(trainer.task, "evaluate", evaluate)
    found = training._evaluations(trainer, QUICK)
    few, *others = limits
    assert few is not None
    assert few < 50
    assert others == [None, None, None]
    assert found == {"evaluation": Seconds(0.125, 0.125, 0.0)}


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
    monkeypatch.setattr(training, "seconds_of", lambda work: work() or 4.0)
    evaluated: list[int] = []
    monkeypatch.setattr(trainer, "evaluate", evaluated.append)
    found = training._evaluations(trainer, QUICK)
    assert set(evaluated) == ({5} if "recipe.interim_bags=10" not in schedule or "=9" in schedule[0] else {2, 5})
    if "interim evaluation" in found:
        found["interim evaluation"] = Seconds(0.5, 0.5)
    steps = 5 * trainer.steps * 0.25
    assert training._evaluation_share(trainer, found, 0.25) == pytest.approx(share / steps)


def test_the_plain_loop_pastes_whole_digits_and_labels_them() -> None:
    trainer = measured()
    like = trainer.batches(1)[0]
    draw = one_by_one(trainer.task, None)
    assert draw is not None
    bags = draw(like, torch.Generator().manual_seed(0))
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


@pytest.mark.parametrize("benchmark", ["training", "losses", "runner"])
def test_a_file_that_cannot_be_written_is_refused_before_anything_is_measured(
    milbench: Milbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, benchmark: str
) -> None:
    from milbench.bench import likelihood, runner

    for module in (training, likelihood, runner):
        monkeypatch.setattr(module, "measure", lambda *_, **__: pytest.fail("measured in vain"))
    bad, read_only = tmp_path / "none" / "x.json", tmp_path / "read-only"
    read_only.mkdir()
    access = os.access
    monkeypatch.setattr("os.access", lambda path, mode: Path(path) != read_only and access(path, mode))
    for target, says in (
        (bad, f"there is no folder {tmp_path / 'none'}"),
        (tmp_path, "it is a folder"),
        (read_only / "x.json", "permission denied"),
    ):
        complaint = milbench("bench", benchmark, "--quick", "--json", str(target)).complaint()
        assert str(target) in complaint
        assert says in complaint
