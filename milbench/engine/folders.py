"""The store: a folder for each cell and a file for each comparison, which may be copied, moved, merged or deleted.

    runs/NAME.json       the plan of a comparison
    runs/cells/ID/       a cell, see `milbench.engine.cell`
    runs/mlflow.db       what MLflow shows of it all, which can be made again

Nothing here imports torch or MLflow.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from milbench._utils.files import expanded, write_atomically
from milbench._utils.words import counted
from milbench.api.plan import Cell, Plan
from milbench.engine.cell import CellFolder, State
from milbench.errors import UsageError, as_usage, unknown

if TYPE_CHECKING:
    from milbench.api.results import Results


class Root:
    """The folder that `--root` names, with the store in `runs`; nothing is created before `make`."""

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
            probe = self.cells / f".probe-{os.getpid()}"
            probe.touch()
            probe.unlink(missing_ok=True)
        except OSError as error:
            raise UsageError(f"cannot write under --root {self.path}: {error.strerror or error}") from None
        return self

    def cell(self, cell_id: str) -> CellFolder:
        """Return the folder of a cell, which need not exist."""
        return CellFolder(self.cells / cell_id)

    # -- comparisons --------------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """Return the names of the comparisons, the one launched last first."""
        with as_usage():
            files = sorted(self.runs.glob("*.json"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
        return [path.stem for path in files]

    def plan(self, name: str | None = None) -> Plan:
        """Return the plan of a comparison; None: of the one launched last. Raises UsageError if there is none."""
        names = self.names()
        if not names and (cells := len([*self._folders()])):
            raise UsageError(
                f"{self.runs} has {counted(cells, 'cell')} and no plan of a comparison; the same milbench run "
                "writes it again and skips finished cells"
            )
        if not names:
            raise UsageError(f"nothing was run yet in {self.runs}; start with: milbench run demo (or give --root)")
        if name is not None and name not in names:
            raise unknown("comparison", name, names)
        path = self._plan_file(name or names[0])
        try:
            return Plan.from_json(path.read_text("utf-8"))
        except (UsageError, OSError, UnicodeDecodeError) as error:
            raise UsageError(
                f"{path}: {error}; the same milbench run writes it again and skips finished cells"
            ) from None

    def save(self, plan: Plan) -> None:
        """Write the plan of a comparison in place of an earlier one of its name."""
        text = plan.to_json()
        write_atomically(self._plan_file(plan.name), lambda path: path.write_text(text, "utf-8"))

    def _plan_file(self, name: str) -> Path:
        return self.runs / f"{name}.json"

    # -- cells --------------------------------------------------------------------------------------------------

    def states(self, cells: Iterable[Cell]) -> dict[str, State]:
        """Return the states of cells, by their ids; those without a folder cost no access to the disk."""
        try:
            existing = {entry.name for entry in os.scandir(self.cells)}
        except OSError:
            existing = set()
        missing = State("missing")
        return {cell.id: self.cell(cell.id).state() if cell.id in existing else missing for cell in cells}

    def find(self, reference: str) -> CellFolder:
        """Return the folder of the finished cell whose id, or run in MLflow, begins with a reference."""
        start = reference.strip().lower()
        matches = [folder for folder in self._folders() if start and self._is_meant(folder, start)]
        if not matches:
            raise UsageError(f"no cell or run {reference!r} in {self.runs}; milbench status shows their ids")
        if len(matches) > 1:
            listed = ", ".join(f"{folder.id} ({folder.label()})" for folder in matches[:5])
            rest = f" and {len(matches) - 5} more" if len(matches) > 5 else ""
            raise UsageError(
                f"{reference!r} is the beginning of {len(matches)} cells: {listed}{rest}; give more characters"
            )
        if not matches[0].is_done:
            state = matches[0].state()
            reason = f": {state.reason}" if state.reason else ""
            raise UsageError(f"cell {matches[0].id} ({matches[0].label()}) is not done ({state.status}{reason})")
        return matches[0]

    def _folders(self) -> Iterator[CellFolder]:
        if self.cells.is_dir():
            yield from (CellFolder(path) for path in sorted(self.cells.iterdir()) if path.is_dir())

    def _is_meant(self, folder: CellFolder, start: str) -> bool:
        return folder.id.startswith(start) or str(folder.mirrored().get("run", "")).startswith(start)


def results(root: Path | str = ".", name: str | None = None) -> Results:
    """Return everything that a report shows of a comparison; None: of the one launched last."""
    import pandas as pd

    from milbench.api.results import COLUMNS, Results

    place = Root(Path(root))
    plan = place.plan(name)
    states = place.states(plan.cells)
    rows: list[tuple[Any, ...]] = []
    folders = {}
    for cell in plan.cells:
        folder, state = place.cell(cell.id), states[cell.id]
        rows += _rows(plan, cell, folder, state)
        if state.status == "done":
            folders[cell.id] = folder.path
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    frame[["epoch", "draw"]] = frame[["epoch", "draw"]].astype("Int64")
    text = frame.columns.difference(["seed", "epoch", "value", "draw"])
    frame[text] = frame[text].astype("category")
    return Results(plan, frame, folders)


def _rows(plan: Plan, cell: Cell, folder: CellFolder, state: State) -> Iterator[tuple[Any, ...]]:
    label = plan.labels[cell.id]
    draw = plan.search.draws.get(cell.id, {}).get("draw") if plan.search else None
    prefix = *label, cell.supervision, cell.seed, state.status, state.reason
    history = [] if state.status == "missing" else folder.history()
    provenance = folder.provenance() if history or state.status == "failed" else {}
    place = cell.id, folder.mirrored().get("run", "") if provenance else "", provenance.get("machine", "")
    suffix = (*place, provenance.get("code", ""), draw)
    costs = [(cell.recipe["epochs"], f"cost/{name}", value) for name, value in folder.result().get("costs", {}).items()]
    rows = [row for row in history if not row[1].startswith("cost/")] + costs
    for epoch, metric, value in rows or [(None, "", float("nan"))]:
        yield (*prefix, epoch, metric, value, *suffix)
