"""Tasks that differ in their number of training bags alone, and what more supervision is worth in such bags."""

import math
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import special

from milbench.contracts.metric_info import describe
from milbench.experiment.cell import Cell
from milbench.experiment.choices import task_key
from milbench.experiment.display_names import labels
from milbench.report.formatting import NOTHING, measured, readable
from milbench.report.statistics.differences import FEWEST_SEEDS, LEVEL
from milbench.report.study import Study
from milbench.report.table import Table

FEWEST_AMOUNTS = 3  # with fewer there is no curve
_GRID = 2001  # amounts at which two curves are compared, evenly spaced in the logarithm


@dataclass(frozen=True)
class Series:
    """Tasks that are the same but for their number of training bags, by which `tasks` has their labels, ascending."""

    name: str
    tasks: dict[float, str]


def series_of(study: Study) -> list[Series]:
    """Return every series of tasks with at least FEWEST_AMOUNTS numbers of training bags."""
    groups: dict[str, dict[float, str]] = {}
    rests: dict[str, Cell] = {}  # what the tasks of a group share
    for task in study.tasks:
        cell, amount = study.cell_of(task), study.info(task).amount
        params = {name: value for name, value in cell.task.params.items() if name != amount}
        rest = rests.setdefault(
            task_key(cell.task.name, params),
            replace(cell, task=replace(cell.task, params=params, short_name="")),
        )
        value = study.plan.task_params(cell).get(amount)
        if isinstance(value, int | float):
            groups.setdefault(rest.task.key, {})[value] = task
    groups = {key: tasks for key, tasks in groups.items() if len(tasks) >= FEWEST_AMOUNTS}
    names = labels(rests[key] for key in groups)
    return [
        Series(names[rests[key].id].task, dict(sorted(tasks.items())))
        for key, tasks in groups.items()
    ]


def equivalent_amount(
    amounts: ArrayLike,
    curve: ArrayLike,
    target: ArrayLike,
    lower_is_better: bool = True,
    overlap: float = 0.0,
) -> tuple[float, float, float]:
    """Return the amount at which a learning curve reaches a target, and bounds of the amounts that are not excluded.

    Every seed has a curve, linear between measured amounts in their logarithm, and a target from the same data. An
    amount belongs to the interval if Student's interval of the mean difference between curve and target there holds
    zero: a test inverted at every amount, as in Fieller's interval. Its coverage is for this pair alone.

    Args:
        amounts: (k,), ascending and positive.
        curve: (n, k), the values of n seeds at each amount.
        target: (n,), the values to be reached, of the same seeds.

    The amount is that at which the means are first equal, inf where the curve stays above, 0 where it starts below. The
    bounds are 0 and inf beyond what was measured, the amount itself where the two are told apart everywhere, nan for
    fewer than three seeds.
    """
    places = np.log(np.asarray(amounts, dtype=float))
    values, wanted = np.asarray(curve, dtype=float), np.asarray(target, dtype=float)
    sign = 1.0 if lower_is_better else -1.0
    grid = np.linspace(places[0], places[-1], _GRID)
    left = sign * (np.stack([np.interp(grid, places, line) for line in values]) - wanted[:, None])
    mean = left.mean(axis=0)
    amount = (
        0.0
        if mean[0] < 0
        else float(np.exp(grid[(mean <= 0).argmax()]))
        if (mean <= 0).any()
        else math.inf
    )
    n = len(values)
    if n < FEWEST_SEEDS:
        return amount, math.nan, math.nan
    half = (
        special.stdtrit(n - 1, (1 + LEVEL) / 2)
        * left.std(axis=0, ddof=1)
        * math.sqrt(1 / n + overlap)
    )
    open_ = np.flatnonzero(np.abs(mean) <= half)
    if not len(open_):  # the two are told apart everywhere that they were compared
        return amount, amount, amount
    low = 0.0 if open_[0] == 0 else float(np.exp(grid[open_[0]]))
    high = math.inf if open_[-1] == _GRID - 1 else float(np.exp(grid[open_[-1]]))
    return amount, low, high


def worth_table(study: Study, series: Series) -> Table | None:
    """Return how many bags of the weakest supervision replace one of stronger; None for one kind of supervision."""
    tasks = list(series.tasks.values())
    name = study.primary(tasks[0])
    on_all = set.intersection(
        *(set(study.table(task, name).dropna(how="all").index) for task in tasks)
    )
    losses = [variant for variant in study.ranking() if variant in on_all]
    weak, strong = (
        [v for v in losses if (study.supervision[v] == study.kinds[0]) == is_weak]
        for is_weak in (1, 0)
    )
    if not weak or not strong:
        return None
    rows = []
    for variant, (amount, task) in product(strong, series.tasks.items()):
        values = study.table(task, name).loc[variant]
        value = measured(float(np.mean(values)), float(np.std(values, ddof=1)), describe(name))
        worths = (_worth(study, series, other, variant, amount) for other in weak)
        rows.append([f"{readable(variant)}, {amount:,.0f} bags", value, *worths])
    columns = [
        "supervised more",
        describe(name).heading,
        *(f"as many bags for {readable(v)}" for v in weak),
    ]
    note = (
        "Where the mean curves meet, linear between measured numbers in their logarithm; in brackets all numbers at "
        "which Student's 95 % interval of the difference, seed by seed, holds zero. ×: how many such bags replace one. "
        "< and >: outside the numbers that were measured."
    )
    title = f"What supervision is worth in bags: {readable(series.name)}"
    return Table(title, pd.DataFrame(rows, columns=columns).set_index("supervised more"), note)


def _worth(study: Study, series: Series, weak: str, strong: str, amount: float) -> str:
    task = series.tasks[amount]
    name = study.primary(task)
    curves = pd.concat(
        [study.table(other, name).loc[weak] for other in series.tasks.values()], axis=1
    ).dropna()
    target = study.table(task, name).loc[strong].dropna()
    seeds = curves.index.intersection(target.index)
    if seeds.empty:
        return NOTHING
    lower, overlap = describe(name).lower_is_better, study.info(task).overlap
    bags = equivalent_amount(
        [*series.tasks], curves.loc[seeds].to_numpy(), target[seeds].to_numpy(), lower, overlap
    )
    worth, low, high = (
        "<" if count == 0 else ">" if math.isinf(count) else f"{count:,.0f}" for count in bags
    )
    ratio = f" × {bags[0] / amount:.2g}" if 0 < bags[0] < math.inf else ""
    return worth + ("" if math.isnan(bags[1]) else f" [{low}, {high}]") + ratio
