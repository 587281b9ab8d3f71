"""Whole training steps and evaluations of the trainer, beside a plain loop that trains the same network."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from milbench._utils.seeding import generator
from milbench.api.bags import Bags
from milbench.api.plan import Plan
from milbench.api.registry import losses
from milbench.api.supervision import SUPERVISIONS
from milbench.bench.files import Row, Seconds
from milbench.bench.plain_loop import PlainLoop
from milbench.data import catalog
from milbench.engine.callback import Callback
from milbench.engine.cell_parts import loss_for, network_for
from milbench.engine.checkpoints import Checkpoint
from milbench.engine.objective import Objective
from milbench.engine.planning import make_plan
from milbench.engine.precision import tf32
from milbench.engine.profiling import Timing, peak_bytes, seconds_of, synchronise
from milbench.engine.spec import make_spec, parse_setting
from milbench.engine.trainer import SMOKE_BAGS, Trainer
from milbench.errors import UsageError

PARTS = ("data", "forward", "loss", "backward", "optimiser")
"""The parts of a step. The optimiser's is all that is left of the step: schedule, clipping and the step itself."""
WITHOUT_DATA = ("extended-digits", "synthetic-bags")
"""The tasks that are measured where none is named: these need no files."""
WHERE_FOUND = {"extended-mnist": "mnist"}
"""Further ones, with the data set whose files they need."""


@dataclass(frozen=True)
class Effort:
    """How long to measure.

    Args:
        repeats: how often everything is measured, at most.
        window: for about how many seconds a repeat makes steps.
        drawing: after so many seconds a repeat draws no further batches of an epoch.
        evaluating: after so many seconds an evaluation is not repeated.
    """

    repeats: int
    window: float
    drawing: float
    evaluating: float


USUAL, QUICK = Effort(5, 1.0, 5.0, 10.0), Effort(3, 0.1, 1.0, 0.5)
FEWEST_STEPS = 4
MATRIX = 2048
"""Side of the matrices whose product shows how fast this machine is at most."""


class Clock:
    """Adds up the seconds of parts that do not overlap, each until the accelerator has finished it."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PARTS, 0.0)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count the block as a part. Parts inside it are counted as theirs alone."""
        synchronise()
        begun, inside = time.perf_counter(), sum(self.seconds.values())
        yield
        synchronise()
        inside = sum(self.seconds.values()) - inside
        self.seconds[name] += time.perf_counter() - begun - inside


@dataclass
class TimedObjective(Objective):
    """The objective of a trainer, with a clock for its parts."""

    clock: Clock

    def terms(self, bags: Bags, size: int, epoch: int, step: int) -> Iterator[Tensor]:
        """Yield the terms; the gradient of each is computed until the next one is asked for."""
        for term in super().terms(bags, size, epoch, step):
            with self.clock.part("backward"):
                yield term

    def logits(self, bags: Bags) -> Tensor:
        """Return the logits of training."""
        with self.clock.part("forward"):
            return super().logits(bags)

    def _losses(self, bags: Bags, logits: Tensor, epoch: int, step: int) -> Tensor:
        with self.clock.part("loss"):
            return super()._losses(bags, logits, epoch, step)


