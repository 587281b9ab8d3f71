"""Comparisons side by side, as one: what has the same name in two of them without being the same is told apart."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pandas as pd

from milbench.experiment.cell import Cell
from milbench.experiment.choices import to_json
from milbench.experiment.plan import Plan
from milbench.store.results import Results

_NAMES = ["task", "loss", "network", "recipe"]
"""The columns of a frame with the names of the parts of a cell."""


def combine(parts: Sequence[Results]) -> Results:
    """Return comparisons as one, without their searches and contrasts; metric, epoch and margin are the first's.

    A cell of several counts once. A task with other parameters or data than that of its name in
    another comparison is named after its own one, "birds (short)", and so is a loss whose
    parameters, network, recipe or code differ.
    """
    plans = [part.plan for part in parts]
    cells: dict[str, Cell] = {}
    origins: dict[str, str] = {}
    # The first comparison comes last, and so has the last word on a cell that several of them have.
    for plan in reversed(plans):
        for cell in plan.compared:
            cells[cell.id] = cell
            origins[cell.id] = plan.name

    frame = _joined_frame(parts, cells)
    names = _distinct_names(frame, cells, origins)
    columns = {name: frame["cell"].map(names[name]) for name in _NAMES}
    frame = frame.assign(**columns)

    joined = Results(_joined_plan(plans, list(cells.values())), frame)
    for part in parts:
        joined.folders.update(part.folders)
        joined.imported_later.update(part.imported_later)
    return joined


def _joined_frame(parts: Sequence[Results], cells: Iterable[str]) -> pd.DataFrame:
    """Return the rows of the cells that are compared, each once."""
    frame = pd.concat([part.frame for part in parts], ignore_index=True)
    is_compared = frame["cell"].isin(list(cells)) & frame["draw"].isna()
    frame = frame[is_compared]
    return frame[~frame.duplicated(["cell", "epoch", "metric"])]


def _distinct_names(
    frame: pd.DataFrame, cells: Mapping[str, Cell], origins: Mapping[str, str]
) -> pd.DataFrame:
    """Return the columns _NAMES by cell, so that only what is the same has the same names.

    Args:
        frame: the rows of all cells.
        cells: cell id -> the cell.
        origins: cell id -> the name of its comparison.
    """
    names = frame.drop_duplicates("cell").set_index("cell")[_NAMES].astype(object)
    origin = pd.Series([origins[cell] for cell in names.index], names.index, dtype=object)
    task = pd.Series([_task_identity(cells[cell]) for cell in names.index], names.index)
    variant = pd.Series([_variant_identity(cells[cell]) for cell in names.index], names.index)

    # What is the same in several comparisons is named after the first of them.
    task_origin = origin.groupby(task).transform("first")
    tasks_of_name = task.groupby(names["task"]).transform("nunique")
    longer_name = names["task"] + " (" + task_origin + ")"
    names["task"] = names["task"].where(tasks_of_name == 1, longer_name)

    variant_origin = origin.groupby(variant).transform("first")
    variants_of_name = variant.groupby([names[name] for name in _NAMES]).transform("nunique")
    # Most comparisons have one recipe, whose name is empty.
    longer_name = (names["recipe"] + ", " + variant_origin).str.removeprefix(", ")
    names["recipe"] = names["recipe"].where(variants_of_name == 1, longer_name)
    return names


def _task_identity(cell: Cell) -> str:
    """Return what is equal for cells on the same task."""
    return to_json([cell.task.key, cell.task.revision, cell.task.data])


def _variant_identity(cell: Cell) -> str:
    """Return what is equal for cells that differ in nothing but their seed."""
    return to_json([cell.variant_key, cell.version])


def _joined_plan(plans: Sequence[Plan], cells: list[Cell]) -> Plan:
    """Return a plan of cells of several plans, which asks of their results what the first of them asks."""
    first = plans[0]
    comparisons = [plan.name for plan in plans]
    # Contrasts and differences name variants, whose names may now be others.
    changes = {
        "name": "+".join(comparisons),
        "title": " beside ".join(comparisons),
        "differences": [],
        "contrasts": [],
    }
    tasks = {}
    neutral = {}
    for plan in reversed(plans):
        tasks.update(plan.tasks)
        neutral.update(plan.neutral)
    rule = (
        "Where comparisons give one name to different things, the name of the comparison stands beside it. "
        f"Metric, epoch and margin are those of {first.name}."
    )
    notes = [rule]
    for plan in plans:
        notes += [f"{plan.name}: {note}" for note in plan.notes]
    return replace(
        first,
        spec=first.spec.model_copy(update=changes),
        cells=cells,
        tasks=tasks,
        neutral=neutral,
        notes=notes,
        search=None,
        command="",
        launched="",
    )
