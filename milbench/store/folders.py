"""The store: a folder for each cell and a file for each comparison.

Users may copy, move, merge or delete them.

    runs/NAME.json       the plan of a comparison
    runs/cells/ID/       a cell, see `milbench.store.cell_folder`
    runs/mlflow.db       the database of MLflow, which can be made again from the folders

Nothing here imports torch or MLflow.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from milbench._utils.files import (
    MOST_TEXT,
    LinkToNothing,
    Unreadable,
    WrongFile,
    expanded,
    kind_of,
    read_file,
    write_durably,
)
from milbench._utils.words import counted
from milbench.errors import UsageError, unknown
from milbench.experiment.cell import Cell
from milbench.experiment.plan import Plan
from milbench.experiment.plan_file import plan_from_json, plan_to_json
from milbench.store.cell_folder import CellFolder, Row, State

if TYPE_CHECKING:
    from milbench.store.results import Results


MOST_NAMED = 5
"""The most cells that a message names."""


class Root:
    """The folder that `--root` names, with the store in `runs`. Only `make` creates folders."""

    def __init__(self, path: Path) -> None:
        self.path = expanded(path, "--root").absolute()
        self.runs = self.path / "runs"
        self.reports = self.path / "reports"
        self.cells = self.runs / "cells"
        self.database = self.runs / "mlflow.db"
        self.artifacts = self.runs / "artifacts"

    def make(self) -> Root:
        """Create the folders and return self. Raises UsageError if they cannot be written."""
        try:
            self.cells.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"cannot write under --root {self.path}: {error.strerror or error}"
            ) from None
        return self

    def cell(self, cell_id: str) -> CellFolder:
        """Return the folder of a cell, which need not exist."""
        return CellFolder(self.cells / cell_id)

    def names(self) -> list[str]:
        """Return the names of the comparisons, the one launched last first."""
        times = {}
        for path in self._paths_of_plans():
            if not _why_no_plan(path):
                times[path.stem] = path.stat().st_mtime_ns
        return sorted(times, key=lambda name: times[name], reverse=True)

    def not_plans(self) -> list[str]:
        """Return a line for everything that is named like a plan and cannot be one.

        An example is a link to nothing.
        """
        problems = [_why_no_plan(path) for path in self._paths_of_plans()]
        return [problem for problem in problems if problem]

    def check_place(self, name: str) -> None:
        """Raise UsageError where the plan of a comparison cannot be written.

        That is so where the root is a file, or a folder, for example, has the name of the plan.
        """
        if self.path.exists() and not self.path.is_dir():
            raise UsageError(f"cannot write under --root {self.path}: it is not a folder")
        problem = _why_no_plan(self.runs / f"{name}.json")
        if problem:
            raise UsageError(problem)

    def _paths_of_plans(self) -> list[Path]:
        """Return the paths of everything that is named like a plan.

        Raises UsageError where the folder cannot be read.
        """
        paths = []
        for name in sorted(_names_in(self.runs)):
            # A file that is being written has a name that begins with a dot.
            is_being_written = name.startswith(".")
            if name.endswith(".json") and not is_being_written:
                paths.append(self.runs / name)
        return paths

    def plan(self, name: str | None = None) -> Plan:
        """Return the plan of a comparison, by default of the one launched last.

        Raises UsageError if there is no such plan, or it cannot be read.
        """
        names = self.names()
        if name is not None:
            self.check_place(name)
        if not names:
            raise self._no_plan_error()
        if name is not None and name not in names:
            raise unknown("comparison", name, names)
        path = self.runs / f"{name or names[0]}.json"
        try:
            return plan_from_json(read_file(path))
        except Unreadable as error:
            raise UsageError(f"{error}; the plan is left alone") from None
        except WrongFile as error:
            raise UsageError(
                f"{path}: the plan is damaged: {error}; put it back, or delete it"
            ) from None
        except (UsageError, OSError) as error:
            raise UsageError(
                f"{path}: {error}; put it back, or delete it: "
                "then every milbench run of it adds its cells again"
            ) from None

    def _no_plan_error(self) -> UsageError:
        """Return the error about a store without a plan, which says what the store has instead."""
        not_plans = self.not_plans()
        if not_plans:
            return UsageError(not_plans[0])
        cells = len(list(self.folders()))
        if cells:
            return UsageError(
                f"{self.runs} has {counted(cells, 'cell')} and no plan of a comparison; "
                "the same milbench run writes it again and skips finished cells"
            )
        return UsageError(
            f"nothing was run yet in {self.runs}; start with: milbench run demo (or give --root)"
        )

    def save(self, plan: Plan) -> None:
        """Write the plan of a comparison, over an earlier plan of the same name."""
        write_durably(self.runs / f"{plan.name}.json", plan_to_json(plan).encode())

    def states(self, cells: Iterable[Cell], *, weights: bool = False) -> dict[str, State]:
        """Return cell id -> the state of the cell, see `CellFolder.state`."""
        # Reading the names of all folders at once spares a look at the disk for each missing cell.
        existing = _names_in(self.cells)
        states = {}
        for cell in cells:
            states[cell.id] = State("missing")
            if cell.id in existing:
                states[cell.id] = self.cell(cell.id).state(weights=weights)
        return states

    def imported_later(self, cells: Iterable[Cell]) -> dict[str, dict[str, list[str]]]:
        """Return cell id -> what the plug-ins of the cell imported during its training."""
        found: dict[str, dict[str, list[str]]] = {}
        for cell in cells:
            # Only plug-ins import anything then, so the folders of other cells are not read.
            if not cell.has_plugins:
                continue
            late = self.cell(cell.id).imported_later()
            if late:
                found[cell.id] = late
        return found

    def find(self, reference: str) -> CellFolder:
        """Return the folder of the finished cell whose id, or MLflow run, begins as given."""
        start = reference.strip().lower()
        matches = self._folders_that_begin(start) if start else []
        if not matches:
            raise UsageError(
                f"no cell or run {reference!r} in {self.runs}; milbench status shows their ids"
            )
        if len(matches) > 1:
            raise _ambiguous(reference, matches)
        found = matches[0]
        state = found.state(weights=True)
        if state.status != "done":
            reason = f": {state.reason}" if state.reason else ""
            what = state.problem or f"not done ({state.status}{reason})"
            raise UsageError(f"cell {_named(found)} is {what}")
        return found

    def _folders_that_begin(self, start: str) -> list[CellFolder]:
        """Return the folders of cells whose id, or run in MLflow, begins with some characters."""
        matches = []
        for folder in self.folders():
            run = str(folder.mirrored().get("run", ""))
            if folder.id.startswith(start) or run.startswith(start):
                matches.append(folder)
        return matches

    def folders(self) -> Iterator[CellFolder]:
        """Yield the folders of all cells of the store, whatever comparison they belong to."""
        if not self.cells.is_dir():
            return
        for path in sorted(self.cells.iterdir()):
            # Lock files, and perhaps files of the user, lie beside the folders.
            if path.is_dir():
                yield CellFolder(path)


def _ambiguous(reference: str, matches: list[CellFolder]) -> UsageError:
    """Return the error about a reference with which the ids of several cells begin."""
    named = [_named(folder) for folder in matches[:MOST_NAMED]]
    others = len(matches) - len(named)
    rest = f" and {others} more" if others else ""
    listed = f"{', '.join(named)}{rest}; give more characters"
    return UsageError(f"{reference!r} is the beginning of {len(matches)} cells: {listed}")


def _named(folder: CellFolder) -> str:
    return f"{folder.id} ({folder.about()['label']})"


def cell_problems(plan: Plan, states: Mapping[str, State]) -> list[str]:
    """Return a line for every cell of a plan that is damaged or cannot be read."""
    lines = []
    for cell in plan.cells:
        problem = states[cell.id].problem if cell.id in states else ""
        if problem:
            lines.append(f"cell {cell.id} ({plan.label(cell)}) is {problem}")
    return lines


def _names_in(folder: Path) -> set[str]:
    """Return the names in a folder, none where it does not exist.

    Raises UsageError where the folder cannot be read.
    """
    try:
        return {entry.name for entry in os.scandir(folder)}
    except FileNotFoundError:
        if folder.is_symlink():
            raise LinkToNothing(folder) from None
        return set()
    except OSError as error:
        raise Unreadable(folder, error) from None


def _why_no_plan(path: Path) -> str:
    """Return why something with the name of a plan cannot be a plan, such as a folder.

    It is "" for a file, and where nothing has this name.
    """
    kind = ""
    try:
        found = path.stat()
        kind = kind_of(found.st_mode)
        if not kind and found.st_size > MOST_TEXT:
            kind = f"a file of {found.st_size:,} bytes"
    except FileNotFoundError:
        if path.is_symlink():
            kind = "a link to nothing"
    except OSError as error:
        return f"{path} cannot be read: {error.strerror or error}; it is left alone"
    if not kind:
        return ""
    return f"{path} is {kind}, expected the plan of a comparison: move it away"


def results(root: Path | str = ".", name: str | None = None) -> Results:
    """Return all that a report shows of a comparison, by default of the one launched last."""
    import pandas as pd

    from milbench.store.results import COLUMNS, Results

    store = Root(Path(root))
    plan = store.plan(name)
    states = store.states(plan.cells)
    rows: list[tuple[Any, ...]] = []
    folders = {}
    for cell in plan.cells:
        folder = store.cell(cell.id)
        state = states[cell.id]
        rows += _rows(plan, cell, folder, state)
        if state.status == "done":
            folders[cell.id] = folder.path
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    # Unlike int64, this type can hold missing values.
    frame[["epoch", "draw"]] = frame[["epoch", "draw"]].astype("Int64")
    # Many rows have the same texts. In columns of categories each text is kept once.
    text_columns = frame.columns.difference(["seed", "epoch", "value", "draw"])
    frame[text_columns] = frame[text_columns].astype("category")
    return Results(plan, frame, folders, store.imported_later(plan.cells))


def _rows(plan: Plan, cell: Cell, folder: CellFolder, state: State) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a cell in the frame of results, see `milbench.store.results.COLUMNS`.

    A cell without any metric has one row, so that the frame has every planned cell.
    """
    tried = plan.search.draws.get(cell.id) if plan.search else None
    draw = tried.number if tried else None
    history: list[Row] = []
    if state.status not in ("missing", "unreadable"):
        history = folder.history()
    # Where nothing was computed, there is no run, machine or code to name. A failed cell has them,
    # even if it finished no epoch.
    provenance: Mapping[str, Any] = {}
    if history or state.status == "failed":
        provenance = folder.about()["provenance"]
    run = folder.mirrored().get("run", "") if provenance else ""
    machine = str(provenance.get("machine", ""))
    code = str(provenance.get("code", ""))
    before = (*plan.labels[cell.id], cell.loss.supervision, cell.seed, state.status, state.reason)
    after = (cell.id, run, machine, code, draw)
    # Costs of single epochs are left out: the costs of the whole training follow below.
    values: list[tuple[int | None, str, float]] = []
    for epoch, metric, value in history:
        if not metric.startswith("cost/"):
            values.append((epoch, metric, value))
    for name, value in _costs(folder, state, history).items():
        values.append((cell.recipe.epochs, f"cost/{name}", value))
    if not values:
        values.append((None, "", float("nan")))
    for row in values:
        yield (*before, *row, *after)


def _costs(folder: CellFolder, state: State, history: list[Row]) -> dict[str, float]:
    """Return the costs of a finished cell, among them its steps; {} for any other cell."""
    if state.status != "done":
        return {}
    costs: dict[str, float] = folder.result().get("costs", {})
    if not costs:
        return {}
    return costs | {"steps": _steps(history)}


def _steps(history: Iterable[Row]) -> float:
    """Return the number of training steps, from the seconds of each epoch and of its steps."""
    values = {(epoch, metric): value for epoch, metric, value in history}
    steps = 0
    for (epoch, metric), value in values.items():
        if metric == "cost/step_seconds":
            seconds_of_epoch = values[epoch, "cost/train_seconds"]
            steps += round(seconds_of_epoch / value)
    return float(steps)
