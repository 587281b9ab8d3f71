"""What a dry run says besides the plan: recipes, steps and the time that the cells will take."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

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
    """Return lines about the recipes of a plan with their steps, and how long its cells take.

    The time, of so many workers with so many threads, is that of cells of the same loss, task and recipe that are done,
    with their evaluations; else it is measured on a few training steps, without them.
    """
    seconds, steps, failures = _known_seconds(plan, root), dict[str, int](), dict[tuple[str, str, str], str]()
    all_known = seconds.keys() >= {plan.labels[cell.id] for cell in to_run}
    begun = time.monotonic()
    for cell in to_run:
        key = plan.labels[cell.id]
        if key not in seconds and key not in failures and time.monotonic() - begun < BUDGET:
            try:
                steps[_recipe(plan, cell)], seconds[key] = _measured(cell, threads, data_dir)
            except Exception as error:  # noqa: BLE001 of a plug-in, which fails its own cells alone
                why = error if isinstance(error, UsageError) else f"{type(error).__name__}: {error}"
                failures[key] = " ".join(f"{plan.label(cell)} fails at once: {why}".split())
    lines = list(dict.fromkeys(_recipe(plan, cell) for cell in plan.cells))
    lines = [f"{line}, {steps[line]} steps an epoch" if line in steps else line for line in lines]
    lines = [*plan.notes, *lines, *dict.fromkeys(failures.values())]
    if to_run and seconds:
        rest = mean(seconds.values())
        total = sum(seconds.get(plan.labels[cell.id], rest) for cell in to_run) / max(workers, 1)
        by_steps = f"for training alone, by {MEASURED_STEPS} steps a loss"
        how = "as long as cells like these took" if all_known else by_steps
        lines.append(f"about {duration(total)} with {workers} cells at a time, {how}")
    return lines


def _recipe(plan: Plan, cell: Cell) -> str:
    recipe, limit = cell.recipe, cell.recipe["steps_per_epoch"]
    length = f"{recipe['epochs']} epochs" + (f" of at most {limit} steps" if limit else "")
    how = f"{recipe['optimizer']}, lr {recipe['lr']:g}, {recipe['schedule']}, {length}, {recipe['precision']}"
    return f"{plan.labels[cell.id][1]}: {how}"


def _known_seconds(plan: Plan, root: Root) -> dict[tuple[str, str, str], float]:
    """Return the mean time of cells that are done, by the labels of loss, task and recipe."""
    found: dict[tuple[str, str, str], list[float]] = {}
    for cell in plan.cells:
        if seconds := root.cell(cell.id).result().get("seconds"):
            found.setdefault(plan.labels[cell.id], []).append(float(seconds))
    return {key: mean(values) for key, values in found.items()}


def _measured(cell: Cell, threads: int, data_dir: Path | None) -> tuple[int, float]:
    """Return the steps of an epoch, and the seconds of all steps of a training by a few of them on the CPU."""
    import torch

    from milbench.engine.train import batch_generator, set_up, train_step
    from milbench.engine.worker import set_torch_defaults

    set_torch_defaults(threads)
    it = set_up(cell, torch.device("cpu"), data_dir)
    batches = iter(it.task.train_batches(0, batch_generator(it, 0)))
    taken = []
    for done in range(min(MEASURED_STEPS, it.steps)):
        begun = time.perf_counter()
        train_step(it, next(batches), done)
        taken.append(time.perf_counter() - begun)
    return it.steps, it.recipe.epochs * it.steps * min(taken)
