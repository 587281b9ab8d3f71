"""Train and evaluate one cell, from its last checkpoint where there is one."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import torch
from torch import Tensor

from milbench._utils.seeding import generator
from milbench.api.bags import Bags
from milbench.api.metric_info import INTERIM
from milbench.api.outcomes import Outcomes
from milbench.api.plan import Cell
from milbench.api.recipe import Recipe
from milbench.api.reliability import Bin
from milbench.api.targets import make_target
from milbench.api.task import Evaluation, Network, Scores
from milbench.engine import gallery_writer, profiling
from milbench.engine.averaging import Averaging
from milbench.engine.callback import Callback, Stopped
from milbench.engine.cell_parts import (
    check_data_unchanged,
    check_max_labels,
    check_unchanged,
    loss_for,
    network_for,
    task_for,
)
from milbench.engine.checkpoints import Checkpoint, Generators
from milbench.engine.clipping import Clipping
from milbench.engine.memory import halving, is_out_of_memory
from milbench.engine.objective import Objective, network_logits
from milbench.engine.optimizers import backward, learning_rate, make_optimizer, optimizer_step
from milbench.engine.precision import forbid_tf32, tf32
from milbench.evaluation.evaluate import EVEN_ODDS

T = TypeVar("T")

PROGRESS_INTERVAL = 0.5
"""Least seconds between reports of progress inside an epoch; each makes the host wait for the device."""
CHECKPOINT_INTERVAL = 60.0
"""Least seconds between checkpoints inside an epoch: a killed run loses this much work, and the step it was in."""
SMOKE_BAGS = 16
"""How many bags of each kind a cell that is only tried out is evaluated on."""
STOP_INTERVAL = 0.2
"""Least seconds between two questions whether to stop; the answer may lie on a slow disk."""


@dataclass
class TrainedCell:
    """The results of a cell.

    Args:
        history: the metrics of every epoch, by `split/metric`.
        costs: seconds and bytes, by the names of `milbench.api.results.Results.costs` after "cost/".
        weights: of the network and the loss after the last epoch, or their mean where the recipe averages them, on
            the CPU.
        decoder: learnt from validation bags after the last epoch, see `milbench.api.task.Evaluation`.
        outcomes: of the test items after the last epoch, see `milbench.api.task.Evaluation`.
        reliability: of the test bags after the last epoch, see `milbench.api.task.Evaluation`.
        save_gallery: writes the gallery to a path.
        class_names: of the task's classes, in the order of the channels.
        memory: what the network needs of the task's data, see `milbench.api.task.Task.memory`.
    """

    history: list[dict[str, float]]
    costs: dict[str, float]
    weights: dict[str, Tensor]
    decoder: dict[str, Any] | None
    outcomes: dict[str, Outcomes] | None
    reliability: dict[str, list[Bin]] | None
    save_gallery: Callable[[Path], None]
    class_names: list[str]
    memory: dict[str, Any]


@dataclass
class Trainer:
    """Trains and evaluates one cell on one device.

    Args:
        cell: what to train.
        device: of the network, the loss and the data.
        data_dir: the folder of the task's data; None: the default one.
        callback: is called as training goes on.
        checkpoint: the file from which training continues, if there is one for this cell, and which is kept up to date.
    """

    cell: Cell
    device: torch.device
    data_dir: Path | None
    callback: Callback
    checkpoint: Path
    _reported: float = field(default=0.0, init=False)
    _saved: float = field(default_factory=time.monotonic, init=False)
    _asked: float = field(default=-math.inf, init=False)
    _scored_at_once: int | None = field(default=None, init=False)
    _scored_in_half: bool = field(default=False, init=False)

    def run(self) -> TrainedCell:
        """Train to the last epoch, with the evaluations that the recipe asks for.

        Raises:
            FloatingPointError: logits or loss are not finite; the message names the epoch and the step.
            UsageError: a plug-in file was changed since the cell was planned, or the task does not suit the loss.
            TypeError: the task's `evaluate` returns something else than an Evaluation.
            StoreError: the checkpoint cannot be read at the moment.
            Stopped: the callback has asked to stop. The checkpoint holds every finished step.
        """
        self._set_up()
        state = self._begin()
        while state.epoch < self.recipe.epochs:
            busy = self._train_epoch(state)
            evaluation = self._evaluate(state)
            metrics = {
                "train/loss": state.loss_sum / state.step,
                "train/clipped": state.clipped / state.step,
                **evaluation.metrics,
                "cost/train_seconds": state.seconds,
                "cost/step_seconds": state.seconds / state.step,
                **({} if math.isnan(busy) else {"cost/busy": busy}),
            }
            state.end_epoch(replace(evaluation, metrics=metrics))
            self.callback.epoch(state.epoch, metrics)
            self._save(state)
        self.averaging.apply()
        # What follows must not change statistics over batches: not in the network, nor in the weights that are kept.
        self.network.eval()
        weights = {k: v.detach().cpu().contiguous().clone() for k, v in self.model.state_dict().items()}
        costs = self._costs(state)
        last = Evaluation(state.history[-1], state.decoder, state.outcomes, state.reliability)
        return TrainedCell(
            history=state.history,
            costs=costs,
            weights=weights,
            decoder=last.decoder,
            outcomes=last.outcomes,
            reliability=last.reliability,
            save_gallery=lambda path: self._save_gallery(path, last),
            class_names=self.task.class_names,
            memory=self.task.memory(),
        )

    def _begin(self) -> Checkpoint:
        """Return the state of training: that of the checkpoint, which is restored, or that before the first step."""
        existed = self.checkpoint.exists()
        state = Checkpoint.load(self.checkpoint, self.cell.id)
        if state is not None:
            state.restore(self.model, self.optimizer, self.clipping, self.averaging, self.device)
            self.callback.resumed(state.epoch + 1, state.step, self.steps)
            return state
        if existed:
            self.callback.started_over()
        return Checkpoint(self.cell.id)

    def _evaluate(self, state: Checkpoint) -> Evaluation:
        """Return the evaluation that the recipe asks for after this epoch; without metrics where it asks for none."""
        epoch = state.epoch + 1
        if epoch not in self.recipe.evaluated_epochs():
            return Evaluation({}, state.decoder)
        if self.recipe.interim_bags is None or epoch == self.recipe.epochs:
            return self._evaluation(state)
        limit = self.task.evaluation_limit
        self.task.evaluation_limit = min(self.recipe.interim_bags, limit or self.recipe.interim_bags)
        self._scored_in_half = self.recipe.precision == "bfloat16"
        try:
            found = self._evaluation(state)
        finally:
            self.task.evaluation_limit, self._scored_in_half = limit, False
        return Evaluation({f"{INTERIM}{name}": value for name, value in found.metrics.items()}, found.decoder)

    def _evaluation(self, state: Checkpoint) -> Evaluation:
        generators = Generators.now(self.device)
        try:
            with self.averaging.applied():
                evaluation: object = self.task.evaluate(self._score)
        except Stopped:
            # The next launch starts this evaluation anew: what it has drawn so far must not count.
            generators.restore(self.device)
            self._save(state)
            raise
        if not isinstance(evaluation, Evaluation):
            given = type(evaluation).__name__
            raise TypeError(f"evaluate of task {self.task.name} must return milbench.Evaluation, got {given}")
        return evaluation

    def _set_up(self) -> None:
        cell = self.cell
        check_unchanged(cell)
        forbid_tf32()
        self.recipe = Recipe.from_stored(cell.recipe)
        self.task = task_for(cell)
        check_data_unchanged(self.task, cell, self.data_dir)
        self.task.seed = cell.seed
        if cell.smoke:
            self.task.evaluation_limit = SMOKE_BAGS
        self.task.prepare(self.data_dir, self.device)
        profiling.reset_memory_peak(self.device)
        # No built-in loss draws from the global generator, but a plug-in may: it too must depend on the seed alone.
        torch.manual_seed(cell.seed)
        self.loss = loss_for(cell, self.task).to(self.device)
        self.loss.max_labels = self.task.max_labels
        torch.manual_seed(cell.seed)  # again: what the loss has drawn must not change the network
        network = network_for(self.loss, self.task, cell.seed)
        if self.recipe.head_init == "prior" and self.loss.head != "class":
            network.start_at_prior(self.task.positions)
        self.network: Network = network.move_to(self.device)
        # A loss may have weights of its own, which are trained, clipped and stored together with the network's.
        self.model = torch.nn.ModuleDict({"network": self.network, "loss": self.loss})
        self.objective = Objective(self.network, self.loss, self.recipe, self.device)
        self.optimizer = make_optimizer(self.model, self.recipe, cell.seed)
        self.clipping = Clipping.of(self.recipe)
        available = self.task.steps_per_epoch
        self.steps = min(self.recipe.steps_per_epoch or available, available)
        self.averaging = Averaging.of(self.recipe, self.model, self.recipe.epochs * self.steps)

    def _batches(self, epoch: int) -> itertools.islice[Bags]:
        """Return the batches of an epoch (from 0), which depend on task, seed and epoch, but not on the loss."""
        rng = generator("bags", self.task.name, self.cell.seed, epoch)
        return itertools.islice(self.task.train_batches(epoch, rng), self.steps)

    def _train_epoch(self, state: Checkpoint) -> float:
        """Make the steps of an epoch that are left; return the share of the machine that other processes used."""
        self.network.train()
        load = profiling.OtherLoad()
        # The sum continues from that of the checkpoint in the same order, so a resumed run gives the identical sum.
        total = torch.tensor([state.loss_sum, state.clipped], dtype=torch.float64, device=self.device)
        done, batches = state.step, self._batches(state.epoch)
        for _ in itertools.islice(batches, done):  # they were drawn before, and that time was counted then
            pass
        begun, seconds_before = time.perf_counter(), state.seconds

        def settle(step: int) -> None:
            """Bring the counters up to date. Nowhere else in the epoch does the host wait for the device."""
            state.loss_sum, state.clipped = total.tolist()
            state.step, state.seconds = step, seconds_before + time.perf_counter() - begun
            if not math.isfinite(state.loss_sum):
                raise FloatingPointError(f"the loss in training: not finite by epoch {state.epoch + 1}, step {step}")

        for step, bags in enumerate(batches, start=done + 1):
            total += self._train_step(bags, state, state.epoch * self.steps + step - 1)
            self.averaging.count(state.epoch * self.steps + step)
            now = time.monotonic()
            if now - self._reported > PROGRESS_INTERVAL or now - self._saved > CHECKPOINT_INTERVAL:
                settle(step)
                self._reported = now
                self.callback.step(state.epoch + 1, step, self.steps, state.loss_sum / step)
            if now - self._saved > CHECKPOINT_INTERVAL:
                self._save(state)
            if self._stop_requested():
                settle(step)
                self._save(state)
                raise Stopped
        settle(self.steps)
        return load.share()

    def _stop_requested(self) -> bool:
        now = time.monotonic()
        if now - self._asked < STOP_INTERVAL:
            return False
        self._asked = now
        return self.callback.stop_requested()

    def _train_step(self, bags: Bags, state: Checkpoint, done: int) -> Tensor:
        """Make a step after `done` steps of the whole training.

        Returns:
            (2,), the loss before it, and 1 where its gradient was clipped, else 0.
        """
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.recipe, done, self.recipe.epochs * self.steps)
        # A check of every value makes the host wait for a GPU: there it is done for the first batch alone.
        self.loss.validate = self.device.type == "cpu" or done == 0
        if self.loss.validate:
            check_max_labels(self.task, bags)
        epoch, step = done // self.steps + 1, done % self.steps + 1

        def smaller(size: int) -> None:
            state.micro_batch = size
            self.callback.micro_batch(size, epoch, step)

        def gradient(size: int) -> Tensor:
            with tf32(False):  # the objective allows it in the network where the recipe does
                return backward(self.optimizer, self.objective.terms(bags, size, epoch, step))

        if self.objective.divisible(self.optimizer, bags):
            loss = self._fitting(len(bags), state.micro_batch, gradient, smaller)
        else:
            loss = gradient(len(bags))
        clipped = optimizer_step(self.optimizer, self.clipping)
        return torch.stack([loss, clipped.to(loss)])

    def _fitting(self, bags: int, size: int | None, compute: Callable[[int], T], smaller: Callable[[int], None]) -> T:
        """Compute a batch of `bags`, `size` of them at a time, or fewer where memory runs out; see `halving`."""
        generators = Generators.now(self.device)

        def again(size: int) -> None:
            generators.restore(self.device)
            smaller(size)

        return halving(min(size or bags, bags), compute, again)

    @torch.no_grad()
    def _score(self, bags: Bags) -> Scores:
        if self._stop_requested():
            raise Stopped
        self.network.eval()

        def score(size: int) -> Scores:
            if size >= len(bags):
                return self._scores_of(bags)
            parts = [self._scores_of(part) for part in bags.parts(size)]
            return _joined(parts)

        def smaller(size: int) -> None:
            self._scored_at_once = size

        return self._fitting(len(bags), self._scored_at_once, score, smaller)

    def _scores_of(self, bags: Bags) -> Scores:
        logits = network_logits(self.network, bags, self.device, half=self._scored_in_half)
        presence = self.loss.presence_scores(logits, bags.mask)
        return Scores(
            self.loss.class_scores(logits, bags.mask),
            presence,
            self.loss.instance_probs(logits, bags.mask),
            self.loss.instance_evidence(logits, bags.mask),
            self.loss.label_log_prob(logits, bags.labels, bags.mask),
            self.loss.label_log_prob(logits, presence >= EVEN_ODDS, bags.mask),
            presence if self.loss.presence_is_log_odds else None,
        )

    def _costs(self, state: Checkpoint) -> dict[str, float]:
        """Return the costs of training, with those of the loss alone where a whole batch fits into memory."""
        costs = _timing("step", profiling.Timing.of([row["cost/step_seconds"] for row in state.history]))
        costs["cost/train_seconds"] = sum(row["cost/train_seconds"] for row in state.history)
        busy = [row["cost/busy"] for row in state.history if "cost/busy" in row]
        load = profiling.OtherLoad()
        try:
            costs |= self._loss_costs(state.micro_batch)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
        loads = [value for value in (load.share(), median(busy or [math.nan])) if not math.isnan(value)]
        costs |= {"cost/busy": max(loads)} if loads else {}
        return costs | {"cost/peak_bytes": profiling.memory_peak(self.device)}

    def _loss_costs(self, micro_batch: int | None) -> dict[str, float]:
        """Return the costs of the loss alone, forward and backward, on one training batch."""
        bags = next(self._batches(0))
        with torch.no_grad():
            logits = torch.cat([self.objective.logits(part) for part in bags.parts(micro_batch or len(bags))])
        logits.requires_grad_()
        target = make_target(self.loss.target_kind, bags, logits, self.network)
        self.loss.validate = False

        def forward_and_backward() -> None:
            value = self.loss(logits, bags.labels, bags.mask, target).mean()
            torch.autograd.grad(value, [logits, *self.loss.parameters()], allow_unused=True)

        return {
            **_timing("loss", profiling.timed(forward_and_backward)),
            "cost/loss_peak_bytes": float(profiling.peak_bytes(forward_and_backward)),
        }

    def _save_gallery(self, path: Path, last: Evaluation) -> None:
        gallery_writer.save_gallery(path, self.task, self.network, self.loss, self._score, last)

    def _save(self, state: Checkpoint) -> None:
        state.save(self.checkpoint, self.model, self.optimizer, self.clipping, self.averaging, self.device)
        self._saved = time.monotonic()


def _joined(parts: Sequence[Scores]) -> Scores:
    """Return the scores of all bags of several batches."""
    values = {column.name: [getattr(part, column.name) for part in parts] for column in fields(Scores)}
    joined: dict[str, Any] = {name: None if of[0] is None else torch.cat(of) for name, of in values.items()}
    return Scores(**joined)


def _timing(of: str, taken: profiling.Timing) -> dict[str, float]:
    """Return the costs that summarise repeated measurements."""
    name = f"cost/{of}_seconds"
    return {name: taken.median, f"{name}_min": taken.least, f"{name}_spread": taken.spread}
