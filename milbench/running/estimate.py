"""What a dry run prints below the plan.

These are the published figures, the recipes with their steps, and the estimated time.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from statistics import mean
from typing import Any, NamedTuple

from milbench._utils.process import process_as_before
from milbench._utils.words import counted
from milbench.contracts.metric_info import describe
from milbench.contracts.published import Published
from milbench.errors import UsageError, message
from milbench.experiment.cell import Cell
from milbench.experiment.display_names import Label
from milbench.experiment.launch_settings import Execution
from milbench.experiment.plan import Plan
from milbench.running.display import duration, value_text
from milbench.store.folders import Root

MEASURED_STEPS = 3
"""How many training steps are timed for each variant."""
BUDGET = 20.0
"""Seconds after which no further variant is timed."""


def published_lines(plan: Plan) -> list[str]:
    """Return a line for every published figure that the report will show beside the results."""
    # Line -> the tasks or data that it is about, each once and in the order of the plan: a dict
    # serves as an ordered set.
    origins_by_line: dict[str, dict[str, None]] = {}
    for cell in plan.cells:
        label = plan.labels[cell.id]
        for figure in plan.info(cell).published:
            # The figure of a method that milbench lacks is shown beside all losses, and the figure
            # of a loss beside the cells of that loss.
            is_of_loss = figure.loss in (cell.loss.name, label.loss)
            if not figure.method and not is_of_loss:
                continue
            line = _published_line(figure, plan.params(cell))
            origins_by_line.setdefault(line, {})[_origin(figure, cell, label)] = None
    return [
        f"published on {', '.join(origins)}: {line}" for line, origins in origins_by_line.items()
    ]


def _origin(figure: Published, cell: Cell, label: Label) -> str:
    """Return the task on which a figure was measured, or its data if the cell has other data."""
    if figure.loss and not cell.task.data.startswith(figure.data):
        return f"other data ({figure.data.strip(' ,')})"
    return label.task


def _published_line(figure: Published, params: Mapping[str, Any]) -> str:
    """Return the text of a published figure.

    It says "with other settings" if the parameters of the cell differ from the protocol of the
    published figure.
    """
    value = f"{describe(figure.metric).label} {value_text(figure.metric, figure.mean)}"
    if figure.deviation is not None:
        value += f" ± {value_text(figure.metric, figure.deviation)}"
    if figure.loss and figure.deviations(params):
        value += ", with other settings"
    return f"{figure.method or figure.loss}, {value} ({figure.source})"


def outlook(
    plan: Plan,
    to_run: Sequence[Cell],
    root: Root,
    cells_at_once: int,
    threads: int,
    execution: Execution,
) -> list[str]:
    """Describe the recipes of a plan, with their steps, and estimate how long its cells take.

    A cell is estimated to take as long as finished cells of its variant (task, loss, network and
    recipe). If there are none, the time is extrapolated from a few training steps, and from a batch
    for the evaluations. Raises UsageError where a launch would do so too.
    """
    finished = _seconds_of_finished_cells(plan, root)
    measured = _measure_variants(plan, to_run, finished.keys(), threads, execution)
    lines = _recipe_lines(plan, measured)
    lines += dict.fromkeys(measured.obstacles.values())
    seconds = finished | measured.seconds
    if not to_run or not seconds:
        return lines
    # Used for variants that could not be measured.
    typical = mean(seconds.values())
    seconds_of_all = sum(seconds.get(plan.labels[cell.id], typical) for cell in to_run)
    total = seconds_of_all / max(cells_at_once, 1)
    basis = f"extrapolated from {MEASURED_STEPS} steps per loss on the CPU"
    if finished.keys() >= {plan.labels[cell.id] for cell in to_run}:
        basis = "as long as finished cells of these kinds took"
    at_a_time = "one cell" if cells_at_once == 1 else f"{cells_at_once} cells"
    lines.append(f"about {duration(total)}, {at_a_time} at a time; {basis}")
    return lines


def _seconds_of_finished_cells(plan: Plan, root: Root) -> dict[Label, float]:
    """Return how long the finished cells of each variant took, on average."""
    seconds: dict[Label, list[float]] = {}
    for cell in plan.cells:
        folder = root.cell(cell.id)
        if folder.is_done and folder.result().get("seconds"):
            seconds.setdefault(plan.labels[cell.id], []).append(folder.result()["seconds"])
    return {label: mean(values) for label, values in seconds.items()}


class _Recipe(NamedTuple):
    """What a line says about the recipe on a task.

    Cells that differ only in their learning rate share a line.
    """

    task: str
    optimizer: str
    schedule: str
    epochs: int
    steps_per_epoch: int | None
    """The most steps in an epoch; None: all steps that the task has."""
    precision: str


@dataclass
class _Measured:
    """What a dry run has measured of the variants of a plan.

    A variant is named by the label of its cells: task, loss, network and recipe.
    """

    seconds: dict[Label, float] = field(default_factory=dict)
    """Variant -> how long one of its cells takes."""
    details: dict[_Recipe, str] = field(default_factory=dict)
    """Recipe -> the end of its line: how many steps there are, and how long evaluations take."""
    obstacles: dict[Label, str] = field(default_factory=dict)
    """Variant -> why it was not measured."""


def _recipe_lines(plan: Plan, measured: _Measured) -> list[str]:
    """Return a line for each recipe of a plan, with its learning rates."""
    rates: dict[_Recipe, set[float]] = {}
    for cell in plan.cells:
        rates.setdefault(_recipe(plan, cell), set()).add(cell.recipe.lr)
    lines = []
    for recipe, rates_of_recipe in rates.items():
        line = _recipe_line(recipe, rates_of_recipe)
        lines.append(line + measured.details.get(recipe, ""))
    return lines


def _recipe_line(recipe: _Recipe, rates: set[float]) -> str:
    """Return the text of a recipe with the range of its learning rates."""
    ends = sorted({min(rates), max(rates)})
    rate = " to ".join(f"{value:g}" for value in ends)
    length = counted(recipe.epochs, "epoch")
    if recipe.steps_per_epoch:
        length += f" of at most {counted(recipe.steps_per_epoch, 'step')}"
    return (
        f"{recipe.task}: {recipe.optimizer}, lr {rate}, {recipe.schedule}, {length}, "
        f"{recipe.precision}"
    )


def _recipe(plan: Plan, cell: Cell) -> _Recipe:
    """Return what a line says about the task and the recipe of a cell."""
    recipe = cell.recipe
    return _Recipe(
        task=plan.labels[cell.id].task,
        optimizer=recipe.optimizer,
        schedule=recipe.schedule,
        epochs=recipe.epochs,
        steps_per_epoch=recipe.steps_per_epoch,
        precision=recipe.precision,
    )


def _measure_variants(
    plan: Plan,
    to_run: Sequence[Cell],
    known: Collection[Label],
    threads: int,
    execution: Execution,
) -> _Measured:
    """Measure a cell of each variant whose time is not known, until `BUDGET` is spent."""
    measured = _Measured()
    begun = time.monotonic()
    for cell in to_run:
        variant = plan.labels[cell.id]
        is_tried = variant in measured.seconds or variant in measured.obstacles
        if variant in known or is_tried:
            continue
        if time.monotonic() - begun > BUDGET:
            break
        _measure_variant(plan, cell, measured, threads, execution)
    return measured


def _measure_variant(
    plan: Plan, cell: Cell, measured: _Measured, threads: int, execution: Execution
) -> None:
    """Measure a cell and add the result to `measured`, or the reason why that is impossible."""
    from milbench.running.data_needs import missing_for
    from milbench.training.training_setup import task_for

    variant = plan.labels[cell.id]
    missing = missing_for(task_for(cell), execution.data_dir)
    if missing:
        names = ", ".join(dataset.name for dataset in missing)
        measured.obstacles[variant] = f"no estimate of the time for {variant.task} without {names}"
        return
    try:
        with process_as_before():
            steps, training, evaluation = _measure(cell, threads, execution)
    except UsageError as error:
        raise UsageError(f"{cell.loss} on {cell.task}: {error}") from error
    except (Exception, SystemExit) as error:  # noqa: BLE001
        # An error of a plug-in fails only its own cells, so a launch would go on.
        text = f"{plan.label(cell)} fails at once: {type(error).__name__}: {message(error)}"
        measured.obstacles[variant] = " ".join(text.split())
        return
    measured.seconds[variant] = training + evaluation
    detail = f", {counted(steps, 'step')} an epoch"
    if evaluation:
        detail += f", {duration(evaluation)} of evaluations"
    measured.details[_recipe(plan, cell)] = detail


def _measure(cell: Cell, threads: int, execution: Execution) -> tuple[int, float, float]:
    """Return three measurements of a cell.

    They are the steps of an epoch, the seconds of all training steps, and the seconds of all
    evaluations. The last one is 0 if the problem does not say how many bags an evaluation has.
    """
    import torch

    from milbench.running.worker import set_torch_defaults
    from milbench.training.epoch_evaluation import score_function
    from milbench.training.train import train_step
    from milbench.training.training_setup import setup_for_cell

    set_torch_defaults(threads)
    setup = setup_for_cell(
        cell, torch.device("cpu"), execution.data_dir, one_thread_if_small=execution.threads is None
    )
    batches = list(islice(setup.train_batches(0), MEASURED_STEPS))
    seconds_of_steps = [
        _seconds(train_step, setup, bags, step) for step, bags in enumerate(batches)
    ]
    score = score_function(setup)
    seconds_of_bags = [_seconds(score, bags) / len(bags) for bags in batches]
    evaluations = len(setup.recipe.evaluated_epochs())
    evaluated_bags = evaluations * setup.problem.evaluation_size
    # Other work on the machine can only lengthen a step, so the shortest time is the best estimate.
    training = setup.all_steps * min(seconds_of_steps)
    return setup.steps, training, evaluated_bags * min(seconds_of_bags)


def _seconds(compute: Callable[..., object], *arguments: object) -> float:
    """Return how many seconds a call of a function takes."""
    begun = time.perf_counter()
    compute(*arguments)
    return time.perf_counter() - begun
