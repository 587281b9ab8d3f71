"""Smoke runs: whole cells made tiny."""

from __future__ import annotations

from dataclasses import replace

from milbench.api.plan import LONGEST_NAME, Plan, labels
from milbench.engine.trainer import SMOKE_BAGS

SMOKE_RECIPE = {"epochs": 1, "steps_per_epoch": 2}
SUFFIX = "-smoke"


def shrink(plan: Plan) -> Plan:
    """Return a plan whose cells run from end to end in seconds: one epoch of two steps, evaluated on a few bags.

    Its name ends in "-smoke". The cells have other ids than those of the plan, whose results they never stand in for.

    Args:
        plan: whose losses, tasks, recipes and seeds are to be tried out.
    """
    cells = [replace(cell, recipe={**cell.recipe, **SMOKE_RECIPE}, smoke=True) for cell in plan.cells]
    cells = list({cell.id: cell for cell in cells}.values())  # recipes that differed in their length alone
    note = (
        f"Smoke run: {SMOKE_RECIPE['epochs']} epoch of {SMOKE_RECIPE['steps_per_epoch']} steps, evaluated on "
        f"{SMOKE_BAGS} bags. It shows that every cell runs; the numbers mean nothing."
    )
    name = f"{plan.name[: LONGEST_NAME - len(SUFFIX)]}{SUFFIX}"
    return plan.with_cells(cells, name=name, labels=labels(cells), notes=[note, *plan.notes])
