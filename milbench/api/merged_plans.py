"""Several launches of a comparison as one plan, so that a loss can be added to those that were run before."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from milbench.api.plan import Cell, Plan, SearchRecord, TaskInfo, labels

_to_json = json.JSONEncoder(sort_keys=True).encode
Pair = tuple[str, str]
"""The names of the loss and of the task of an arm."""


def merge(plans: Iterable[Plan]) -> Plan:
    """Return one plan with the cells of several launches of a comparison, each cell once, with labels for all of them.

    Args:
        plans: at least one, the newest first; title, notes, contrasts and marks are those of the newest one that is no
            part of a spec. Of a tuned comparison each loss on each task comes from the newest launch that has it.
    """
    plans = list(plans)
    whole = next((plan for plan in plans if not plan.part), plans[0])
    remarks: dict[str, Any] = {key: getattr(whole, key) for key in ("title", "notes", "contrasts", "marks")}
    if plans[0].search is not None:
        return replace(_merge_tuned(plans, _merge_infos(plans)), **remarks)
    cells = {cell.id: cell for plan in reversed(plans) for cell in plan.cells}
    infos = _merge_infos(plans)
    folds = {k: v for plan in reversed(plans) for k, v in plan.folds.items()}
    overlaps = {k: v for plan in reversed(plans) for k, v in plan.overlaps.items()}
    named = labels(cells.values())
    return replace(
        plans[0], cells=list(cells.values()), tasks=infos, labels=named, folds=folds, overlaps=overlaps, **remarks
    )  # fmt: skip


def _merge_infos(plans: Sequence[Plan]) -> dict[str, TaskInfo]:
    """Return what the plans know of every task; where they differ, the first one counts."""
    infos: dict[str, TaskInfo] = {}
    for plan in reversed(plans):
        infos |= {name: info.beyond(infos.get(name)) for name, info in plan.tasks.items()}
    return infos


def newest_code(plans: Sequence[Plan]) -> tuple[list[Plan], list[Cell]]:
    """Return the plans of several launches without the cells whose code or data a newer launch replaced, and these.

    Of cells with one loss, task and recipe and the same parameters, those count that have the revisions and the data of
    the newest plan with such cells. A tuned comparison is left as it is, since `merge` takes the newest launch there.

    Args:
        plans: the newest first.
    """
    newest: dict[str, tuple[str, str, str]] = {}
    found, replaced = [], {}
    for plan in plans:
        kept = []
        for cell in plan.cells:
            settings = [cell.loss, cell.loss_params, cell.task, cell.task_params, cell.recipe]
            variant = _to_json(settings)
            if plan.search is not None or newest.setdefault(variant, cell.version) == cell.version:
                kept.append(cell)
            else:
                replaced[cell.id] = cell
        found.append(replace(plan, cells=kept))
    return found, list(replaced.values())


def _merge_tuned(plans: Sequence[Plan], infos: dict[str, TaskInfo]) -> Plan:
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
    named: dict[str, tuple[str, str, str]] = {}
    draws: dict[str, dict[str, Any]] = {}
    chosen: list[int] = []
    for number, (plan, search, arm, pair) in enumerate(found):
        own_cells = {cell.id: cell for cell in plan.cells if plan.labels[cell.id][:2] == pair}
        cells |= own_cells
        named |= {cell: plan.labels[cell] for cell in own_cells}
        draws |= {cell: one | {"arm": number} for cell, one in search.draws.items() if one["arm"] == arm}
        chosen += search.chosen[arm : arm + 1]
    several = [*reversed(plans)]
    return replace(
        newest,
        cells=list(cells.values()),
        labels=named,
        tasks=infos,
        folds={cell: one for plan in several for cell, one in plan.folds.items()},
        overlaps={cell: one for plan in several for cell, one in plan.overlaps.items()},
        search=replace(searches[0][1], draws=draws, chosen=chosen),
    )
