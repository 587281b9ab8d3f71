"""Join several comparisons into one.

Two comparisons may use one name for different tasks or losses. These get different names.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pandas as pd

from milbench.experiment.cell import Cell
from milbench.experiment.choices import to_json
from milbench.experiment.plan import Plan
from milbench.store.results import Results

_NAMES = ["task", "loss", "network", "recipe"]
"""The columns of a frame that name the task, loss, network and recipe of a cell."""


def combine(parts: Sequence[Results]) -> Results:
    """Return several comparisons as one, without their searches and contrasts.

    Metric, epoch and margin are those of the first comparison. A cell that several comparisons have
    counts once. If two comparisons have different tasks of one name, each of these tasks gets the
    name of its comparison as well, such as "birds (short)". Tasks are different if their
    parameters, data or code are. Losses are named likewise if their parameters, networks, recipes
    or code differ.
    """
    plans = [part.plan for part in parts]
    cells: dict[str, Cell] = {}
    origins: dict[str, str] = {}
    # The first comparison comes last here, so that its entries replace those of other comparisons.
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
    """Return the rows of the compared cells, without repetitions."""
    frame = pd.concat([part.frame for part in parts], ignore_index=True)
    is_compared = frame["cell"].isin(list(cells)) & frame["draw"].isna()
    frame = frame[is_compared]
    return frame[~frame.duplicated(["cell", "epoch", "metric"])]


def _distinct_names(
    frame: pd.DataFrame, cells: Mapping[str, Cell], origins: Mapping[str, str]
) -> pd.DataFrame:
    """Return the columns `_NAMES` by cell, changed so that different things have different names.

    Args:
        frame: the rows of all cells.
        cells: cell id -> the cell.
        origins: cell id -> the name of its comparison.
    """
    names = frame.drop_duplicates("cell").set_index("cell")[_NAMES].astype(object)
    origin = pd.Series([origins[cell] for cell in names.index], names.index, dtype=object)
    task = pd.Series([_task_identity(cells[cell]) for cell in names.index], names.index)
    variant = pd.Series([_variant_identity(cells[cell]) for cell in names.index], names.index)

    # A task or loss that several comparisons have is named after the first of them.
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
    """Return a text that is equal for two cells exactly if their tasks are the same."""
    return to_json([cell.task.key, cell.task.revision, cell.task.data])


def _variant_identity(cell: Cell) -> str:
    """Return a text that is equal for cells that have the same variant, recipe and code."""
    return to_json([cell.variant_key, cell.version])


def _joined_plan(plans: Sequence[Plan], cells: list[Cell]) -> Plan:
    """Return a plan of the cells of several plans; all other settings are those of the first."""
    first = plans[0]
    comparisons = [plan.name for plan in plans]
    # Contrasts and differences name variants, and these names may have changed.
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
        "Where comparisons give one name to different things, the name of the comparison stands "
        f"beside it. Metric, epoch and margin are those of {first.name}."
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
