"""The picture that a report opens with: a row a loss, every seed a dot, the mean and its interval; a column a task."""

from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from milbench._utils.palette import INK, MUTED
from milbench._utils.pictures import literal
from milbench.report.figures.style import TICK, WIDTH, Drawn, drawn_losses, error_axis, wrapped
from milbench.report.formatting import at_most
from milbench.report.literature import replications
from milbench.report.study import Study

MOST_TASKS = 6  # of more tasks a heat map is drawn
CAPTION = (
    "Every dot is a seed, the diamond their mean with its 95 % interval. ✓ and a filled diamond: the loss may be the "
    "best; hollow: it is worse than the best. Dashed, where it is near: no skill, the best answer that is the same for "
    "every bag. Rings: published means, where there are any; a table below says what differs."
)
NO_VERDICT = (
    "Every dot is a seed, the diamond their mean with its 95 % interval where that is known. No loss has a ✓, as "
    "losses share one seed at most, or nothing was learnt. Dashed: no skill; rings: published means."
)
BASELINE = " Dotted: pooled features with extra trees, a simple baseline that is no loss."
WORSE = " On the right: by how much a loss that may be the best may be worse than it."


class Row(NamedTuple):
    """A loss in a panel: its height, and where its mean and the ends of its interval are."""

    y: int
    mean: float
    low: float
    high: float


def overview_figure(study: Study) -> Figure | None:
    """Draw every seed of every loss on every task; None without values."""
    tasks = [task for task in study.tasks if study.table(task).notna().any(axis=None)][:MOST_TASKS]
    if not tasks:
        return None
    order = study.ranking()
    is_alone = len(tasks) == 1
    with_bounds = is_alone and bool(study.may_be_best)
    names = [wrapped(variant, 28) for variant in order]
    if is_alone:
        # Short lines, so that a telephone shows more than the names.
        drawn = drawn_losses(study, tasks[0])
        names = [wrapped(drawn[v].named(v) if v in drawn else v, 20) for v in order]
    width = max(WIDTH, 2.6 + 1.65 * len(tasks))
    if is_alone:
        width = 6.9 if with_bounds else 5.8
    most_lines = 1 + max(name.count("\n") for name in names)
    height = max(2.2, 0.9 + (0.12 + 0.15 * most_lines) * len(order))
    figure = Figure(figsize=(width, height), layout="constrained")
    row = figure.subplots(1, len(tasks), squeeze=False, sharey=True)[0]
    for axes, task in zip(row, tasks, strict=True):
        _draw(axes, study, task, order)
        _write_ticks(axes, study, task, order, with_bounds)
        if len(study.tasks) > 1:
            axes.set_title(literal(wrapped(task, 20)))
    row[0].set_yticks(range(len(order)), list(map(literal, names)), color=INK, fontsize=9)
    return figure


def _write_ticks(axes: Axes, study: Study, task: str, order: list[str], with_bounds: bool) -> None:
    """Write at the right of a panel which losses may be the best, or how much worse than it they may be."""
    summary, metric = study.summary(task), study.metric(task)
    if with_bounds:
        axes.text(
            1.02, 1.01, "worse by at most", transform=axes.transAxes, va="bottom", color=MUTED
        )
    for variant, drawn in drawn_losses(study, task).items():
        if not drawn.is_best:
            continue
        text = TICK
        if with_bounds:
            points = " points" if metric.percent else ""
            text = f"{at_most(summary['worse_by'][variant], metric)}{points}"
        axes.text(1.02, order.index(variant), text, transform=axes.get_yaxis_transform(), va="center",
                  color=drawn.colour)  # fmt: skip


def _draw(axes: Axes, study: Study, task: str, order: list[str]) -> None:
    """Draw the losses of a task, each in its row."""
    table, summary = study.table(task), study.summary(task)
    known = [v for v in order if v in table.index and table.loc[v].notna().any()]
    drawn = drawn_losses(study, task)
    for variant in known:
        ends = (float(summary[name][variant]) for name in ("mean", "low", "high"))
        _draw_row(
            axes,
            drawn[variant],
            table.loc[variant].dropna().to_numpy(),
            Row(order.index(variant), *ends),
        )
    rings = []
    for one in replications(study, task):
        published = one.published
        is_shown = published.metric == study.primary(task) and published.statistic == "mean"
        if is_shown and one.variant in known:
            rings.append((published.mean, order.index(one.variant)))
    axes.plot(
        [x for x, _ in rings], [y for _, y in rings], "o", mfc="none", mec=INK, ms=10, zorder=5
    )
    shown = [table.max(axis=None), *summary["high"], *(x for x, _ in rings)]
    lowest = summary["low"] if summary["low"].min() < 0 else summary["mean"]
    baseline = float(study.baseline(task).mean())
    if not np.isnan(baseline):
        axes.axvline(baseline, color=MUTED, ls=":", lw=1.3)
        shown.append(baseline)
        lowest = lowest.clip(upper=baseline)
    error_axis(axes, study, task, "x", lowest, float(np.nanmax(shown)))
    axes.set(ylabel="", ylim=(len(order) - 0.4, -0.6))
    axes.grid(visible=False, axis="y")


def _draw_row(axes: Axes, drawn: Drawn, values: NDArray[Any], row: Row) -> None:
    """Draw the seeds of a loss, the interval of their mean, and the mean."""
    # Up and down, so that equal seeds do not hide each other.
    places = row.y + 0.11 * (np.arange(len(values)) % 3 - 1)
    axes.scatter(values, places, color=drawn.colour, s=22, alpha=0.55, linewidth=0, zorder=2)
    axes.plot(
        [row.low, row.high],
        [row.y, row.y],
        color=drawn.colour,
        lw=2.2,
        zorder=3,
        solid_capstyle="butt",
    )
    axes.plot(row.mean, row.y, ms=6.5, mew=1.2, zorder=4, **(drawn.marks | {"marker": "D"}))
