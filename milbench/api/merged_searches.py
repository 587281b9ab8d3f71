"""Several launches of a tuned comparison as one plan, so that a loss can be added to those that were tuned before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from milbench.api.plan import Cell, Plan, SearchRecord, TaskInfo

Pair = tuple[str, str]
"""The names of the loss and of the task of an arm."""


def merge_tuned(plans: Sequence[Plan], infos: dict[str, TaskInfo]) -> Plan:
    """Return one plan with every arm of several tuned plans, each from the newest plan that has it.

    A launch for one loss thus leaves the other losses as they were, and a launch with more draws replaces what earlier
    ones chose from fewer. Plans that chose by another metric are left out.

    Args:
        plans: the newest first, which has a search; name, title and notes are its own.
        infos: what all of them know of every task.
    """
    newest = plans[0]
    searches = [(plan, plan.search) for plan in plans if plan.search is not None]
    metric, taken = searches[0][1].metric, set[Pair]()
    found: list[tuple[Plan, SearchRecord, int, Pair]] = []
    for plan, search in searches:
        if search.metric == metric:
            own = {one["arm"]: plan.labels[cell][:2] for cell, one in search.draws.items()}
            found = [(plan, search, arm, pair) for arm, pair in own.items() if pair not in taken] + found
            taken.update(own.values())
    if all(plan is newest for plan, *_ in found):
        return newest
    found.sort(key=lambda one: not one[1].chosen)  # those without a choice come last
    cells: dict[str, Cell] = {}
    labels: dict[str, tuple[str, str, str]] = {}
    draws: dict[str, dict[str, Any]] = {}
    chosen: list[int] = []
    for number, (plan, search, arm, pair) in enumerate(found):
        own_cells = {cell.id: cell for cell in plan.cells if plan.labels[cell.id][:2] == pair}
        cells |= own_cells
        labels |= {cell: plan.labels[cell] for cell in own_cells}
        draws |= {cell: one | {"arm": number} for cell, one in search.draws.items() if one["arm"] == arm}
        chosen += search.chosen[arm : arm + 1]
    several = [*reversed(plans)]
    return replace(
        newest,
        cells=list(cells.values()),
        labels=labels,
        tasks=infos,
        folds={cell: one for plan in several for cell, one in plan.folds.items()},
        overlaps={cell: one for plan in several for cell, one in plan.overlaps.items()},
        search=replace(searches[0][1], draws=draws, chosen=chosen),
    )
