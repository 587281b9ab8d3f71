"""What has become of the cells of a plan: done, computed now, waiting, or not there."""

from __future__ import annotations

from dataclasses import dataclass

from milbench.api.plan import Plan
from milbench.store.progress import Progress
from milbench.store.reader import StoreReader


@dataclass(frozen=True)
class CellState:
    """The state of one planned cell.

    Args:
        status: done, running, queued, interrupted, failed or missing. queued: a launch that goes on will compute it.
        run_id: of its run, "" if it has none.
        reason: why it failed, "" otherwise.
        progress: how far it is, where it runs and has told.
    """

    status: str
    run_id: str = ""
    reason: str = ""
    progress: Progress | None = None


def cell_states(store: StoreReader, plan: Plan) -> dict[str, CellState]:
    """Return the state of every cell of a plan as it is now, by its id."""
    store.refresh()
    runs = store.cell_runs()
    waiting = store.cells_of_live_launches(plan.name)
    states = {}
    for cell in plan.cells:
        run = runs.get(cell.id)
        status = run.status if run else "missing"
        if status in ("missing", "interrupted") and cell.id in waiting:
            status = "queued"
        progress = Progress.read(store.workspace.progress(cell.id)) if status == "running" else None
        states[cell.id] = CellState(status, run.run_id if run else "", run.reason if run else "", progress)
    return states
