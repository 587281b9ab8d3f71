"""Reliability diagrams: of what a loss holds to be how probable, how often it happens; a panel a loss."""

import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from milbench._utils.palette import MUTED
from milbench._utils.pictures import literal
from milbench.contracts.metric_info import describe
from milbench.report.figures.style import WIDTH, drawn_losses, panels, wrapped
from milbench.report.formatting import with_unit
from milbench.report.statistics.differences import share_interval
from milbench.report.study import Study
from milbench.report.values import rows_of

CAPTION = (
    "The presence of every class in every test bag: the share that happened against the mean probability, in bins with "
    "as many forecasts each, over all seeds, with Wilson's 95 % intervals. On the diagonal probabilities come true. "
    "ECE: the expected calibration error. ✓: may be the best."
)
_NAME = "presence_ece"
_COLUMNS, _MOST = 4, 8


def reliability_figure(study: Study, task: str) -> Figure | None:
    """Draw how often classes are present that were forecast to be, of the first losses; None without forecasts."""
    bins_of = {str(v): pooled_bins(study, task, str(v)) for v in study.summary(task).index}
    shown = [variant for variant, bins in bins_of.items() if len(bins)][:_MOST]
    if not shown:
        return None
    width = WIDTH * min(1, len(shown) / _COLUMNS)
    figure, grid = panels(len(shown), _COLUMNS, width, 2.7, sharex=True, sharey=True)
    drawn = drawn_losses(study, task)
    for axes, variant in zip(grid, shown, strict=True):
        axes.plot([0, 1], [0, 1], color=MUTED, lw=1, ls="--")
        bins, colour = bins_of[variant], drawn[variant].colour
        bounds = [
            share_interval(round(one.frequency * one.count), int(one.count))
            for one in rows_of(bins)
        ]
        axes.vlines(
            bins["probability"], *zip(*bounds, strict=True), color=colour, lw=1.4, alpha=0.6
        )
        sns.scatterplot(
            bins, x="probability", y="frequency", color=colour, ax=axes, s=24, linewidth=0
        )
        error = float(study.table(task, _NAME, "last").mean(axis=1)[variant])
        axes.set_title(literal(wrapped(drawn[variant].named(variant), 22)), fontsize=8.5)
        axes.text(0.97, 0.04, f"ECE {with_unit(error, describe(_NAME))}", transform=axes.transAxes, ha="right",
                  fontsize=8, color=MUTED)  # fmt: skip
        axes.set(
            xlim=(-0.03, 1.03),
            ylim=(-0.03, 1.03),
            xticks=(0, 0.5, 1),
            yticks=(0, 0.5, 1),
            xlabel="",
            ylabel="",
        )
        axes.set_aspect("equal")
    figure.supxlabel("mean probability", fontsize=9, color=MUTED)
    figure.supylabel("share that happened", fontsize=9, color=MUTED)
    return figure


def pooled_bins(study: Study, task: str, variant: str) -> pd.DataFrame:
    """Return the bins of a loss over all seeds that kept them: count, probability and frequency, by index."""
    bins = []
    for cell in study.done_cells(task, variant):
        bins += study.evidence(cell).reliability.get(_NAME, [])
    table = pd.DataFrame(bins, columns=["index", "count", "probability", "frequency"])
    means = ["probability", "frequency"]
    sums = (
        table.assign(**{name: table["count"] * table[name] for name in means})
        .groupby("index")
        .sum()
    )
    return sums.assign(**{name: sums[name] / sums["count"] for name in means})
