"""What a dry run prints below the plan: published figures, recipes, steps and the estimated time."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import islice
from statistics import mean
from typing import Any, NamedTuple

from milbench._utils.process import process_as_before
from milbench._utils.words import counted
from milbench.api.metric_info import describe
from milbench.api.plan import Cell, Label, Plan
from milbench.api.published import Published
from milbench.engine.display import duration, value_text
from milbench.engine.folders import Root
from milbench.engine.spec import Execution
from milbench.errors import UsageError, message

MEASURED_STEPS = 3
BUDGET = 20.0  # seconds after which no further variant is measured


def published(plan: Plan) -> list[str]:
    """Return a line for every published figure that the report will show beside the results."""
    places_by_line: dict[str, dict[str, None]] = {}
    for cell in plan.cells:
        label = plan.labels[cell.id]
        for figure in plan.tasks[cell.task_key].published:
            if figure.method or figure.loss in (cell.loss, label.loss):
                place = label.task
                if figure.loss and not cell.data.startswith(figure.data):
                    place = f"other data ({figure.data.strip(' ,')})"
                places_by_line.setdefault(_published_line(figure, plan.params(cell)), {})[place] = (
                    None
                )
    return [f"published on {', '.join(places)}: {line}" for line, places in places_by_line.items()]


def _published_line(figure: Published, params: Mapping[str, Any]) -> str:
    """Return the text of a published figure, and whether it was measured with other settings than a cell."""
    value = f"{describe(figure.metric).label} {value_text(figure.metric, figure.mean)}"
    if figure.deviation is not None:
        value += f" ± {value_text(figure.metric, figure.deviation)}"
    if figure.loss and figure.deviations(params):
        value += ", with other settings"
    return f"{figure.method or figure.loss}, {value} ({figure.source})"


def outlook(
    plan: Plan, to_run: Sequence[Cell], root: Root, workers: int, threads: int, execution: Execution
) -> list[str]:
    """Describe the recipes of a plan, with their steps, and estimate how long its cells take, `workers` at a time.

    The estimate is the time of finished cells of the same loss, task and recipe; else it is extrapolated from a few
    training steps, and from a batch for the evaluations. Raises UsageError where a launch would, too.
    """
    done = [(cell, folder) for cell in plan.cells if (folder := root.cell(cell.id)).is_done]
    known = [
        (plan.labels[cell.id], s) for cell, folder in done if (s := folder.result().get("seconds"))
    ]
    seconds = {key: mean(s for label, s in known if label == key) for key in dict(known)}
    measured = _measure_variants(plan, to_run, seconds.keys(), threads, execution)
    seconds |= measured.seconds
    rates: dict[tuple[str, str], set[float]] = {}
    for cell in plan.cells:
        rates.setdefault(_recipe(plan, cell), set()).add(cell.recipe["lr"])
    lines = []
    for recipe, lr in rates.items():
        rate = " to ".join(f"{value:g}" for value in sorted({min(lr), max(lr)}))
        lines.append(f"{recipe[0]}, lr {rate}, {recipe[1]}{measured.details.get(recipe, '')}")
    lines += dict.fromkeys(measured.obstacles.values())
    if to_run and seconds:
        rest = mean(seconds.values())
        total = sum(seconds.get(plan.labels[cell.id], rest) for cell in to_run) / max(workers, 1)
        basis = f"extrapolated from {MEASURED_STEPS} steps per loss on the CPU"
        if dict(known).keys() >= {plan.labels[cell.id] for cell in to_run}:
            basis = "as long as finished cells of these kinds took"
        at_a_time = "one cell" if workers == 1 else f"{workers} cells"
        lines.append(f"about {duration(total)}, {at_a_time} at a time; {basis}")
    return lines


class _Measured(NamedTuple):
    """What a dry run has measured of the variants of a plan: loss, task, network and recipe."""

    seconds: dict[Label, float]  # of a cell
    details: dict[
        tuple[str, str], str
    ]  # of a recipe: how many steps, and how long evaluations take
    obstacles: dict[Label, str]  # why a variant was not measured


def _measure_variants(
    plan: Plan,
    to_run: Sequence[Cell],
    known: Collection[Label],
    threads: int,
    execution: Execution,
) -> _Measured:
    """Measure a cell of every variant that is not known yet, as many as the time allows."""
    from milbench.engine.data_needs import missing_for
    from milbench.engine.parts import task_for

    measured = _Measured({}, {}, {})
    begun = time.monotonic()
    for cell in to_run:
        key = plan.labels[cell.id]
        if key in known or key in measured.seconds or key in measured.obstacles:
            continue
        if time.monotonic() - begun > BUDGET:
            break
        if missing := missing_for(task_for(cell), execution.data_dir):
            names = ", ".join(dataset.name for dataset in missing)
            measured.obstacles[key] = f"no estimate of the time for {key.task} without {names}"
            continue
        try:
            with process_as_before():
                steps, training, evaluation = _measure(cell, threads, execution)
        except UsageError as error:
            raise UsageError(f"{cell.loss} on {cell.task}: {error}") from error
        except (Exception, SystemExit) as error:  # noqa: BLE001 of a plug-in, which fails only its own cells
            text = f"{plan.label(cell)} fails at once: {type(error).__name__}: {message(error)}"
            measured.obstacles[key] = " ".join(text.split())
            continue
        measured.seconds[key] = training + evaluation
        with_evaluation = f", {duration(evaluation)} of evaluations" if evaluation else ""
        steps_text = f", {counted(steps, 'step')} an epoch{with_evaluation}"
        measured.details[_recipe(plan, cell)] = steps_text
    return measured


def _recipe(plan: Plan, cell: Cell) -> tuple[str, str]:
    """Describe the task and the recipe of a cell, in two parts between which its learning rate is to stand."""
    recipe, limit = cell.recipe, cell.recipe["steps_per_epoch"]
    length = counted(recipe["epochs"], "epoch") + (
        f" of at most {counted(limit, 'step')}" if limit else ""
    )
    task = plan.labels[cell.id].task
    return (
        f"{task}: {recipe['optimizer']}",
        f"{recipe['schedule']}, {length}, {recipe['precision']}",
    )


def _measure(cell: Cell, threads: int, execution: Execution) -> tuple[int, float, float]:
    """Return the steps of an epoch, and the seconds of all steps and of all evaluations, 0 if unknown."""
    import torch

    from milbench.engine.evaluate import score_function
    from milbench.engine.parts import set_up
    from milbench.engine.train import train_step
    from milbench.engine.worker import set_torch_defaults

    def seconds(compute: Callable[..., object], *arguments: object) -> float:
        begun = time.perf_counter()
        compute(*arguments)
        return time.perf_counter() - begun

    set_torch_defaults(threads)
    setup = set_up(
        cell, torch.device("cpu"), execution.data_dir, threads_by_work=execution.threads is None
    )
    batches = list(islice(setup.train_batches(0), MEASURED_STEPS))
    step_seconds = min(seconds(train_step, setup, bags, step) for step, bags in enumerate(batches))
    bag_seconds = min(seconds(score_function(setup), bags) / len(bags) for bags in batches)
    evaluations = len(setup.recipe.evaluated_epochs())
    evaluated_bags = evaluations * setup.problem.evaluation_size
    return setup.steps, setup.all_steps * step_seconds, evaluated_bags * bag_seconds
