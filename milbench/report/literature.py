"""The published numbers beside ours: which can be compared, which agree, and every deviation by name."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import special

from milbench.contracts.metric_info import describe
from milbench.contracts.published import Published
from milbench.report.epochs import RULES
from milbench.report.formatting import NOTHING, counted, interval, measured, readable, with_unit
from milbench.report.marks import FEWEST_TO_DIFFER, agreement
from milbench.report.statistics.differences import LEVEL
from milbench.report.study import Study
from milbench.report.table import Table
from milbench.report.values import rows_of

Bounds = tuple[float, float]
PROTOCOL = "another protocol"
DATA = "other data"
OBSTACLES = (PROTOCOL, DATA)
"""What may keep a number from being compared with a published one, as its reasons begin."""
MOST_OUTCOMES = 8  # lines at the end of a command
_WORDS = {"recipe.steps_per_epoch": "{} steps an epoch", "task.batch_bags": "{} bags a batch"}


class Replication(NamedTuple):
    """A published value of a loss beside ours."""

    variant: str  # ours; "" for a published method that milbench lacks
    published: Published
    ours: pd.Series[float]  # under the rule of the source, one a seed
    interval: Bounds  # 95 %, of ours minus the published value; nan where they aren't compared
    verdict: (
        str  # agrees, better, worse, open, not comparable, or "" for a method that milbench lacks
    )
    reasons: tuple[str, ...]  # why, and every deviation from the source


def replications(study: Study, task: str) -> list[Replication]:
    """Return every published value of a task, each loss with every variant of it here."""
    rows, compared = rows_of(study.cells_of(task).drop_duplicates("variant")), []
    for published in study.info(task).published:
        if published.method:
            compared.append(
                Replication(
                    "", published, pd.Series(dtype=float), (np.nan, np.nan), "", (published.note,)
                )
            )
        variants = [
            r.variant for r in rows if published.loss in (r.loss, study.planned[r.cell].loss)
        ]
        compared += [
            _compare(study, task, variant, published) for variant in variants if published.loss
        ]
    return compared


def literature_tables(study: Study, task: str) -> tuple[Table, Table] | None:
    """Return the published values of a task beside ours, and what differs; None where nothing was published."""
    compared = replications(study, task)
    if not compared:
        return None
    sources = list(dict.fromkeys(published.source for _, published, *_ in compared))
    rows, details = [], []
    for variant, published, ours, bounds, verdict, reasons in compared:
        metric, seeds = describe(published.metric), len(ours)
        spread = np.nan if published.deviation is None else published.deviation
        runs = "" if published.count is None else f", {published.statistic} of {published.count}"
        value = f"{measured(published.mean, spread, metric)}{runs} [{1 + sources.index(published.source)}]"
        rows.append((
            readable(variant) or published.method, metric.heading, value,
            f"{measured(ours.mean(), ours.std(), metric)} (n={seeds})" if seeds else NOTHING,
            interval(bounds, float(np.mean(bounds)), metric, True), verdict or NOTHING,
        ))  # fmt: skip
        details.append(
            (
                readable(variant) or published.method,
                value,
                "; ".join(filter(None, reasons)) or NOTHING,
            )
        )
    rules = ", ".join(dict.fromkeys(RULES[published.rule] for _, published, *_ in compared))
    note = " ".join(f"[{k}] {source}." for k, source in enumerate(sources, start=1)) + (
        f" Here: the mean at the epoch that the source would choose ({rules})."
    )
    shown = pd.DataFrame(
        rows, columns=["loss", "metric", "published", "here", "difference, 95 %", "verdict"]
    )
    listed = pd.DataFrame(
        details, columns=["loss", "published", "why, and every deviation from the source"]
    )
    return (
        Table(f"Published numbers beside ours on {readable(task)}", shown.set_index("loss"), note),
        Table(
            f"Why, and what differs from the sources, on {readable(task)}", listed.set_index("loss")
        ),
    )


def outcome_lines(study: Study) -> list[str]:
    """Return what came out beside the published means, a line a loss, and what that says if nothing is comparable.

    The best of several runs is left to the report: a mean is no match for it. There are no lines where there would be
    more than fit at the end of a command.
    """
    compared = [
        one
        for task in study.tasks
        for one in replications(study, task)
        if len(one.ours) and one.published.statistic == "mean"
    ]
    if not 0 < len(compared) <= MOST_OUTCOMES:
        return []
    lines = [_outcome(one) for one in compared]
    if all(one.verdict == "not comparable" for one in compared):
        lines.append(_without_verdict(compared))
    return lines


def _outcome(one: Replication) -> str:
    metric = describe(one.published.metric)
    ours = f"{with_unit(float(one.ours.mean()), metric)} (mean of {counted(len(one.ours), 'seed')})"
    if len(one.ours) == 1:
        ours = f"{with_unit(float(one.ours.mean()), metric)} (one seed)"
    theirs = with_unit(one.published.mean, metric)
    return f"{one.variant}: {metric.label} {ours}; published {theirs}, {one.verdict}"


def _without_verdict(compared: list[Replication]) -> str:
    """Say why no number is comparable with a published one, and whether the losses have the published order."""
    obstacles = [_obstacle(reason) for one in compared for reason in one.reasons]
    causes = " and ".join(dict.fromkeys(filter(None, obstacles)))
    text = f"None of these repeats a published number ({causes})"
    published = {one.published.mean for one in compared}
    has_order = 1 < len(compared) == len(published)
    if not has_order or len({one.published.metric for one in compared}) > 1:
        return f"{text}."
    by_ours = sorted(compared, key=lambda one: float(one.ours.mean()))
    by_theirs = sorted(compared, key=lambda one: one.published.mean)
    is_same = [one.variant for one in by_ours] == [one.variant for one in by_theirs]
    return f"{text}; the order of the losses is {'that of the publication' if is_same else 'another one'}."


def _obstacle(reason: str) -> str:
    """Return a reason in short, "" where it is a remark."""
    return next((kind for kind in OBSTACLES if reason.startswith(kind)), "")


def _compare(study: Study, task: str, variant: str, published: Published) -> Replication:
    metric, margin = describe(published.metric), published.margin
    values = pd.Series(
        study.table(task, published.metric, published.rule).loc[variant], dtype=float
    ).dropna()
    cells = [
        study.planned[row.cell] for row in rows_of(study.cells_of(task)) if row.variant == variant
    ]
    obstacles = []
    if different := deviations(published, [study.plan.params(cell) for cell in cells]):
        obstacles.append(f"{PROTOCOL}: {', '.join(different)}")
    if other := [cell.task.data for cell in cells if not cell.task.data.startswith(published.data)]:
        obstacles.append(f"{DATA}: {other[0]}")
    if published.statistic == "best":
        obstacles.append("the best run of several: means alone are compared")
    done = (
        f"{len(values)} of {len(cells)} seeds"
        if len(values) < len(cells)
        else counted(len(values), "seed")
    )
    few = [f"{done}, where {FEWEST_TO_DIFFER} are needed"] if len(values) < FEWEST_TO_DIFFER else []
    if obstacles or few:
        verdict, unknown = "not comparable" if obstacles else "open", (np.nan, np.nan)
        return Replication(
            variant, published, values, unknown, verdict, (*(obstacles or few), published.note)
        )
    bounds = difference(values.to_numpy(), published)
    agreed = (
        "no margin of agreement was stated"
        if margin is None
        else f"margin {with_unit(margin, metric)}"
    )
    verdict = agreement(bounds, len(values), margin, metric.lower_is_better)
    return Replication(variant, published, values, bounds, verdict, (agreed, published.note))


def difference(values: ArrayLike, published: Published) -> Bounds:
    """Return the 95 % interval of the mean of our values, (n,) with two at least, minus that of published runs.

    It is Welch's where mean, standard deviation and number of the published runs are known, and otherwise Student's, as
    if these runs (one, where their number is unknown) had the standard deviation of ours.
    """
    sample = np.asarray(values, dtype=float)
    n, runs, spread = sample.size, published.count or 1, published.deviation
    own, freedom = float(sample.std(ddof=1)), float(n - 1)
    error = own * math.sqrt(1 / n + 1 / runs)
    if spread is not None and runs > 1:
        variances = np.array([own**2 / n, spread**2 / runs])
        error = math.sqrt(variances.sum())
        freedom = (
            error**4 / float((variances**2 / np.array([n - 1, runs - 1])).sum()) if error else 1.0
        )
    half = float(special.stdtrit(freedom, (1 + LEVEL) / 2)) * error
    middle = float(sample.mean()) - published.mean
    return middle - half, middle + half


def deviations(published: Published, params: list[dict[str, Any]]) -> list[str]:
    """Return in words every parameter in which cells differ from the protocol of a published value."""
    differing = []
    for name in dict.fromkeys(name for p in params for name in published.deviations(p)):
        texts = dict.fromkeys(_text(name, p[name]) for p in params if name in p)
        here = _WORDS.get(name, name.split(".", 1)[-1] + " {}").format(" and ".join(texts))
        accepted = " or ".join(_text(name, value) for value in published.accepted(name))
        differing.append(f"{here} (published: {accepted})")
    return differing


def _text(name: str, value: Any) -> str:
    if value is None:
        return "all" if name == "recipe.steps_per_epoch" else "none"
    return str(value).lower() if isinstance(value, bool) else str(value)
