"""Smoke test: run every loss on the first batch of every task before anything is planned into the store."""

from __future__ import annotations

from pathlib import Path

import torch

from milbench._utils.seeding import generator
from milbench.api.bags import Bags
from milbench.api.plan import Cell, Plan
from milbench.api.registry import losses, tasks
from milbench.api.targets import make_target
from milbench.api.task import Task
from milbench.engine.trainer import network_for
from milbench.errors import UsageError


def check(plan: Plan, data_dir: Path | None) -> None:
    """Run every loss of a plan once on the first batch of every task, with untrained networks.

    Any failure but a UsageError is left to the cells: those of the loss or task at fault will fail, with a traceback
    in the store, and the others will be computed.

    Raises:
        UsageError: a loss does not accept the bags of a task.
    """
    batches: dict[str, tuple[Task, Bags]] = {}
    for cell in _one_a_pair(plan):
        key = f"{cell.task} {cell.task_params}"
        try:
            if key not in batches:
                batches[key] = _first_batch(cell, data_dir)
            task, bags = batches[key]
            loss = losses().create(cell.loss_file or cell.loss, cell.loss_params)
            network = network_for(loss, task, cell.seed)
            with torch.no_grad():
                logits = network(bags.instances).float()
            loss(logits, bags.labels, bags.mask, make_target(loss.target_kind, bags, logits, network))
        except UsageError as error:
            raise UsageError(f"{cell.loss} on the first batch of {cell.task}: {error}") from None
        except Exception:  # noqa: BLE001, S112 see the docstring
            continue


def _first_batch(cell: Cell, data_dir: Path | None) -> tuple[Task, Bags]:
    task: Task = tasks().create(cell.task_file or cell.task, cell.task_params)
    task.prepare(data_dir, torch.device("cpu"))
    return task, next(iter(task.train_batches(0, generator("bags", task.name, cell.seed, 0))))


def _one_a_pair(plan: Plan) -> list[Cell]:
    return list({f"{c.loss} {c.loss_params} {c.task} {c.task_params}": c for c in plan.cells}.values())
