"""The published numbers beside ours: which can be compared, which agree, and every deviation by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from milbench.api.metric_info import describe
from milbench.api.published import Published
from milbench.report.agreement import FEWEST_TO_DIFFER, difference, judge
from milbench.report.formatting import NOTHING, interval, measured, with_unit
from milbench.report.statistics.epochs import RULES
from milbench.report.study import Study
from milbench.report.tables import Table

_WORDS = {
    "recipe.steps_per_epoch": "{} steps an epoch", "recipe.epochs": "{} epochs", "task.batch_bags": "{} bags a batch",
}  # fmt: skip
_ABSENT = object()


@dataclass(frozen=True)
class Beside:
    """A published value of a loss beside ours."""

    variant: str  # ours; "" for a published method that milbench lacks
    published: Published
    ours: pd.Series[float]  # under the rule of the source, one a seed
    interval: tuple[float, float]  # 95 %, of ours minus the published value; nan where they aren't compared
    verdict: str  # agrees, better, worse, open, not comparable, or "" for a method that milbench lacks
    reasons: tuple[str, ...]  # why, and every deviation from the source


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
    at_their_epoch = study.table(task, published.metric, published.rule)
    values = pd.Series(at_their_epoch.loc[variant], dtype=float).dropna()
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
    bounds = difference(values.to_numpy(), published, lower)
    verdict, why = judge(bounds, len(values), published.margin, lower)
    margin = "" if published.margin is None else f"margin {with_unit(published.margin, describe(published.metric))}"
    return Beside(variant, published, values, bounds, verdict, (why, margin, *reasons))


def deviations(
    protocol: Mapping[str, Any], params: list[dict[str, Any]], defaults: Mapping[str, Any] | None = None
) -> list[str]:
    """Return in words every parameter in which cells differ from what was published.

    A parameter that a cell lacks and that has no default counts as a difference if the cell has other parameters of its
    section: a loss without any parameters cannot deviate in one. Where several values of a parameter were published,
    they are a tuple or list.
    """
    found = []
    for name, expected in protocol.items():
        section, accepted = name.partition(".")[0] + ".", expected if isinstance(expected, tuple | list) else [expected]
        known = [p for p in params if name in p or any(key.startswith(section) for key in p)]
        values = [p.get(name, (defaults or {}).get(name, _ABSENT)) for p in known]
        if any(value not in accepted for value in values):
            texts = list(dict.fromkeys(_text(name, value) for value in values))
            ours = _WORDS.get(name, name.partition(".")[2] + " {}").format(" and ".join(texts))
            found.append(f"{ours} (published: {' or '.join(_text(name, value) for value in accepted)})")
    return found


def _text(name: str, value: Any) -> str:
    if value is _ABSENT:
        return "not known"
    if value is None:
        return "all" if name == "recipe.steps_per_epoch" else "none"
    return str(value).lower() if isinstance(value, bool) else str(value)
