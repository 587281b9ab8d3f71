"""How a spec becomes a plan.

Every combination of its losses, tasks, networks, recipes and seeds is a cell.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from milbench.contracts.parameters import neutral_values, with_neutral
from milbench.contracts.recipe import Recipe
from milbench.contracts.registry import tasks
from milbench.contracts.resolver import resolve
from milbench.errors import UsageError
from milbench.experiment.cell import Cell
from milbench.experiment.choices import LossChoice, NetworkChoice, Params, TaskChoice
from milbench.experiment.expand_spec import (
    MOST_CELLS,
    chosen_losses,
    chosen_networks,
    chosen_recipes,
    chosen_tasks,
    marks_of_tasks,
    new_loss,
    new_task,
)
from milbench.experiment.launch_settings import Execution, Launch
from milbench.experiment.plan import Plan, TaskInfo
from milbench.experiment.plan_checks import (
    check_contrasts,
    check_metrics,
    check_network_sections,
    check_published,
    check_supervision,
)
from milbench.experiment.questions import Mark
from milbench.experiment.spec import Spec, parse_seeds

if TYPE_CHECKING:
    from milbench.contracts.task import Task

WITHOUT_FLAGS = Launch(Execution())
"""A launch without any flag."""


@dataclass(frozen=True)
class _CellsOfTask:
    """The cells of a plan on one task: every variant is trained with every seed."""

    choice: TaskChoice
    task: Task
    """The task that was chosen, to be asked for its remarks."""
    seeds: list[int]
    info: TaskInfo
    variants: list[_Variant]

    def cells(self) -> Iterator[Cell]:
        """Yield the cells."""
        for variant in self.variants:
            for seed in self.seeds:
                yield Cell(variant.loss, self.choice, variant.network, variant.recipe, seed)


@dataclass(frozen=True)
class _Variant:
    """What is compared on a task: a loss with a network, trained by a recipe."""

    loss: LossChoice
    network: NetworkChoice
    recipe: Recipe


def make_plan(
    spec: Spec, launch: Launch = WITHOUT_FLAGS, device: str = "cpu", precision: str = ""
) -> Plan:
    """Expand a spec into its cells, with every name, parameter and data set checked.

    `precision` is what an earlier launch took for the precision `auto`. Where it is "", the device
    decides. Raises UsageError where a name, a parameter or a data set is wrong, or where losses of
    different supervision are compared without `spec.supervision`.
    """
    losses = chosen_losses(spec)
    choices = chosen_tasks(spec)
    # Python classes, each once: a task may be chosen several times with other parameters.
    task_classes = list(dict.fromkeys(tasks().get(choice.name) for choice in choices))
    # What can be checked without data comes first: to check data may take minutes.
    check_supervision(losses, task_classes, spec.supervision)
    check_metrics(spec, task_classes, flags_changed_spec=launch.is_changed)
    check_published(spec.published)
    data_dir = launch.execution.data_dir
    marks = marks_of_tasks(spec)
    parts = []
    for choice in choices:
        task_marks = marks.get(choice.key, [])
        parts.append(_cells_of_task(spec, choice, losses, task_classes, task_marks, data_dir))
    _check_number_of_cells(parts)
    notes = list(spec.notes)
    for part in parts:
        notes += part.task.remarks(data_dir, part.seeds)
    if not precision and any(_is_auto(part) for part in parts):
        precision, note = _auto_precision(device, on_cluster=bool(launch.execution.cluster))
        notes.append(note)
    planned = _different_cells([_with_precision(part, precision) for part in parts])
    check_network_sections(spec.network, planned, task_classes)
    check_contrasts(spec, planned, flags_changed_spec=launch.is_changed)
    return Plan(
        spec=spec,
        cells=planned,
        tasks={part.choice.key: part.info for part in parts},
        notes=list(dict.fromkeys(notes)),
        origin=launch.origin,
        is_changed=launch.is_changed,
        precision=precision,
        neutral=_neutral_values(planned),
    )


def _check_number_of_cells(parts: Sequence[_CellsOfTask]) -> None:
    """Raise UsageError where the cells of all tasks together are too many."""
    count = sum(len(part.variants) * len(part.seeds) for part in parts)
    if count > MOST_CELLS:
        raise UsageError(
            f"{count:,} cells are too many for one comparison, expected at most {MOST_CELLS:,}"
        )


def _different_cells(parts: Iterable[_CellsOfTask]) -> list[Cell]:
    """Return the cells of all tasks, each once.

    Two choices may give the same cell, such as one network chosen by name and as the default.
    """
    cells: dict[str, Cell] = {}
    for part in parts:
        for cell in part.cells():
            cells[cell.id] = cell
    return list(cells.values())


def _cells_of_task(
    spec: Spec,
    choice: TaskChoice,
    losses: Sequence[LossChoice],
    task_classes: Sequence[type[Task]],
    marks: list[Mark],
    data_dir: Path | None,
) -> _CellsOfTask:
    """Return the cells on one task.

    `task_classes` are the Python classes of all tasks of the plan, and `marks` the pass marks for
    this task.
    """
    task = new_task(choice)
    # The choice gets the digest of its data, so that cells on other data are other cells.
    choice = replace(choice, data=task.check_data(data_dir))
    seeds = _seeds(spec, task, data_dir)
    variants = []
    for loss in losses:
        networks = chosen_networks(spec, task, loss, task_classes, data_dir)
        variants += _variants(loss, networks, chosen_recipes(spec, task))
    info = _info(spec, task, choice, marks, data_dir)
    return _CellsOfTask(choice, task, seeds, info, variants)


def _variants(
    loss: LossChoice, networks: Iterable[NetworkChoice], recipes: Sequence[Recipe]
) -> list[_Variant]:
    """Return a loss with every network and recipe."""
    variants = []
    for network in networks:
        variants += [_Variant(loss, network, recipe) for recipe in recipes]
    return variants


def _info(
    spec: Spec, task: Task, choice: TaskChoice, marks: list[Mark], data_dir: Path | None
) -> TaskInfo:
    """Return what a report needs to know of a task."""
    primary = spec.compare_by[0] if spec.compare_by else task.primary
    # `Task.chance` is the value of the task's own primary metric for a network that knows nothing.
    chance = task.chance if primary == task.primary else None
    in_spec = [value for value in spec.published if resolve(tasks(), value.task) == task.name]
    in_spec_or_task = [*task.published, *in_spec]
    # A published value may name a parameter that the choice leaves out: one that was added to the
    # task later, at the value that changes nothing.
    params: Params = with_neutral(type(task), choice.params)
    published = [value for value in in_spec_or_task if value.belongs_to(params, choice.data)]
    return TaskInfo(
        primary=primary,
        chance=chance,
        # The name of the parameter that sets the amount of training bags.
        amount=task.amount_parameter,
        published=published,
        folds=task.folds(data_dir),
        # The number of test bags for each training bag, where seeds split the same bags.
        overlap=task.overlap(data_dir),
        marks=marks,
        is_tested=task.is_tested,
    )


def _seeds(spec: Spec, task: Task, data_dir: Path | None) -> list[int]:
    """Return the seeds of a task: those that the spec names, or else one for each fold.

    In a cross-validation with K folds a seed is the number of a fold: seeds 0 to K - 1 are the
    folds of the first repetition, seeds K to 2K - 1 those of the second one, and so on.
    """
    folds = task.folds(data_dir)
    if folds and spec.seeds is None:
        return list(range(folds.seeds))
    seeds = parse_seeds(spec.seeds)
    # Where the number of repetitions is not fixed (`folds.repeats` is None), every seed is the
    # number of a fold. Seeds are ascending, so that the last one is the largest.
    if folds and folds.repeats and seeds[-1] >= folds.seeds:
        raise UsageError(
            f"seed {seeds[-1]}: the {folds.repeats} x {folds.count} folds of {task.name} "
            f"are the seeds 0-{folds.seeds - 1}"
        )
    return seeds


def _is_auto(part: _CellsOfTask) -> bool:
    """Return whether a recipe leaves its precision to the machine."""
    return any(variant.recipe.precision == "auto" for variant in part.variants)


def _with_precision(part: _CellsOfTask, precision: str) -> _CellsOfTask:
    """Return the cells on a task with a precision in place of `auto`."""
    variants = []
    for variant in part.variants:
        recipe = variant.recipe
        if recipe.precision == "auto":
            recipe = recipe.model_copy(update={"precision": precision})
        variants.append(replace(variant, recipe=recipe))
    return replace(part, variants=variants)


def _auto_precision(device: str, *, on_cluster: bool) -> tuple[str, str]:
    """Return the precision that `auto` is on a device, and a note for the report."""
    import torch

    from milbench._utils.devices import auto_precision, device_name

    precision, reason = auto_precision(torch.device(device))
    note = f"Precision auto is {precision} here: {device_name(device)} {reason}."
    if on_cluster:
        note += (
            " The workers of the cluster use it too, whatever their devices; recipe.precision sets "
            "another one."
        )
    return precision, note


def _neutral_values(cells: Iterable[Cell]) -> dict[str, dict[str, Any]]:
    """Return the neutral values of parameters that cells may lack, in the form of `Plan.neutral`.

    A parameter that a class got after cells of it had been stored has a neutral value: the one that
    changes nothing. See `milbench.contracts.parameters`.
    """
    from milbench.networks.known_networks import network_maker

    makers: dict[str, Any] = {"recipe": Recipe}
    # Neutral values depend on names alone: one cell of each combination of names is enough.
    one_of_each = {(cell.task.name, cell.loss.name, cell.network.name): cell for cell in cells}
    for cell in one_of_each.values():
        task = tasks().get(cell.task.name)
        loss = new_loss(cell.loss)
        network = network_maker(task, cell.network.name, loss.head)
        makers[f"task {cell.task.name}"] = task
        makers[f"loss {cell.loss.name}"] = type(loss)
        makers[f"network {cell.network.name} of {cell.task.name}"] = network
    neutral = {owner: neutral_values(maker) for owner, maker in makers.items()}
    return {owner: values for owner, values in neutral.items() if values}
