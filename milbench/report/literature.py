"""The published numbers beside ours: which can be compared, which agree, and every deviation by name."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from milbench.api.metric_info import describe
from milbench.api.published import Published
from milbench.report.agreement import FEWEST_TO_DIFFER, difference, judge
from milbench.report.deviations import deviations
from milbench.report.formatting import NOTHING, interval, measured, with_unit
from milbench.report.statistics.epochs import RULES
from milbench.report.study import Study
from milbench.report.tables import Table


@dataclass(frozen=True)
class Beside:
    """A published value of a loss beside ours.

    Args:
        variant: ours; "" for a published method that milbench lacks.
        published: the published value.
        ours: ours under the rule of the source, one a seed.
        interval: the 95 % interval of ours minus the published value; nan where they aren't compared.
        verdict: agrees, better, worse, open, not comparable, or "" for a method that milbench lacks.
        reasons: why, and every deviation from the source.
    """

    variant: str
    published: Published
    ours: pd.Series[float]
    interval: tuple[float, float]
    verdict: str
    reasons: tuple[str, ...]


def beside(study: Study, task: str) -> list[Beside]:
    """Return every published value of a task, each loss with every variant of it here."""
    own, found = study.cells[study.cells["task"] == task], []
    cells = {cell.id: cell for cell in study.plan.cells}
    losses = {variant: (cells[cell].loss, loss) for variant, cell, loss in
              own[["variant", "cell", "loss"]].itertuples(index=False, name=None)}  # fmt: skip
    nothing = pd.Series(dtype=float)
    for published in map(Published.from_dict, study.info(task).published):
        if published.method:
            found.append(Beside("", published, nothing, (np.nan, np.nan), "", (published.note,)))
        for variant, names in losses.items():
            if published.loss and published.loss in names:
                found.append(_compared(study, task, variant, published))
    return found


def literature_tables(study: Study, task: str) -> tuple[Table, Table] | None:
    """Return the published values of a task beside ours, and what differs; None where nothing was published."""
    found = beside(study, task)
    if not found:
        return None
    sources = list(dict.fromkeys(one.published.source for one in found))
    rows = []
    for one in found:
        metric, known = describe(one.published.metric), len(one.ours)
        spread = np.nan if one.published.deviation is None else one.published.deviation
        runs = "" if one.published.count is None else f", {one.published.statistic} of {one.published.count}"
        ours = measured(one.ours.mean(), one.ours.std() if known > 1 else np.nan, metric) if known else NOTHING
        rows.append((
            one.variant or one.published.method, metric.heading,
            f"{measured(one.published.mean, spread, metric)}{runs} [{1 + sources.index(one.published.source)}]",
            f"{ours} (n={known})" if known else NOTHING,
            interval(one.interval, float(np.mean(one.interval)), metric, True), one.verdict or NOTHING,
        ))  # fmt: skip
    head = ["loss", "metric", "published", "here", "difference, 95 %", "verdict"]
    reasons = [(row[0], row[2], "; ".join(filter(None, one.reasons)) or NOTHING)
               for row, one in zip(rows, found, strict=True)]  # fmt: skip
    why = pd.DataFrame(reasons, columns=["loss", "published", "why, and every deviation from the source"])
    note = " ".join(f"[{k}] {source}." for k, source in enumerate(sources, start=1)) + (
        " Here: the same statistic at the epoch that the source would choose"
        f" ({', '.join(dict.fromkeys(RULES[one.published.rule] for one in found))})."
    )
    shown = Table(f"Published numbers beside ours on {task}", pd.DataFrame(rows, columns=head).set_index("loss"), note)
    return shown, Table(f"Why, and what differs from the sources, on {task}", why.set_index("loss"))


def _compared(study: Study, task: str, variant: str, published: Published) -> Beside:
    values = _values(study, task, variant, published).dropna()
    lower = describe(published.metric).lower_is_better
    own = study.cells[(study.cells["task"] == task) & (study.cells["variant"] == variant)]
    planned = {cell.id: cell for cell in study.plan.cells}
    cells = [planned[cell] for cell in own["cell"]]
    params = [cell.params() for cell in cells]
    minor = deviations(published.minor, params, published.defaults)
    different = deviations(published.protocol, params, published.defaults)
    obstacles = [f"another protocol: {', '.join(different)}"] if different else []
    if other := [cell.data for cell in cells if not cell.data.startswith(published.data)]:
        obstacles.append(f"other data: {other[0]}")
    if published.statistic == "best" and published.count is None:
        obstacles.append("the best of an unknown number of runs")
    reasons = [*obstacles, *([f"minor differences: {', '.join(minor)}"] if minor else []), published.note]
    fewest = max(FEWEST_TO_DIFFER, (published.count or 0) if published.statistic == "best" else 0)
    if obstacles or len(values) < fewest:
        few = f"{len(values)} of {fewest} seeds" if len(values) < fewest else ""
        verdict = "not comparable" if obstacles else "open"
        return Beside(variant, published, values, (np.nan, np.nan), verdict, (few, *reasons))
    test, _ = difference(values.to_numpy(), published, lower)
    verdict, why = judge(test.interval, len(values), published.margin, lower)
    margin = "" if published.margin is None else f"margin {with_unit(published.margin, describe(published.metric))}"
    return Beside(variant, published, values, test.interval, verdict, (why, margin, *reasons))


def _values(study: Study, task: str, variant: str, published: Published) -> pd.Series[float]:
    """Return our values, each at the epoch that the rule of the source chooses, by the published metric itself."""
    found = study.table(task, published.metric, published.rule)
    return pd.Series(found.loc[variant], dtype=float)
