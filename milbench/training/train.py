"""Train and evaluate one cell, from its last checkpoint where there is one."""

import os
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

from milbench._utils.process import end_if_forked
from milbench.contracts.bags import Bags
from milbench.contracts.criterion import bag_losses
from milbench.contracts.targets import make_target
from milbench.experiment.cell import Cell
from milbench.store.cell_folder import CellFolder, CellResult
from milbench.training.checkpoint import Checkpoint, Counters, Progress
from milbench.training.epoch_evaluation import evaluate, keep_if_best, keep_results
from milbench.training.training_setup import (
    Setup,
    check_max_labels,
    setup_for_cell,
    training_logits,
)

Weigh = Callable[[Tensor], Tensor]
"""A function that changes the losses (B,) of the B bags of a batch before their mean is taken.

BagClassifier, the interface like scikit-learn's, multiplies them by the weights of its samples.
"""

LOOK_INTERVAL = 0.5
"""The least time in seconds between two looks at the sum of the losses.

A look reads the sum, which makes the CPU wait for the GPU.
"""


def train(
    cell: Cell,
    folder: CellFolder,
    device: torch.device,
    data_dir: Path | None,
    *,
    one_thread_if_small: bool = False,
) -> CellResult:
    """Train a cell to the last epoch, and write its results into its folder.

    The training continues from the checkpoint of the folder, if there is one. Returns what was
    measured, see `keep_results`; `one_thread_if_small` is explained at `setup_for_cell`. Raises
    FloatingPointError where logits or losses are not finite, and UsageError where plug-ins or data
    have changed since the cell was planned.
    """
    setup = setup_for_cell(cell, device, data_dir, one_thread_if_small=one_thread_if_small)
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
        best = counters.best
        if keep_if_best(folder, epoch, evaluation):
            best = epoch
        counters = Counters(epoch, best=best)
        checkpoint.save(counters)
        # The predictions of the earlier best are removed only now that no checkpoint needs them.
        folder.keep_best(best)


def train_epoch(
    setup: Setup,
    counters: Counters,
    report: Callable[[Counters], None],
    weigh: Weigh | None = None,
) -> None:
    """Make the remaining steps of an epoch, and report the progress about every half second.

    The end of the epoch is reported too. `counters` say where the epoch stands at the beginning,
    such as after a checkpoint, and change with every step. Of all callers only BagClassifier gives
    `weigh`.
    """
    setup.model.network.train()
    batches = islice(setup.train_batches(counters.epoch), setup.steps)
    # The batches of the steps before the checkpoint are skipped.
    for _ in range(counters.step):
        next(batches)
    # The sum of the losses of the steps, and the number of steps whose gradient was clipped, on the
    # device. They begin with the totals of the checkpoint. So the losses are added up in the same
    # order as without an interruption, and the sums are identical to the last bit.
    totals = torch.tensor(
        [counters.loss_sum, counters.clipped], dtype=torch.float64, device=setup.device
    )
    begun = time.perf_counter()
    seconds_before = counters.seconds
    last_look = time.monotonic()
    process = os.getpid()
    for bags in batches:
        # The number of the step over all epochs, from 0.
        step = counters.epoch * setup.steps + counters.step
        totals += train_step(setup, bags, step, weigh)
        # Code of a task or a loss may fork this process. The child must end here, since it would
        # train the same cell.
        end_if_forked(process)
        counters.step += 1
        # Between two looks at the totals the CPU does not wait for the GPU.
        is_due = time.monotonic() - last_look > LOOK_INTERVAL
        if is_due or counters.step == setup.steps:
            last_look = time.monotonic()
            counters.loss_sum, counters.clipped = totals.tolist()
            counters.seconds = seconds_before + time.perf_counter() - begun
            # On the CPU `train_step` has checked every loss. On a GPU it has checked none, to spare
            # the CPU the wait. If any loss was not finite, the sum is not finite either. The
            # message names the step of this look, which may come later than the step of the loss.
            check_not_diverged("sum of losses", totals, step, setup.steps)
            report(counters)


def train_step(setup: Setup, bags: Bags, step: int, weigh: Weigh | None = None) -> Tensor:
    """Make the step with this number (from 0) of a training.

    Returns a tensor (2,): the loss before the step, and 1 if the gradient was clipped, else 0.
    """
    network = setup.model.network
    loss = setup.model.loss
    on_cpu = setup.device.type == "cpu"
    # Checking values makes the CPU wait for the GPU. So on a GPU only the first step is checked
    # here; `train_epoch` checks the sum of all losses now and then.
    check_values = on_cpu or step == 0
    if check_values:
        check_max_labels(setup.problem, bags)
    logits = training_logits(setup, bags)
    if on_cpu:
        check_not_diverged("logits", logits, step, setup.steps)
    target = make_target(loss, bags, logits, network)
    mask = network.mask_of(bags)
    values = bag_losses(loss, logits, bags.labels, mask, target, check_values=check_values)
    if weigh is not None:
        values = weigh(values)
    if on_cpu:
        check_not_diverged("loss", values, step, setup.steps)
    value = values.mean()
    clipped = setup.descend(value, step)
    return torch.stack([value.detach(), clipped.to(value)])


def check_not_diverged(what: str, values: Tensor, step: int, steps: int) -> None:
    """Raise FloatingPointError unless values at a step, such as its logits, are finite.

    On a GPU this makes the CPU wait for the device.

    Args:
        what: what the values are, for the message: "logits", "loss" or "sum of losses".
        values: the values to check.
        step: the number of the step, from 0 over all epochs.
        steps: the steps of an epoch.
    """
    if bool(torch.isfinite(values).all()):
        return
    found = f"non-finite {what} at epoch {step // steps + 1}, step {step % steps + 1}"
    raise FloatingPointError(f"training diverged: {found}; try a smaller recipe.lr")