class MeasuredTrainer(Trainer):
    """A trainer whose steps and evaluations are made one by one, to measure them."""

    def prepare(self) -> None:
        """Load the data, and make the network, the loss and the optimiser."""
        self._set_up()
        self._state = Checkpoint(self.cell.id)

    def steps_timed(self, count: int, drawing: float) -> dict[str, float]:
        """Make the first steps of the training.

        Args:
            count: how many steps to time, after one that is not.
            drawing: the limit of `data_timed`.

        Returns:
            The mean seconds of each part of a step.
        """
        clock = Clock()
        self.objective = TimedObjective(self.network, self.loss, self.recipe, self.device, clock)
        untimed, *batches = self._first(count + 1)
        self.step(untimed)
        clock.seconds = dict.fromkeys(PARTS, 0.0)
        for bags in batches:
            with clock.part("optimiser"):
                self.step(bags)
        return {name: seconds / count for name, seconds in clock.seconds.items()} | {"data": self.data_timed(drawing)}

    def data_timed(self, limit: float) -> float:
        """Draw the batches of an epoch once, without steps.

        A task may draw several batches when it is asked for one, so the first batch counts as well. Drawn again and
        again, the same batches would take less time than in training, since caches then hold all that it needs.

        Args:
            limit: after so many seconds no further batch is drawn.

        Returns:
            The mean seconds of a batch.
        """
        synchronise()
        begun, drawn = time.perf_counter(), 0
        for _ in self._batches(0):
            drawn += 1
            if time.perf_counter() - begun >= limit:
                break
        synchronise()
        return (time.perf_counter() - begun) / drawn

    def step(self, bags: Bags) -> None:
        """Make a step."""
        self.network.train()
        self._train_step(bags, self._state, 1)

    def batches(self, count: int) -> list[Bags]:
        """Return the batches that `steps_timed` is timed on."""
        return self._first(count + 1)[1:]

    def _first(self, count: int) -> list[Bags]:
        """Return the first batches of the training, from as many epochs as that takes."""
        return list(islice(chain.from_iterable(map(self._batches, range(count))), count))

    def evaluate(self, epoch: int) -> None:
        """Evaluate as after an epoch (from 1)."""
        self._state.epoch = epoch - 1
        self._evaluate(self._state)

    def evaluate_few(self) -> None:
        """Evaluate on few bags. The first evaluation of a process imports much, which belongs to no measurement."""
        limit = self.task.evaluation_limit
        self.task.evaluation_limit = min(SMOKE_BAGS, limit or SMOKE_BAGS)
        try:
            self.evaluate(self.recipe.epochs)
        finally:
            self.task.evaluation_limit = limit

    def plain_loop(self) -> PlainLoop | None:
        """Return a plain loop that trains the same network from the same weights; None for other targets than sets."""
        if self.loss.target_kind != "labels":
            return None
        loss = loss_for(self.cell, self.task).to(self.device)
        network = network_for(loss, self.task, self.cell.seed)
        if self.recipe.head_init == "prior" and loss.head != "class":
            network.start_at_prior(self.task.positions)
        return PlainLoop(self.task, loss, network, self.recipe, self.device, self.data_dir)


def plan(
    loss_names: Sequence[str] | None, task_names: Sequence[str] | None, settings: Sequence[str], data_dir: Path | None
) -> Plan:
    """Return the cells to measure, with one seed.

    Args:
        loss_names: names or paths of files; None: all losses of set supervision that come with milbench.
        task_names: the same of tasks; None: those that need no files or whose files are here.
        settings: as `-p` of `milbench run`.
        data_dir: the folder of the data; None: the default one.

    Raises:
        UsageError: a name, a setting or the data of a task are wrong, or the precision is left open.
    """
    if task_names is None:
        root = catalog.data_dir(data_dir)
        found = [task for task, files in WHERE_FOUND.items() if not catalog.DATASETS[files].missing(root)]
        task_names = [*WITHOUT_DATA, *found]
    if loss_names is None:
        loss_names = [name for name in losses().names() if _is_own_of_sets(name)]
    values: dict[str, Any] = {"name": "bench", "losses": [*loss_names], "tasks": [*task_names]}
    for setting in settings:
        parse_setting(values, setting)
    planned = make_plan(make_spec({**values, "seeds": 0, "supervision": [*SUPERVISIONS]}), data_dir)
    if any(cell.recipe["precision"] == "auto" for cell in planned.cells):
        raise UsageError("recipe.precision = auto: name what to measure, such as -p recipe.precision=float32,bfloat16")
    return planned


def _is_own_of_sets(name: str) -> bool:
    loss = losses().cls(name)
    return losses().entry(name).origin == "milbench" and loss.supervision == "set" and loss.head != "class"


def measure(planned: Plan, device: torch.device, data_dir: Path | None, *, quick: bool = False) -> list[Row]:
    """Measure every cell, one after the other; return a row for each.

    Args:
        planned: from `plan`.
        device: of network, loss and data.
        data_dir: the folder of the data; None: the default one.
        quick: whether to make fewer and shorter repetitions.
    """
    ceilings: dict[str, float] = {}
    rows = []
    for cell in planned.cells:
        precision = str(cell.recipe["precision"])
        # Measured again for every row, since other work on the machine may have held an earlier product up.
        product = matrix_product_flops(precision, device)
        ceilings[precision] = max(product, ceilings.get(precision, 0.0))
        loss, task, recipe = planned.labels[cell.id]
        trainer = MeasuredTrainer(cell, device, data_dir, Callback(), Path())
        name = ", ".join(filter(None, (task, loss, recipe)))
        rows.append(_row(name, trainer, ceilings[precision], QUICK if quick else USUAL))
    return rows


