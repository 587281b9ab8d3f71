"""Tasks that differ in their number of training bags alone, and what more supervision is worth in such bags."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from milbench.api.metric_info import describe
from milbench.api.plan import to_json
from milbench.report.formatting import NOTHING, measured
from milbench.report.statistics.amounts import Equivalent, equivalent_amount
from milbench.report.study import Study
from milbench.report.tables import Table

FEWEST_AMOUNTS = 3
"""With fewer there is no curve."""


@dataclass(frozen=True)
class Series:
    """Tasks that are the same but for their number of training bags.

    Args:
        name: of the task.
        tasks: the label of the task by its number of training bags, ascending.
    """

    name: str
    tasks: dict[float, str]


def series_of(study: Study) -> list[Series]:
    """Return every series of tasks with at least three numbers of training bags."""
    found: dict[tuple[str, str], dict[float, str]] = {}
    cells = {cell.id: cell for cell in study.plan.cells}
    for task, first in study.cells.drop_duplicates("task").set_index("task")["cell"].items():
        cell, amount = cells[first], study.info(str(task)).amount
        params = {name: value for name, value in cell.task_params.items() if name != amount}
        value = cell.task_params.get(amount)
        if isinstance(value, int | float):
            found.setdefault((cell.task, to_json(params)), {})[value] = str(task)
    return [
        Series(name, dict(sorted(tasks.items()))) for (name, _), tasks in found.items() if len(tasks) >= FEWEST_AMOUNTS
    ]


def worth_table(study: Study, series: Series) -> Table | None:
    """Return how many bags of the weakest supervision replace one of stronger; None for one kind of supervision."""
    tasks = list(series.tasks.values())
    name = study.primary(tasks[0])
    found = [set(study.table(task, name).dropna(how="all").index) for task in tasks]
    known = [variant for variant in study.order() if variant in set.intersection(*found)]
    weak = [v for v in known if study.supervision[v] == study.kinds[0]]
    strong = [v for v in known if v not in weak]
    if not weak or not strong:
        return None
    rows = []
    for one in strong:
        for amount, task in series.tasks.items():
            values = study.table(task, name).loc[one]
            shown = measured(float(np.mean(values)), float(np.std(values, ddof=1)), describe(name))
            worth = [_shown(_equivalent(study, series, name, other, one, task), amount) for other in weak]
            rows.append([f"{one}, {amount:,.0f} bags", shown, *worth])
    columns = ["supervised more", describe(name).heading, *(f"as many bags for {v}" for v in weak)]
    note = (
        "Where the mean curves meet, linear between measured numbers in their logarithm; in brackets all numbers at "
        "which Student's 95 % interval of the difference, seed by seed, holds zero. ×: how many such bags replace one. "
        "< and >: outside the numbers that were measured."
    )
    title = f"What supervision is worth in bags: {series.name}"
    return Table(title, pd.DataFrame(rows, columns=columns).set_index("supervised more"), note)


def _equivalent(study: Study, series: Series, name: str, weak: str, strong: str, task: str) -> Equivalent:
    curves = pd.concat([study.table(one, name).loc[weak] for one in series.tasks.values()], axis=1).dropna()
    target = study.table(task, name).loc[strong].dropna()
    seeds = [seed for seed in curves.index if seed in target.index]
    if not seeds:
        return Equivalent(math.nan, (math.nan, math.nan))
    lower, overlap = describe(name).lower_is_better, study.info(task).overlap
    return equivalent_amount(
        [*series.tasks], curves.loc[seeds].to_numpy(), target[seeds].to_numpy(), lower, overlap
    )  # fmt: skip


def _shown(found: Equivalent, amount: float) -> str:
    if math.isnan(found.amount):
        return NOTHING
    low, high = found.interval
    bounds = "" if math.isnan(low) else f" [{_bags(low)}, {_bags(high)}]"
    ratio = f" × {found.amount / amount:.2g}" if 0 < found.amount < math.inf else ""
    return f"{_bags(found.amount)}{bounds}{ratio}"


def _bags(amount: float) -> str:
    return "<" if amount == 0 else ">" if math.isinf(amount) else f"{amount:,.0f}"
