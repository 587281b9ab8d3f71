"""What a dry run says besides the plan: recipes, steps and the time that the cells will take."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from milbench.api.plan import Cell, Plan
from milbench.engine.display import duration
from milbench.engine.folders import Root
from milbench.errors import UsageError

MEASURED_STEPS = 3
BUDGET = 20.0
"""Seconds after which no further variant is measured."""


def outlook(
    plan: Plan, to_run: Sequence[Cell], root: Root, workers: int, threads: int, data_dir: Path | None
) -> list[str]:
    """Return lines about the recipes of a plan, and how long its cells take.

    The time is that of cells of the same loss, task and recipe that are done, with their evaluations; else it is
    measured on a few training steps, without them.

    Args:
        plan: of the comparison.
        to_run: the cells to compute.
        root: of the store.
        workers: how many cells are computed at a time.
        threads: of each cell.
        data_dir: the folder of the data; None: the default one.
    """
    lines = dict.fromkeys(f"{plan.labels[cell.id][1]}: {_recipe(cell.recipe)}" for cell in plan.cells)
    if not to_run:
        return [*plan.notes, *lines]
    known = _known_seconds(plan, root)
    begun, measured = time.monotonic(), dict(known)
    failures: dict[tuple[str, str, str], str] = {}
    for cell in to_run:
        key = plan.labels[cell.id]
        if key not in measured and key not in failures and time.monotonic() - begun < BUDGET:
            try:
                measured[key] = _measured_seconds(cell, threads, data_dir)
            except UsageError:
                raise
            except Exception as error:  # noqa: BLE001 of a plug-in, which fails its own cells alone
                failures[key] = f"{plan.label(cell)} fails at once: {type(error).__name__}: {error}"
    lines |= dict.fromkeys(" ".join(line.split()) for line in failures.values())
    if not measured:
        return [*plan.notes, *lines]
    rest = mean(measured.values())
    total = sum(measured.get(plan.labels[cell.id], rest) for cell in to_run) / max(workers, 1)
    how = (
        "by cells that are done"
        if known.keys() >= {plan.labels[cell.id] for cell in to_run}
        else (f"by {MEASURED_STEPS} training steps a loss, evaluations not counted")
    )
    return [*plan.notes, *lines, f"about {duration(total)} with {workers} cells at a time, {how}"]


def _recipe(recipe: dict[str, Any]) -> str:
    steps = recipe["steps_per_epoch"]
    length = f"{recipe['epochs']} epochs" + (f" of at most {steps} steps" if steps else "")
    return f"{recipe['optimizer']}, lr {recipe['lr']:g}, {recipe['schedule']}, {length}, {recipe['precision']}"


def _known_seconds(plan: Plan, root: Root) -> dict[tuple[str, str, str], float]:
    """Return the mean time of cells that are done, by the labels of loss, task and recipe."""
    found: dict[tuple[str, str, str], list[float]] = {}
    for cell in plan.cells:
        if seconds := root.cell(cell.id).result().get("seconds"):
            found.setdefault(plan.labels[cell.id], []).append(float(seconds))
    return {key: mean(values) for key, values in found.items()}


def _measured_seconds(cell: Cell, threads: int, data_dir: Path | None) -> float:
    """Return how long the training of a cell takes by a few of its steps on the CPU."""
    import torch

    from milbench._utils.seeding import generator
    from milbench.api.recipe import Recipe
    from milbench.api.targets import make_target
    from milbench.engine.parts import network_logits
    from milbench.engine.train import build
    from milbench.engine.worker import set_torch_defaults

    set_torch_defaults(threads)
    recipe, device = Recipe(**cell.recipe), torch.device("cpu")
    task, loss, network = build(cell, recipe, device, data_dir)
    steps = min(recipe.steps_per_epoch or task.steps_per_epoch, task.steps_per_epoch)
    batches = iter(task.train_batches(0, generator("bags", task.name, cell.seed, 0)))
    taken = []
    for _ in range(min(MEASURED_STEPS, steps)):
        begun = time.perf_counter()
        bags = next(batches)
        logits = network_logits(network, bags, device, half=recipe.precision == "bfloat16")
        target = make_target(loss.target_kind, bags, logits, network)
        loss(logits, bags.labels, bags.mask, target).mean().backward()
        taken.append(time.perf_counter() - begun)
    return recipe.epochs * steps * min(taken)
