"""Reliability diagrams: how often a class is present against how probable a loss says it is.

There is a panel for each loss.
"""

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from milbench._utils.palette import MUTED
from milbench._utils.pictures import literal
from milbench.contracts.metric_info import describe
from milbench.report.figures.style import WIDTH, LossStyle, loss_styles, panels, wrapped
from milbench.report.formatting import with_unit
from milbench.report.statistics.differences import share_interval
from milbench.report.study import Study
from milbench.report.values import rows_of

CAPTION = (
    "The presence of every class in every test bag: the share that happened against the mean "
    "probability, in bins with as many forecasts each, over all seeds, with Wilson's 95 % "
    "intervals. On the diagonal probabilities come true. ECE: the expected calibration error. ✓: "
    "may be the best."
)
_NAME = "presence_ece"
"""The metric whose bins of forecasts are plotted."""
_COLUMNS = 4
"""The number of panels side by side."""
_MOST_LOSSES = 8
"""The largest number of losses in a figure."""


def reliability_figure(study: Study, task: str) -> Figure | None:
    """Plot the reliability diagrams of the best losses; None if no bins of forecasts were kept."""
    bins_of: dict[str, pd.DataFrame] = {}
    for variant in map(str, study.summary(task).index):
        if len(bins_of) == _MOST_LOSSES:
            break
        bins = pooled_bins(study, task, variant)
        if len(bins):
            bins_of[variant] = bins
    if not bins_of:
        return None
    width = WIDTH * min(1, len(bins_of) / _COLUMNS)
    figure, grid = panels(len(bins_of), _COLUMNS, width, 2.7, sharex=True, sharey=True)
    styles = loss_styles(study, task)
    errors = study.table(task, _NAME, "last").mean(axis=1)
    for axes, (variant, bins) in zip(grid, bins_of.items(), strict=True):
        _plot_bins(axes, bins, styles[variant])
        axes.set_title(literal(wrapped(styles[variant].named(variant), 22)), fontsize=8.5)
        error = with_unit(float(errors[variant]), describe(_NAME))
        axes.text(
            0.97,
            0.04,
            f"ECE {error}",
            transform=axes.transAxes,
            ha="right",
            fontsize=8,
            color=MUTED,
        )
    figure.supxlabel("mean probability", fontsize=9, color=MUTED)
    figure.supylabel("share that happened", fontsize=9, color=MUTED)
    return figure


def _plot_bins(axes: Axes, bins: pd.DataFrame, style: LossStyle) -> None:
    """Plot, for every bin of forecasts, the share that happened with its interval."""
    axes.plot([0, 1], [0, 1], color=MUTED, lw=1, ls="--")
    lows = []
    highs = []
    for one in rows_of(bins):
        happened = round(one.frequency * one.count)
        low, high = share_interval(happened, int(one.count))
        lows.append(low)
        highs.append(high)
    axes.vlines(bins["probability"], lows, highs, color=style.colour, lw=1.4, alpha=0.6)
    axes.scatter(bins["probability"], bins["frequency"], color=style.colour, s=24, linewidth=0)
    axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), xticks=(0, 0.5, 1), yticks=(0, 0.5, 1))
    axes.set_aspect("equal")


def pooled_bins(study: Study, task: str, variant: str) -> pd.DataFrame:
    """Return the bins of a loss, pooled over all seeds that kept them.

    A row is a bin. The columns are the count of forecasts, their mean probability, and the
    frequency: the share that happened.
    """
    bins: list[Any] = []
    for cell in study.done_cells(task, variant):
        bins += study.evidence(cell).reliability.get(_NAME, [])
    table = pd.DataFrame(bins, columns=["index", "count", "probability", "frequency"])
    # The means over seeds are weighted by the numbers of forecasts.
    for name in ("probability", "frequency"):
        table[name] *= table["count"]
    sums = table.groupby("index").sum()
    for name in ("probability", "frequency"):
        sums[name] /= sums["count"]
    return sums
