"""What more supervision is worth, measured in training bags.

This needs tasks that differ in nothing but their number of training bags.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import special

from milbench.contracts.metric_info import describe
from milbench.experiment.cell import Cell
from milbench.experiment.display_names import labels
from milbench.report.formatting import NOTHING, measured, readable
from milbench.report.statistics.differences import FEWEST_SEEDS, LEVEL
from milbench.report.study import Study
from milbench.report.table import Table

Floats = NDArray[np.float64]

FEWEST_AMOUNTS = 3
"""With fewer numbers of training bags there is no learning curve."""

_GRID = 2001
"""The number of amounts at which curve and target are compared, evenly spaced in the logarithm."""


@dataclass(frozen=True)
class Series:
    """Tasks that differ in nothing but their number of training bags."""

    name: str
    tasks: dict[float, str]
    """Number of training bags -> the name of the task, the fewest bags first."""


def series_of(study: Study) -> list[Series]:
    """Return every series of tasks that has at least FEWEST_AMOUNTS numbers of training bags."""
    tasks_by_key: dict[str, dict[float, str]] = {}
    shared: dict[str, Cell] = {}
    for task in study.tasks:
        amount = study.info(task).amount
        cell = study.cell_of(task)
        bags = study.plan.task_params(cell).get(amount)
        without_amount = _without_parameter(cell, amount)
        key = without_amount.task.key
        # The series is named after the first task, without the number of bags.
        shared.setdefault(key, without_amount)
        if isinstance(bags, int | float):
            tasks_by_key.setdefault(key, {})[bags] = task
    keys = [key for key, tasks in tasks_by_key.items() if len(tasks) >= FEWEST_AMOUNTS]
    names = labels(shared[key] for key in keys)
    series = []
    for key in keys:
        name = names[shared[key].id].task
        fewest_bags_first = dict(sorted(tasks_by_key[key].items()))
        series.append(Series(name, fewest_bags_first))
    return series


def _without_parameter(cell: Cell, name: str) -> Cell:
    """Return a cell whose task lacks a parameter, and has no short name."""
    params = {key: value for key, value in cell.task.params.items() if key != name}
    return replace(cell, task=replace(cell.task, params=params, short_name=""))


def equivalent_amount(
    amounts: ArrayLike,
    curve: ArrayLike,
    target: ArrayLike,
    lower_is_better: bool = True,
    overlap: float = 0.0,
) -> tuple[float, float, float]:
    """Return the amount of bags at which a learning curve reaches a target, and its interval.

    Every seed has a curve and a target from the same data. Curves are linear in the logarithm of
    the amount, between measured amounts. An amount belongs to the interval if Student's interval of
    the mean difference between curve and target at this amount holds zero: a test inverted at every
    amount, as in Fieller's interval. The confidence is for this pair of losses alone.

    Args:
        amounts: (k,), ascending and positive.
        curve: (n, k), the values of n seeds at each amount.
        target: (n,), the values to be reached, of the same seeds.
        lower_is_better: whether the values are errors.
        overlap: if seeds split the same bags, the number of test bags for each training bag.

    Returns:
        The amount, and the lower and the upper bound of its interval.

        The amount is the first one at which the means of curve and target are equal. It is inf if
        the curve stays on the worse side of the target, and 0 if it starts on the better side.

        A bound beyond the measured amounts is 0 or inf. If curve and target are told apart at every
        amount, both bounds are the amount itself. For fewer than three seeds they are nan.
    """
    log_amounts = np.log(np.asarray(amounts, dtype=float))
    grid = np.linspace(log_amounts[0], log_amounts[-1], _GRID)
    curves = [np.interp(grid, log_amounts, of_seed) for of_seed in np.asarray(curve, dtype=float)]
    targets = np.asarray(target, dtype=float)
    # (seeds, _GRID): how far each curve is on the worse side of its target.
    excess = np.stack(curves) - targets[:, None]
    if not lower_is_better:
        excess = -excess
    mean_excess = excess.mean(axis=0)
    amount = _first_amount_reached(grid, mean_excess)

    seeds = len(excess)
    if seeds < FEWEST_SEEDS:
        return amount, math.nan, math.nan
    quantile = special.stdtrit(seeds - 1, (1 + LEVEL) / 2)
    half_widths = quantile * excess.std(axis=0, ddof=1) * math.sqrt(1 / seeds + overlap)
    is_zero_inside = np.abs(mean_excess) <= half_widths
    if not is_zero_inside.any():
        # Curve and target are told apart at every amount.
        return amount, amount, amount
    low, high = _bounds_of_amounts(grid, is_zero_inside)
    return amount, low, high


def _first_amount_reached(grid: Floats, mean_excess: Floats) -> float:
    """Return the first amount at which the mean curve has reached the target.

    It is inf if the curve never reaches the target, and 0 if it starts on the better side.

    Args:
        grid: the logarithms of the amounts.
        mean_excess: how far the mean curve is on the worse side of the mean target at each amount.
    """
    if mean_excess[0] < 0:
        return 0.0
    is_reached = mean_excess <= 0
    if not is_reached.any():
        return math.inf
    first = is_reached.argmax()
    return float(np.exp(grid[first]))


def _bounds_of_amounts(grid: Floats, is_zero_inside: NDArray[np.bool_]) -> tuple[float, float]:
    """Return the least and the largest amount at which the interval holds zero.

    `grid` has the logarithms of the amounts.
    """
    not_excluded = np.flatnonzero(is_zero_inside)
    first = not_excluded[0]
    last = not_excluded[-1]
    # If an end of the grid is not excluded, amounts beyond this end may not be excluded either.
    low = 0.0 if first == 0 else float(np.exp(grid[first]))
    high = math.inf if last == len(grid) - 1 else float(np.exp(grid[last]))
    return low, high


def worth_table(study: Study, series: Series) -> Table | None:
    """Return the table of how many bags of the least supervision replace one of more supervision.

    None if there is only one kind of supervision.
    """
    tasks = list(series.tasks.values())
    metric = study.primary(tasks[0])
    losses = _losses_on_all(study, tasks)
    weak = [loss for loss in losses if study.supervision[loss] == study.kinds[0]]
    strong = [loss for loss in losses if study.supervision[loss] != study.kinds[0]]
    if not weak or not strong:
        return None
    described = describe(metric)
    rows = []
    for loss in strong:
        for amount, task in series.tasks.items():
            values = study.table(task, metric).loc[loss]
            mean = float(np.mean(values))
            spread = float(np.std(values, ddof=1))
            row = {
                "supervised more": f"{readable(loss)}, {amount:,.0f} bags",
                described.heading: measured(mean, spread, described),
            }
            for other in weak:
                head = f"as many bags for {readable(other)}"
                row[head] = _worth(study, series, other, loss, amount)
            rows.append(row)
    note = (
        "Where the mean curves meet, linear between measured numbers in their logarithm; in "
        "brackets all numbers at which Student's 95 % interval of the difference, seed by seed, "
        "holds zero. ×: how many such bags replace one. < and >: outside the numbers that were "
        "measured."
    )
    title = f"What supervision is worth in bags: {readable(series.name)}"
    return Table(title, pd.DataFrame(rows).set_index("supervised more"), note)


def _losses_on_all(study: Study, tasks: Sequence[str]) -> list[str]:
    """Return the losses that have a value on each of some tasks, the best first."""
    metric = study.primary(tasks[0])
    losses = study.ranking()
    for task in tasks:
        measured_here = set(study.table(task, metric).dropna(how="all").index)
        losses = [loss for loss in losses if loss in measured_here]
    return losses


def _worth(study: Study, series: Series, weak: str, strong: str, amount: float) -> str:
    """Return how many bags of a loss with less supervision are worth an amount of bags of another.

    Args:
        study: the comparison.
        series: the tasks with different numbers of bags.
        weak: the loss with less supervision.
        strong: the loss with more supervision.
        amount: the number of bags of the loss with more supervision.
    """
    task = series.tasks[amount]
    metric = study.primary(task)
    columns = [study.table(other, metric).loc[weak] for other in series.tasks.values()]
    curves = pd.concat(columns, axis=1).dropna()
    target = study.table(task, metric).loc[strong].dropna()
    seeds = curves.index.intersection(target.index)
    if seeds.empty:
        return NOTHING
    bags, low, high = equivalent_amount(
        list(series.tasks),
        curves.loc[seeds].to_numpy(),
        target[seeds].to_numpy(),
        lower_is_better=describe(metric).lower_is_better,
        overlap=study.info(task).overlap,
    )
    said = _bags_in_words(bags)
    if not math.isnan(low):
        said += f" [{_bags_in_words(low)}, {_bags_in_words(high)}]"
    if 0 < bags < math.inf:
        said += f" × {bags / amount:.2g}"
    return said


def _bags_in_words(bags: float) -> str:
    """Return a number of bags; "<" or ">" if it lies outside the numbers that were measured."""
    if bags == 0:
        return "<"
    if math.isinf(bags):
        return ">"
    return f"{bags:,.0f}"
