"""Train and evaluate one cell, from its last checkpoint where there is one: batches, logits, loss, step."""

import os
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from milbench._utils.process import end_if_forked
from milbench.contracts.bags import Bags
from milbench.contracts.criterion import bag_losses
from milbench.contracts.targets import make_target
from milbench.experiment.cell import Cell
from milbench.store.cell_folder import CellFolder
from milbench.training.checkpoint import Checkpoint, Counters, Progress
from milbench.training.epoch_evaluation import evaluate, keep_if_best, keep_results
from milbench.training.training_setup import Setup, check_max_labels, set_up, training_logits

Weigh = Callable[[Tensor], Tensor]
"""What changes the losses (B,) of the bags of a batch before their mean is taken."""

LOOK_INTERVAL = 0.5  # least seconds between two looks at the loss, each of which makes the host wait for the device


def train(
    cell: Cell,
    folder: CellFolder,
    device: torch.device,
    data_dir: Path | None,
    *,
    threads_by_work: bool = False,
) -> dict[str, Any]:
    """Train to the last epoch, from the checkpoint of the folder, write the results into it, return its `result`.

    Raises FloatingPointError where logits or loss are not finite, UsageError where plug-ins or data have changed.
    """
    setup = set_up(cell, device, data_dir, threads_by_work=threads_by_work)
    checkpoint = Checkpoint(folder, setup.states, device)
    counters = checkpoint.restore()
    progress = Progress(folder, setup.recipe.epochs, setup.steps, counters)

    def report(counters: Counters) -> None:
        progress.trained(counters)
        checkpoint.save_if_old(counters)

    while True:
        train_epoch(setup, counters, report)
        epoch = counters.epoch + 1
        evaluation = evaluate(setup, epoch, progress)
        metrics = counters.means() | evaluation.metrics
        folder.append(epoch, metrics)
        progress.evaluated(metrics)
        if epoch == setup.recipe.epochs:
            return keep_results(setup, cell, folder, evaluation, counters.best)
        # The earlier best is removed only when a checkpoint no longer needs it.
        best = epoch if keep_if_best(folder, epoch, evaluation) else counters.best
        counters = Counters(epoch, best=best)
        checkpoint.save(counters)
        folder.keep_best(best)


def train_epoch(
    setup: Setup,
    counters: Counters,
    report: Callable[[Counters], None],
    weigh: Weigh | None = None,
) -> None:
    """Make the remaining steps of an epoch; report the progress every half second, and at its end."""
    setup.model.network.train()
    batches = islice(setup.train_batches(counters.epoch), setup.steps)
    for _ in range(counters.step):  # before the checkpoint
        next(batches)
    # It continues the sum of the checkpoint in the same order, so that a resumed run gives the identical sum.
    total = torch.tensor(
        [counters.loss_sum, counters.clipped], dtype=torch.float64, device=setup.device
    )
    begun = time.perf_counter()
    seconds = counters.seconds
    last_look = time.monotonic()
    process = os.getpid()
    for bags in batches:
        step = counters.epoch * setup.steps + counters.step
        total += train_step(setup, bags, step, weigh)
        end_if_forked(process)
        counters.step += 1
        # Between two looks the host waits for no GPU.
        if counters.step == setup.steps or time.monotonic() - last_look > LOOK_INTERVAL:
            last_look = time.monotonic()
            counters.loss_sum, counters.clipped = total.tolist()
            counters.seconds = seconds + time.perf_counter() - begun
            check_finite("loss", total.cpu(), step, setup.steps)
            report(counters)


def train_step(setup: Setup, bags: Bags, step: int, weigh: Weigh | None = None) -> Tensor:
    """Make a step (from 0) of a training; return (2,): the loss before it, and 1 where its gradient was shortened."""
    network = setup.model.network
    loss = setup.model.loss
    # For a check of values the host would wait for a GPU, which it does once.
    check_values = setup.device.type == "cpu" or step == 0
    if check_values:
        check_max_labels(setup.problem, bags)
    logits = check_finite("logits", training_logits(setup, bags), step, setup.steps)
    target = make_target(loss, bags, logits, network)
    mask = network.mask_of(bags)
    values = bag_losses(loss, logits, bags.labels, mask, target, check_values=check_values)
    if weigh is not None:
        values = weigh(values)
    check_finite("loss", values, step, setup.steps)
    value = values.mean()
    clipped = setup.descend(value, step)
    return torch.stack([value.detach(), clipped.to(value)])


def check_finite(what: str, values: Tensor, step: int, steps: int) -> Tensor:
    """Return logits or losses at a step; on a CPU they are checked, for a GPU one would have to wait."""
    if values.device.type == "cpu" and not bool(torch.isfinite(values).all()):
        place = f"non-finite {what} at epoch {step // steps + 1}, step {step % steps + 1}"
        raise FloatingPointError(f"training diverged: {place}; try a smaller recipe.lr")
    return values
