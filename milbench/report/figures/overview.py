"""The figure that a report opens with: every seed, the mean and its interval.

A row is a loss, a panel is a task, and a dot is a seed.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from milbench._utils.palette import INK, MUTED
from milbench._utils.pictures import literal
from milbench.report.figures.style import (
    CHECK_MARK,
    WIDTH,
    LossStyle,
    error_axis,
    loss_styles,
    new_figure,
    wrapped,
)
from milbench.report.formatting import at_most
from milbench.report.literature import replications
from milbench.report.study import Study
from milbench.report.values import rows_of

MOST_TASKS = 6
"""The largest number of tasks in this figure. For more tasks, a report has a heat map instead."""
CAPTION = (
    "Every dot is a seed, the diamond their mean with its 95 % interval. ✓ and a filled diamond: "
    "the loss may be the best; hollow: it is worse than the best. Dashed, where it is near: no "
    "skill, the best answer that is the same for every bag. Rings: published means, where there "
    "are any; a table below says what differs."
)
"""The caption if some losses may be the best."""
NO_VERDICT = (
    "Every dot is a seed, the diamond their mean with its 95 % interval where that is known. No "
    "loss has a ✓, as losses share one seed at most, or nothing was learnt. Dashed: no skill; "
    "rings: published means."
)
"""The caption if there are no verdicts on losses."""
BASELINE = " Dotted: pooled features with extra trees, a simple baseline that is no loss."
"""The end of a caption if the figure shows the simple baseline."""
WORSE = " On the right: by how much a loss that may be the best may be worse than it."
"""The end of a caption if the figure says by how much losses may be worse."""


def overview_figure(study: Study) -> Figure | None:
    """Plot every seed of every loss on the first MOST_TASKS tasks; None without values."""
    tasks = [task for task in study.tasks if study.table(task).notna().any(axis=None)]
    tasks = tasks[:MOST_TASKS]
    if not tasks:
        return None
    order = study.ranking()
    is_alone = len(tasks) == 1
    with_bounds = is_alone and bool(study.may_be_best)
    if is_alone:
        width = 6.9 if with_bounds else 5.8
        names = _ticked_names(order, loss_styles(study, tasks[0]))
    else:
        width = max(WIDTH, 2.6 + 1.65 * len(tasks))
        names = [wrapped(variant, 28) for variant in order]
    most_lines = 1 + max(name.count("\n") for name in names)
    row_height = 0.12 + 0.15 * most_lines
    figure = new_figure(width, max(2.2, 0.9 + row_height * len(order)))
    grid = figure.subplots(1, len(tasks), squeeze=False, sharey=True)[0]
    for axes, task in zip(grid, tasks, strict=True):
        _plot_task(axes, study, task, order)
        if with_bounds:
            _write_bounds(axes, study, task, order)
        else:
            _write_ticks(axes, study, task, order)
        if len(study.tasks) > 1:
            axes.set_title(literal(wrapped(task, 20)))
    grid[0].set_yticks(range(len(order)), [literal(name) for name in names], color=INK, fontsize=9)
    return figure


def _ticked_names(order: list[str], styles: dict[str, LossStyle]) -> list[str]:
    """Return names with ticks, in lines short enough for the screen of a telephone."""
    names = []
    for variant in order:
        name = styles[variant].named(variant) if variant in styles else variant
        names.append(wrapped(name, 20))
    return names


def _write_ticks(axes: Axes, study: Study, task: str, order: list[str]) -> None:
    """Write a tick right of every loss that may be the best."""
    for variant, style in loss_styles(study, task).items():
        if style.is_best:
            _write_beside(axes, order.index(variant), CHECK_MARK, style.colour)


def _write_bounds(axes: Axes, study: Study, task: str, order: list[str]) -> None:
    """Write, right of every loss that may be the best, by how much it may be worse."""
    axes.text(1.02, 1.01, "worse by at most", transform=axes.transAxes, va="bottom", color=MUTED)
    worse_by = study.summary(task)["worse_by"]
    metric = study.metric(task)
    unit = " points" if metric.percent else ""
    for variant, style in loss_styles(study, task).items():
        if style.is_best:
            text = f"{at_most(worse_by[variant], metric)}{unit}"
            _write_beside(axes, order.index(variant), text, style.colour)


def _write_beside(axes: Axes, row: int, text: str, colour: str) -> None:
    """Write a text right of a row."""
    # x is a share of the width of the axes, y is the number of a row.
    transform = axes.get_yaxis_transform()
    axes.text(1.02, row, text, transform=transform, va="center", color=colour)


def _plot_task(axes: Axes, study: Study, task: str, order: list[str]) -> None:
    """Plot the losses of a task, each in its row, with published means and the baseline."""
    table = study.table(task)
    summary = study.summary(task)
    styles = loss_styles(study, task)
    bounds = {str(row.Index): row for row in rows_of(summary)}
    known = [name for name in order if name in table.index and table.loc[name].notna().any()]
    for name in known:
        seeds = table.loc[name].dropna().to_numpy()
        _plot_row(axes, order.index(name), seeds, bounds[name], styles[name])
    published = []
    for variant, mean in _published_means(study, task):
        if variant in known:
            published.append(mean)
            axes.plot(mean, order.index(variant), "o", mfc="none", mec=INK, ms=10, zorder=5)
    highest = [table.max(axis=None), summary["high"].max(), *published]
    # The smallest mean decides on the scale. If an interval reaches below 0, the smallest end of an
    # interval does, so that the interval is shown whole.
    lowest = summary["low"] if summary["low"].min() < 0 else summary["mean"]
    baseline = float(study.baseline(task).mean())
    if not math.isnan(baseline):
        axes.axvline(baseline, color=MUTED, ls=":", lw=1.3)
        highest.append(baseline)
        lowest = lowest.clip(upper=baseline)
    error_axis(axes, study, task, "x", lowest, float(np.nanmax(highest)))
    # y goes downwards, so that the first row is at the top.
    axes.set_ylim(len(order) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")


def _published_means(study: Study, task: str) -> list[tuple[str, float]]:
    """Return (loss, published mean) for the published means of the primary metric of a task."""
    means = []
    for one in replications(study, task):
        published = one.published
        if published.metric == study.primary(task) and published.statistic == "mean":
            means.append((one.variant, published.mean))
    return means


def _plot_row(axes: Axes, row: int, seeds: NDArray[Any], summary: Any, style: LossStyle) -> None:
    """Plot the seeds of a loss, the interval of their mean, and the mean."""
    # Seeds are moved up and down a little, so that equal values do not hide each other.
    heights = row + 0.11 * (np.arange(len(seeds)) % 3 - 1)
    axes.scatter(seeds, heights, color=style.colour, s=22, alpha=0.55, linewidth=0, zorder=2)
    ends = [summary.low, summary.high]
    axes.plot(ends, [row, row], color=style.colour, lw=2.2, zorder=3, solid_capstyle="butt")
    diamond = style.marker_style | {"marker": "D"}
    axes.plot(summary.mean, row, ms=6.5, mew=1.2, zorder=4, **diamond)