def matrix_product_flops(precision: str, device: torch.device) -> float:
    """Return the most floating-point operations a second that a product of large matrices reached here and now."""
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    left, right = (torch.randn(MATRIX, MATRIX, device=device).to(dtype) for _ in range(2))
    with tf32(precision == "tf32"):
        fastest = min(seconds_of(lambda: left @ right) for _ in range(6))
    return 2.0 * MATRIX**3 / fastest


def _row(name: str, trainer: MeasuredTrainer, ceiling: float, effort: Effort) -> Row:
    trainer.prepare()
    plain = trainer.plain_loop()
    count = _steps_in(effort, trainer)
    batches = trainer.batches(count)
    taken, plain_taken = _alternating(trainer, plain, batches, effort)
    steps = Timing.of([sum(parts.values()) for parts in taken])
    with FlopCounterMode(display=False) as counter:
        for bags in batches:
            trainer.step(bags)
    flops = counter.get_total_flops() / count
    largest = max(batches, key=lambda bags: bags.instances.numel())
    timings = {"step": steps} | {part: Timing.of([parts[part] for parts in taken]) for part in PARTS}
    evaluations = _evaluations(trainer, effort)
    numbers = {
        "bags/s": sum(map(len, batches)) / count / steps.median,
        "data share": statistics.median(parts["data"] / sum(parts.values()) for parts in taken),
        "GFLOP a step": flops / 1e9,
        "GFLOP/s of a matrix product": ceiling / 1e9,
        "share of a matrix product": flops / steps.median / ceiling,
        "whole evaluation by epoch": evaluations["evaluation"].median / (steps.median * trainer.steps),
        "evaluation share": _evaluation_share(trainer, evaluations, steps.median),
    }
    if plain:
        timings["plain step"] = Timing.of(plain_taken)
        ratios = [their / sum(ours.values()) for their, ours in zip(plain_taken, taken, strict=True)]
        numbers["plain/ours"] = statistics.median(ratios)
    return Row(
        name,
        {part: Seconds.of(timing) for part, timing in timings.items()} | evaluations,
        {"step": peak_bytes(lambda: trainer.step(largest))},
        numbers,
    )


def _steps_in(effort: Effort, trainer: MeasuredTrainer) -> int:
    """Return how many steps take the time of a repeat, at most an epoch of them."""
    seconds = sum(trainer.steps_timed(2, effort.drawing).values())
    return max(FEWEST_STEPS, min(round(effort.window / seconds), trainer.steps))


def _alternating(
    trainer: MeasuredTrainer, plain: PlainLoop | None, batches: list[Bags], effort: Effort
) -> tuple[list[dict[str, float]], list[float]]:
    """Return the seconds of a step by part, and those of the plain loop, which other work disturbs alike."""
    ours, theirs = [], []
    for repeat in range(effort.repeats):
        rng = generator("bench-training", repeat)
        ours.append(trainer.steps_timed(len(batches), effort.drawing))
        if plain:
            plain.step(batches[0], rng)
            loop = plain

            def steps(rng: torch.Generator = rng, loop: PlainLoop = loop) -> None:
                for bags in batches:
                    loop.step(bags, rng)

            drawing = 0.0 if plain.draw else ours[-1]["data"]
            theirs.append(seconds_of(steps) / len(batches) + drawing)
    return ours, theirs


def _evaluations(trainer: MeasuredTrainer, effort: Effort) -> dict[str, Seconds]:
    """Return how long the last evaluation takes, and one before it where that uses fewer bags."""
    trainer.evaluate_few()
    epochs = {"evaluation": trainer.recipe.epochs}
    if trainer.recipe.interim_bags is not None and len(trainer.recipe.evaluated_epochs()) > 1:
        epochs["interim evaluation"] = trainer.recipe.evaluated_epochs()[0]
    found = {}
    for name, epoch in epochs.items():
        taken: list[float] = []
        while len(taken) < effort.repeats and sum(taken) < effort.evaluating:
            taken.append(seconds_of(lambda epoch=epoch: trainer.evaluate(epoch)))  # type: ignore[misc]
        found[name] = Seconds.of(Timing.of(taken)) if len(taken) > 1 else Seconds(taken[0], taken[0])
    return found


def _evaluation_share(trainer: MeasuredTrainer, evaluations: dict[str, Seconds], step: float) -> float:
    """Return how long all evaluations of a training take, as a share of its steps."""
    last = evaluations["evaluation"].median
    before = evaluations.get("interim evaluation", evaluations["evaluation"]).median
    seconds = last + before * (len(trainer.recipe.evaluated_epochs()) - 1)
    return seconds / (step * trainer.steps * trainer.recipe.epochs)
