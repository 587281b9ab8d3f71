"""What a dry run says besides the plan: published figures, recipes, steps and the time that the cells will take."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from statistics import mean

from milbench.api.metric_info import describe
from milbench.api.plan import Cell, Label, Plan
from milbench.api.published import Published
from milbench.engine.display import duration, number
from milbench.engine.folders import Root
from milbench.errors import UsageError

MEASURED_STEPS = 3
BUDGET = 20.0  # seconds after which no further variant is measured


def published(plan: Plan) -> list[str]:
    """Return a line for every published figure that the report will show beside the results."""
    found: dict[str, dict[str, None]] = {}
    for cell in plan.cells:
        label = plan.labels[cell.id]
        for one in plan.tasks[cell.task_key].published:
            if one.method or one.loss in (cell.loss, label.loss):
                found.setdefault(_figure(one), {})[label.task] = None
    return [f"published on {', '.join(tasks)}: {figure}" for figure, tasks in found.items()]


def _figure(one: Published) -> str:
    spread = "" if one.deviation is None else f" ± {number(one.metric, one.deviation)}"
    value = f"{describe(one.metric).label} {number(one.metric, one.mean)}{spread}"
    return f"{one.method or one.loss}, {value} ({one.source})"


def outlook(
    plan: Plan, to_run: Sequence[Cell], root: Root, workers: int, threads: int, data_dir: Path | None
) -> list[str]:
    """Return lines about the recipes of a plan with their steps, and how long its cells take, so many at a time.

    The time is that of cells of the same loss, task and recipe that are done, with their evaluations; else it is
    measured on a few training steps, and on a batch for the evaluations where the task knows how many bags they have.

    Raises:
        UsageError: data are missing, or a loss does not suit a task: a launch would be refused as well.
    """
    known = _known_seconds(plan, root)
    seconds, details, failures = dict(known), dict[tuple[str, str], str](), dict[Label, str]()
    begun = time.monotonic()
    for cell in to_run:
        key = plan.labels[cell.id]
        if key in seconds or key in failures or time.monotonic() - begun > BUDGET:
            continue
        try:
            steps, training, evaluation = _measured(cell, threads, data_dir)
        except UsageError as error:
            raise UsageError(f"{cell.loss} on {cell.task}: {error}") from error
        except Exception as error:  # noqa: BLE001 of a plug-in, which fails its own cells alone
            failures[key] = " ".join(f"{plan.label(cell)} fails at once: {type(error).__name__}: {error}".split())
            continue
        seconds[key] = training + evaluation
        lasts = f", {duration(evaluation)} of evaluations" if evaluation else ""
        details[_recipe(plan, cell)] = f", {steps} steps an epoch{lasts}"
    rates: dict[tuple[str, str], set[float]] = {}
    for cell in plan.cells:
        rates.setdefault(_recipe(plan, cell), set()).add(cell.recipe["lr"])
    lines = []
    for recipe, lr in rates.items():
        low, high = min(lr), max(lr)
        shown = f"{low:g}" if low == high else f"{low:g} to {high:g}"
        lines.append(f"{recipe[0]}, lr {shown}, {recipe[1]}{details.get(recipe, '')}")
    lines += dict.fromkeys(failures.values())
    if to_run and seconds:
        rest = mean(seconds.values())
        total = sum(seconds.get(plan.labels[cell.id], rest) for cell in to_run) / max(workers, 1)
        how = f"by {MEASURED_STEPS} steps a loss, with evaluations where they are named"
        if known.keys() >= {plan.labels[cell.id] for cell in to_run}:
            how = "as long as cells like these took"
        lines.append(f"about {duration(total)} with {workers} cells at a time, {how}")
    return lines


def _recipe(plan: Plan, cell: Cell) -> tuple[str, str]:
    """Return the task and the recipe of a cell, before and behind its rate, of which a search has many."""
    recipe, limit = cell.recipe, cell.recipe["steps_per_epoch"]
    length = f"{recipe['epochs']} epochs" + (f" of at most {limit} steps" if limit else "")
    task = plan.labels[cell.id].task
    return f"{task}: {recipe['optimizer']}", f"{recipe['schedule']}, {length}, {recipe['precision']}"


def _known_seconds(plan: Plan, root: Root) -> dict[Label, float]:
    """Return the mean time of cells that are done, by their labels."""
    found: dict[Label, list[float]] = {}
    for cell in plan.cells:
        if seconds := root.cell(cell.id).result().get("seconds"):
            found.setdefault(plan.labels[cell.id], []).append(float(seconds))
    return {key: mean(values) for key, values in found.items()}


def _measured(cell: Cell, threads: int, data_dir: Path | None) -> tuple[int, float, float]:
    """Return the steps of an epoch, and the seconds of all steps and of all evaluations, 0 if unknown."""
    import torch

    from milbench.engine.evaluate import score_function
    from milbench.engine.parts import set_up
    from milbench.engine.train import train_step
    from milbench.engine.worker import set_torch_defaults

    set_torch_defaults(threads)
    setup = set_up(cell, torch.device("cpu"), data_dir)
    batches = list(islice(setup.train_batches(0), MEASURED_STEPS))
    a_step = min(_seconds(train_step, setup, bags, step) for step, bags in enumerate(batches))
    a_bag = min(_seconds(score_function(setup), bags) / len(bags) for bags in batches)
    evaluated = len(setup.recipe.evaluated_epochs()) * setup.task.evaluation_size(setup.recipe.evaluation_bags)
    return setup.steps, setup.all_steps * a_step, evaluated * a_bag


def _seconds(compute: Callable[..., object], *arguments: object) -> float:
    begun = time.perf_counter()
    compute(*arguments)
    return time.perf_counter() - begun
