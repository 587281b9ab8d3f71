"""Tasks that differ in their number of training bags alone, and what more supervision is worth in such bags."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

from milbench.api.metric_info import describe
from milbench.api.supervision import SUPERVISIONS
from milbench.report.formatting import NOTHING, measured
from milbench.report.statistics import LEVEL
from milbench.report.statistics.amounts import Equivalent, equivalent_amount
from milbench.report.study import Study, Variant
from milbench.report.tables import Entry, Table

FEWEST_AMOUNTS = 3
"""With fewer there is no curve."""
_NOTE = (
    "How many bags with the weaker supervision (in the column) train as well as the given number with the stronger one "
    "(in the line): where the mean curves meet, linear between measured numbers in their logarithm; in brackets all "
    f"numbers at which Student's {LEVEL:.0%} interval of the difference, seed by seed, holds zero. Each interval is "
    "for itself. < and >: outside the numbers that were measured. ×: how many such bags replace one."
)


@dataclass(frozen=True)
class Series:
    """Tasks that are the same but for their number of training bags.

    Args:
        name: of the task, with its other parameters where several series have one name.
        parameter: the one that is the number of training bags.
        tasks: the label of the task by its number of training bags, ascending.
    """

    name: str
    parameter: str
    tasks: dict[float, str]


def series_of(study: Study) -> list[Series]:
    """Return every series of tasks with at least three numbers of training bags."""
    found: dict[tuple[str, str], dict[float, str]] = {}
    for task in study.tasks:
        first = study.cells[study.cells["task_label"] == task].iloc[0]
        parameter = study.results.amounts.get(str(first["task"]), "")
        params = {k: v for k, v in study.results.params.get(str(first.name), {}).items() if k.startswith("task.")}
        amount = params.pop(f"task.{parameter}", None)
        if isinstance(amount, int | float):
            found.setdefault((str(first["task"]), json.dumps(params, sort_keys=True)), {})[amount] = task
    kept = {key: tasks for key, tasks in found.items() if len(tasks) >= FEWEST_AMOUNTS}
    names = [name for name, _ in kept]
    return [
        Series(
            name if names.count(name) == 1 else next(iter(tasks.values())),
            study.results.amounts[name],
            dict(sorted(tasks.items())),
        )
        for (name, _), tasks in kept.items()
    ]


def leading_metric(study: Study, series: Series) -> str:
    """Return the metric by which all tasks of a series are compared, the one that was planned.

    With few bags nearly all label sets may be wrong, so that another metric leads on some of the tasks: amounts are
    compared by one alone.
    """
    return study.planned_metric(next(iter(series.tasks.values())))


def worth_table(study: Study, series: Series) -> Table | None:
    """Return how many bags of weaker supervision replace one of stronger; None for one kind of supervision."""
    kinds = [kind for kind in SUPERVISIONS if any(v.supervision == kind for v in study.variants)]
    tasks = list(series.tasks.values())
    name = leading_metric(study, series)
    variants = [v for v in study.variants if all(len(study.sample(task, v, name).by_seed) for task in tasks)]
    weak = [v for v in variants if v.supervision == kinds[0]]
    strong = [v for v in variants if v.supervision != kinds[0]]
    if not weak or not strong:
        return None
    metric = describe(name)
    lines = []
    for one in strong:
        for amount, task in series.tasks.items():
            sample = study.sample(task, one, name)
            worth = [_entry(_equivalent(study, series, other, one, task), amount) for other in weak]
            shown = Entry(measured(sample.mean, sample.spread, metric))
            lines.append([Entry(f"{one.label}, {amount:,.0f} bags"), shown, *worth])
    columns = ["supervised more", metric.heading, *(f"as many bags for {v.label}" for v in weak)]
    title = f"What supervision is worth in bags: {series.name}"
    return Table(title, columns, [("", lines)], [_NOTE])


def _equivalent(study: Study, series: Series, weak: Variant, strong: Variant, task: str) -> Equivalent:
    name = leading_metric(study, series)
    samples = [study.sample(one, weak, name).by_seed for one in series.tasks.values()]
    target = study.sample(task, strong, name).by_seed
    seeds = sorted(set(target.index).intersection(*(sample.index for sample in samples)))
    if not seeds:
        return Equivalent(math.nan, (math.nan, math.nan))
    curve = [[sample[seed] for sample in samples] for seed in seeds]
    lower, overlap = describe(name).lower_is_better, study.overlap(task)
    return equivalent_amount([*series.tasks], curve, target[seeds].to_numpy(), lower, overlap)


def _entry(found: Equivalent, amount: float) -> Entry:
    if math.isnan(found.amount):
        return Entry(NOTHING)
    low, high = found.interval
    bounds = "" if math.isnan(low) else f"[{_bags(low)}, {_bags(high)}]"
    ratio = f"× {found.amount / amount:.2g}" if 0 < found.amount < math.inf else ""
    return Entry(_bags(found.amount), f"{bounds} {ratio}".strip())


def _bags(amount: float) -> str:
    return "<" if amount == 0 else ">" if math.isinf(amount) else f"{amount:,.0f}"
