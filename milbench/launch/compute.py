"""Compute what was asked for: the plan of a comparison, a search before it, and its companions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from milbench._utils.interrupts import INTERRUPTED
from milbench.launch.compute_plan import compute_plan
from milbench.launch.request import RunRequest, companions, requested_spec

if TYPE_CHECKING:
    from milbench.api.plan import Plan
    from milbench.engine.spec import Spec


def compute(request: RunRequest, root: Path) -> int:
    """Print the plan of a comparison and compute its missing cells, then those of its companions.

    Returns:
        The exit code: 0 if every cell is done (or nothing was to be computed), 1 if some are not, 130 after Ctrl-C.

    Raises:
        UsageError: The request is wrong, and nothing was computed; or a search has found nothing to choose from.
    """
    from milbench.engine.planning import make_plan
    from milbench.store.spool import patience

    spec = requested_spec(request)
    patience()  # a mistake in it is found before a cell needs it
    others = companions(spec, request)
    if spec.tune is not None and not request.smoke:  # a smoke run tries losses and tasks, whatever their settings
        code = compute_tuned(spec, request, root)
    else:
        code = compute_plan(lambda device: make_plan(spec, request.data_dir, device), request, root)
    for other in others:
        if code == INTERRUPTED or (code and request.fail_fast):
            break
        code = compute(other, root) or code
    return code


def compute_tuned(spec: Spec, request: RunRequest, root: Path) -> int:
    """Search settings as a spec says, then compute the comparison with those that were chosen; see `compute`."""
    from milbench.engine.tuning import search_plan, tuned_plan
    from milbench.store.collect import last_values
    from milbench.store.reader import StoreReader
    from milbench.store.workspace import Workspace

    searched: list[Plan] = []

    def first_stage(device: str) -> Plan:
        searched.append(search_plan(spec, request.data_dir, device))
        return searched[0]

    code = compute_plan(first_stage, request, root)
    if request.dry_run or code == INTERRUPTED:
        return code
    (plan,) = searched
    store = StoreReader(Workspace(Path(root)))
    runs = store.cell_runs()
    if any(cell.id not in runs or runs[cell.id].status not in ("done", "failed") for cell in plan.cells):
        return code  # the search was stopped: what it would have chosen is not known yet
    values = last_values(store, plan, plan.search.metric if plan.search else "")
    return compute_plan(lambda device: tuned_plan(spec, plan, values, request.data_dir, device), request, root)
