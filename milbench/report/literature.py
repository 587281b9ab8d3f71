"""Published values beside ours: which can be compared, which agree, and every deviation by name."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import special

from milbench.contracts.metric_info import describe
from milbench.contracts.published import Published
from milbench.experiment.cell import Cell
from milbench.report.epochs import RULES
from milbench.report.formatting import NOTHING, counted, interval, measured, readable, with_unit
from milbench.report.marks import FEWEST_TO_DIFFER, agreement
from milbench.report.statistics.differences import LEVEL
from milbench.report.study import Study
from milbench.report.table import Table
from milbench.report.values import rows_of

Bounds = tuple[float, float]

UNKNOWN: Bounds = (math.nan, math.nan)
"""The interval of values that are not compared."""

PROTOCOL = "another protocol"
DATA = "other data"
OBSTACLES = (PROTOCOL, DATA)
"""The beginnings of reasons why our value cannot be compared with a published one."""

MOST_OUTCOMES = 8
"""If there are more lines, none is printed at the end of a command."""

_WORDS = {"recipe.steps_per_epoch": "{} steps an epoch", "task.batch_bags": "{} bags a batch"}
"""Parameter -> a phrase with its value, for parameters whose names would not be understood."""


@dataclass(frozen=True)
class Replication:
    """A published value beside ours."""

    variant: str
    """Our loss; "" for a published method that milbench lacks."""
    published: Published
    ours: pd.Series[float]
    """Our values at the epoch that the rule of the source chooses, one for each seed."""
    interval: Bounds
    """The 95 % interval of our mean minus the published value; nan if they are not compared."""
    verdict: str
    """agrees, better, worse, open or not comparable; "" for a method that milbench lacks."""
    reasons: tuple[str, ...]
    """The reasons of the verdict, and every deviation from the source."""

    @property
    def name(self) -> str:
        """The name of the loss or the method in a table."""
        return readable(self.variant) or self.published.method


def replications(study: Study, task: str) -> list[Replication]:
    """Return every published value of a task beside ours.

    A published loss has an entry for each of our variants of it. A published method that milbench
    lacks has one entry without values of ours.
    """
    found = []
    for published in study.info(task).published:
        if published.method:
            nothing = pd.Series(dtype=float)
            found.append(_not_compared("", published, nothing, verdict="", reasons=[]))
        else:
            variants = _variants_of(study, task, published.loss)
            found += [_replication(study, task, variant, published) for variant in variants]
    return found


def _variants_of(study: Study, task: str, loss: str) -> list[str]:
    """Return the variants of a loss on a task.

    `loss` is the name of the loss, or its label with parameters: then only the variants with these
    parameters are returned.
    """
    first_cells = study.cells_of(task).drop_duplicates("variant")
    variants = []
    for row in rows_of(first_cells):
        name = study.planned[row.cell].loss.name
        if loss in (row.loss, name):
            variants.append(row.variant)
    return variants


def literature_tables(study: Study, task: str) -> tuple[Table, Table] | None:
    """Return a table of published values beside ours, and one of what differs.

    None if nothing was published on the task.
    """
    compared = replications(study, task)
    if not compared:
        return None
    sources = list(dict.fromkeys(one.published.source for one in compared))
    rows = []
    details = []
    for one in compared:
        metric = describe(one.published.metric)
        value = f"{_published_value(one.published)} [{1 + sources.index(one.published.source)}]"
        middle = float(np.mean(one.interval))
        rows.append(
            {
                "loss": one.name,
                "metric": metric.heading,
                "published": value,
                "here": _our_value(one),
                "difference, 95 %": interval(one.interval, middle, metric, signed=True),
                "verdict": one.verdict or NOTHING,
            }
        )
        reasons = [reason for reason in one.reasons if reason]
        details.append(
            {
                "loss": one.name,
                "published": value,
                "why, and every deviation from the source": "; ".join(reasons) or NOTHING,
            }
        )
    numbered = " ".join(f"[{k}] {source}." for k, source in enumerate(sources, start=1))
    rules = ", ".join(dict.fromkeys(RULES[one.published.rule] for one in compared))
    note = f"{numbered} Here: the mean at the epoch that the source would choose ({rules})."
    beside = Table(
        f"Published numbers beside ours on {readable(task)}",
        pd.DataFrame(rows).set_index("loss"),
        note,
    )
    why = Table(
        f"Why, and what differs from the sources, on {readable(task)}",
        pd.DataFrame(details).set_index("loss"),
    )
    return beside, why


def _published_value(published: Published) -> str:
    """Return a published value with its spread and its number of runs."""
    spread = math.nan if published.deviation is None else published.deviation
    value = measured(published.mean, spread, describe(published.metric))
    if published.count is None:
        return value
    return f"{value}, {published.statistic} of {published.count}"


def _our_value(one: Replication) -> str:
    """Return our mean with its spread and its number of seeds."""
    if one.ours.empty:
        return NOTHING
    value = measured(one.ours.mean(), one.ours.std(), describe(one.published.metric))
    return f"{value} (n={len(one.ours)})"


def outcome_lines(study: Study) -> list[str]:
    """Return lines with our mean beside each published mean, to print at the end of a command.

    If none can be compared, a last line says why. A published best run of several is left out, as
    it cannot be compared with a mean. There are no lines at all if there would be more than
    MOST_OUTCOMES of them.
    """
    compared = []
    for task in study.tasks:
        for one in replications(study, task):
            has_values = not one.ours.empty
            if has_values and one.published.statistic == "mean":
                compared.append(one)
    if not compared or len(compared) > MOST_OUTCOMES:
        return []
    lines = [_outcome(one) for one in compared]
    if all(one.verdict == "not comparable" for one in compared):
        lines.append(_without_verdict(compared))
    return lines


def _outcome(one: Replication) -> str:
    """Return the line of a loss at the end of a command."""
    metric = describe(one.published.metric)
    seeds = len(one.ours)
    of_seeds = "one seed" if seeds == 1 else f"mean of {counted(seeds, 'seed')}"
    ours = with_unit(float(one.ours.mean()), metric)
    theirs = with_unit(one.published.mean, metric)
    return f"{one.variant}: {metric.label} {ours} ({of_seeds}); published {theirs}, {one.verdict}"


def _without_verdict(compared: Sequence[Replication]) -> str:
    """Say why none of our values can be compared, and whether losses have the published order."""
    causes = _causes(compared)
    text = f"None of these repeats a published number ({' and '.join(causes)})"
    if not _have_published_order(compared):
        return f"{text}."
    by_ours = sorted(compared, key=lambda one: float(one.ours.mean()))
    by_theirs = sorted(compared, key=lambda one: one.published.mean)
    is_same = [one.variant for one in by_ours] == [one.variant for one in by_theirs]
    order = "that of the publication" if is_same else "another one"
    return f"{text}; the order of the losses is {order}."


def _causes(compared: Sequence[Replication]) -> list[str]:
    """Return those of OBSTACLES with which some reason begins, without repetitions."""
    causes: dict[str, None] = {}
    for one in compared:
        for reason in one.reasons:
            for obstacle in OBSTACLES:
                if reason.startswith(obstacle):
                    causes[obstacle] = None
    return list(causes)


def _have_published_order(compared: Sequence[Replication]) -> bool:
    """Return whether published values order losses: several by one metric, no two equal."""
    metrics = {one.published.metric for one in compared}
    means = {one.published.mean for one in compared}
    return len(compared) > 1 and len(metrics) == 1 and len(means) == len(compared)


def _replication(study: Study, task: str, variant: str, published: Published) -> Replication:
    """Return a published value beside ours, and compare the two unless there is an obstacle."""
    values = study.table(task, published.metric, published.rule).loc[variant]
    ours = pd.Series(values, dtype=float).dropna()
    rows = rows_of(study.cells_of(task))
    cells = [study.planned[row.cell] for row in rows if row.variant == variant]

    params = [study.plan.params(cell) for cell in cells]
    accepted = accepted_differences(published, params)
    obstacles = _obstacles(study, cells, published)
    if obstacles:
        return _not_compared(variant, published, ours, "not comparable", [*obstacles, accepted])
    if len(ours) < FEWEST_TO_DIFFER:
        too_few = _too_few_seeds(done=len(ours), planned=len(cells))
        return _not_compared(variant, published, ours, "open", [too_few, accepted])

    bounds = difference(ours.to_numpy(), published)
    lower_is_better = describe(published.metric).lower_is_better
    return Replication(
        variant=variant,
        published=published,
        ours=ours,
        interval=bounds,
        verdict=agreement(bounds, len(ours), published.margin, lower_is_better),
        reasons=(_margin_text(published), accepted, published.note),
    )


def _not_compared(
    variant: str,
    published: Published,
    ours: pd.Series[float],
    verdict: str,
    reasons: Sequence[str],
) -> Replication:
    """Return a published value beside ours without an interval, and the reasons."""
    return Replication(
        variant=variant,
        published=published,
        ours=ours,
        interval=UNKNOWN,
        verdict=verdict,
        reasons=(*reasons, published.note),
    )


def _too_few_seeds(done: int, planned: int) -> str:
    """Return how many seeds are done of those planned, and how many a comparison needs."""
    seeds = counted(done, "seed")
    if done < planned:
        seeds = f"{done} of {planned} seeds"
    return f"{seeds}, where {FEWEST_TO_DIFFER} are needed"


def _margin_text(published: Published) -> str:
    """Return the margin of agreement, or that none was stated."""
    if published.margin is None:
        return "no margin of agreement was stated"
    return f"margin {with_unit(published.margin, describe(published.metric))}"


def _obstacles(study: Study, cells: Sequence[Cell], published: Published) -> list[str]:
    """Return why cells cannot be compared with a published value."""
    obstacles = []
    different = deviations(published, [study.plan.params(cell) for cell in cells])
    if different:
        obstacles.append(f"{PROTOCOL}: {', '.join(different)}")
    data = [cell.task.data for cell in cells]
    other_data = [name for name in data if not name.startswith(published.data)]
    if other_data:
        obstacles.append(f"{DATA}: {other_data[0]}")
    if published.statistic == "best":
        obstacles.append("the best run of several: means alone are compared")
    return obstacles


def difference(values: ArrayLike, published: Published) -> Bounds:
    """Return the 95 % interval of the mean of our values minus the mean of published runs.

    It is Welch's interval if the standard deviation and the number of the published runs are known.
    Otherwise it is Student's, as if the published runs had the standard deviation of ours. An
    unknown number of runs counts as one run.

    Args:
        values: (n,), our values, at least two.
        published: the mean of the published runs, with what is known of them.
    """
    ours = np.asarray(values, dtype=float)
    n = ours.size
    our_deviation = float(ours.std(ddof=1))
    runs = published.count or 1
    their_deviation = published.deviation
    if their_deviation is not None and runs > 1:
        our_variance = our_deviation**2 / n
        their_variance = their_deviation**2 / runs
        error, freedom = _welch(our_variance, n - 1, their_variance, runs - 1)
    else:
        error = our_deviation * math.sqrt(1 / n + 1 / runs)
        freedom = float(n - 1)
    half = float(special.stdtrit(freedom, (1 + LEVEL) / 2)) * error
    middle = float(ours.mean()) - published.mean
    return middle - half, middle + half


def _welch(
    our_variance: float, our_freedom: int, their_variance: float, their_freedom: int
) -> tuple[float, float]:
    """Return the standard error of the difference of two means, and its degrees of freedom.

    `our_variance` and `their_variance` are the variances of the means. The degrees of freedom are
    by the formula of Welch and Satterthwaite.
    """
    variance = our_variance + their_variance
    error = math.sqrt(variance)
    if not error:
        # All runs are equal. The interval is a point, whatever the degrees of freedom.
        return 0.0, 1.0
    return error, error**4 / (our_variance**2 / our_freedom + their_variance**2 / their_freedom)


def deviations(published: Published, params: Sequence[dict[str, Any]]) -> list[str]:
    """Return, in words, every parameter that differs from the protocol of a published value.

    `params` are the parameters of our cells.
    """
    names: dict[str, None] = {}
    for of_cell in params:
        names |= dict.fromkeys(published.deviations(of_cell))
    differing = []
    for name in names:
        accepted = " or ".join(_text(name, value) for value in published.accepted(name))
        differing.append(f"{_our_setting(name, params)} (published: {accepted})")
    return differing


def accepted_differences(published: Published, params: Sequence[dict[str, Any]]) -> str:
    """Return what differs from the source and is still taken for its protocol, "" for nothing.

    The first of several values of a protocol is that of the source; the others are accepted in its
    place.
    """
    differing = []
    for name in published.protocol:
        accepted = published.accepted(name)
        in_its_place = accepted[1:]
        ours = [of_cell[name] for of_cell in params if name in of_cell]
        if any(value in in_its_place for value in ours):
            of_source = _text(name, accepted[0])
            differing.append(f"{_our_setting(name, params)} (published: {of_source})")
    if not differing:
        return ""
    return f"accepted though it differs: {', '.join(differing)}"


def _our_setting(name: str, params: Sequence[dict[str, Any]]) -> str:
    """Return a parameter with the values that our cells have, such as `network small`."""
    values = [of_cell[name] for of_cell in params if name in of_cell]
    texts = dict.fromkeys(_text(name, value) for value in values)
    words = _WORDS.get(name, name.split(".", 1)[-1] + " {}")
    return words.format(" and ".join(texts))


def _text(name: str, value: Any) -> str:
    """Return the value of a parameter as a text."""
    if value is None:
        return "all" if name == "recipe.steps_per_epoch" else "none"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)
