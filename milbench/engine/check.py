"""The smoke test of a launch: every loss on the first batch of every task, before any cell is computed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from milbench._utils import interrupts
from milbench._utils.seeding import generator
from milbench.api.bags import Bags
from milbench.api.loss import Loss
from milbench.api.loss_output import checked, fault
from milbench.api.plan import Cell
from milbench.api.registry import tasks
from milbench.api.targets import make_target
from milbench.api.task import Network, Task
from milbench.engine.cell_parts import check_max_labels, loss_for, network_for
from milbench.errors import UsageError

SUM_TOLERANCE = 1e-3
"""How far from 1 the probabilities of a position may add up in single precision."""


def complaint(cell: Cell, data_dir: Path | None) -> str:
    """Run the loss of a cell once on the first batch of its task, with an untrained network, and check what it gives.

    Whatever else than a UsageError the code of the loss or the task raises is left to the cells, even SystemExit and
    KeyboardInterrupt: they will fail, with a traceback in the store, and the others will be computed. The user's own
    Ctrl-C ends the check.

    Returns:
        Why the loss does not suit the task, or does not return what a loss must, in one line; "" if it does.
    """
    with interrupts.watched() as interrupted:
        try:
            _check_cell(cell, data_dir)
        except UsageError as error:
            return f"{cell.loss} on the first batch of {cell.task}: {error}"
        except BaseException:  # noqa: BLE001 see the docstring
            if interrupted():
                raise KeyboardInterrupt from None
    return ""


def _check_cell(cell: Cell, data_dir: Path | None) -> None:
    name = cell.task_file or cell.task
    task, bags = _first_batch(name, cell.task_revision, cell.data, json.dumps(cell.task_params), cell.seed, data_dir)
    check_max_labels(task, bags)
    loss = loss_for(cell, task)
    network = network_for(loss, task, cell.seed)
    with torch.no_grad():
        logits = network(bags.instances).float()
    _check_training(loss, network, bags, logits)
    with torch.no_grad():
        _check_scores(loss, bags, logits)


def _check_training(loss: Loss, network: Network, bags: Bags, logits: Tensor) -> None:
    """Raise UsageError where the values of a loss or their gradient are not what training needs."""
    method = "bag_loss" if loss.target_kind == "labels" else "target_loss"
    target = make_target(loss.target_kind, bags, logits, network)
    logits = logits.clone().requires_grad_()
    values = checked(loss, method, loss(logits, bags.labels, bags.mask, target), (len(bags),))
    _check_finite(loss, method, "finite values", values)
    (gradient,) = torch.autograd.grad(values.sum(), logits, allow_unused=True)
    if gradient is None:
        raise fault(loss, method, "values with a gradient", "values that do not depend on the logits")
    _check_finite(loss, method, "values with a finite gradient", gradient)
    # Where all label sets are empty, or all have every class, there may be nothing to learn from the batch.
    if bags.labels.any() and not bags.labels.all() and not gradient.any():
        raise fault(loss, method, "values with a gradient", f"one that is 0 for all of the {len(bags)} bags")


def _check_finite(loss: Loss, method: str, expected: str, values: Tensor) -> None:
    bad = ~torch.isfinite(values)
    if bad.any():
        bags = int(bad.flatten(1).any(dim=1).sum()) if values.ndim > 1 else int(bad.sum())
        raise fault(loss, method, expected, f"{values[bad][0].item()} for {bags} of {len(values)} bags")


def _check_scores(loss: Loss, bags: Bags, logits: Tensor) -> None:
    """Raise UsageError where the scores of a loss, or its probabilities, are not what evaluation needs."""
    scores = {"scores": loss.class_scores, "presence": loss.presence_scores}
    for method, public in scores.items():
        found = checked(loss, public.__name__, public(logits, bags.mask), tuple(bags.labels.shape))
        if found.isnan().any():
            raise fault(loss, method, "scores that can be compared", "nan")
    evidence = loss.instance_evidence(logits, bags.mask)
    if evidence.isnan().any():
        raise fault(loss, "evidence", "values that can be compared", "nan")
    probs = checked(loss, "instance_probs", loss.instance_probs(logits, bags.mask), tuple(logits.shape))
    if not (probs >= 0).all() or not (probs <= 1 + SUM_TOLERANCE).all():
        raise fault(loss, "posterior", "probabilities", f"values from {probs.min():.3g} to {probs.max():.3g}")
    sums = probs.sum(dim=1)
    if (sums - 1).abs().max() > SUM_TOLERANCE:
        span = f"{sums.min():.3g} to {sums.max():.3g}"
        raise fault(loss, "posterior", "probabilities that sum to 1 over the channels", f"sums from {span}")


@lru_cache(maxsize=1)
def _first_batch(
    name: str,
    revision: str,  # noqa: ARG001 a task or data that were changed are not those of the last call
    data: str,  # noqa: ARG001
    params: str,
    seed: int,
    data_dir: Path | None,
) -> tuple[Task, Bags]:
    """Return a task and its first batch, of the last call where the arguments are the same."""
    task: Task = tasks().create(name, json.loads(params))
    task.seed = seed
    task.prepare(data_dir, torch.device("cpu"))
    return task, next(iter(task.train_batches(0, generator("bags", task.name, seed, 0))))


def one_a_pair(cells: Iterable[Cell]) -> list[Cell]:
    """Return one cell for each pair of a loss and a task, with their parameters."""
    return list({f"{c.loss} {c.loss_params} {c.task} {c.task_params}": c for c in cells}.values())
