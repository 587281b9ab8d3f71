"""The chart of a search for settings: the expected best of k draws of every loss."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator

from milbench._utils.palette import COLOURS
from milbench.report.figures.style import DASHES, WIDTH
from milbench.report.study import Study
from milbench.report.tuning import arms, search_metric

CAPTION = (
    "Left: the expected least error on validation bags of k draws, for every k up to the budget that all losses "
    "had, with a pointwise bootstrap 95 % band over draws (too narrow near the whole budget). Right: every draw; the "
    "large dot was chosen, a cross failed. A loss whose curve is flat is insensitive to its settings."
)


def search_figure(study: Study, task: str) -> Figure | None:
    """Draw the expected best of k draws, and every draw, of each loss; None where settings were not searched."""
    found = arms(study, task)
    if not found:
        return None
    figure = Figure(figsize=(WIDTH, 4.2), layout="constrained")
    axes, strip = figure.subplots(1, 2, width_ratios=[3, 2], sharey=True)
    labels = [variant.loss for variant in study.variants]
    for column, arm in enumerate(found):
        index = labels.index(arm.loss) if arm.loss in labels else column
        colour, dash = COLOURS[index % len(COLOURS)], DASHES[index // len(COLOURS) % len(DASHES)]
        budget, best, errors = np.arange(1, len(arm.errors) + 1), arm.best, 100 * np.array(arm.errors)
        axes.plot(budget, 100 * best.mean, color=colour, ls=dash, lw=2.2, label=arm.loss)
        axes.fill_between(budget, 100 * best.low, 100 * best.high, color=colour, alpha=0.12, lw=0)
        strip.plot([column] * len(errors), errors, "o", color=colour, alpha=0.45, ms=5, mew=0)
        if arm.chosen >= 0:
            strip.plot([column], [errors[arm.chosen]], "o", color=colour, ms=8, mew=0)
        if any(arm.failed):
            strip.plot([column] * sum(arm.failed), errors[arm.failed], "x", color=colour, ms=7, mew=2)
    axes.set_xlabel("draws, log scale")
    axes.set_ylabel(f"{search_metric(study).label} on validation bags (%)")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:.0f}")
    axes.xaxis.set_minor_locator(NullLocator())
    strip.set_xlabel("every draw")
    strip.set_xticks([])
    strip.set_xlim(-0.5, len(found) - 0.5)
    strip.yaxis.set_major_locator(MaxNLocator(6))
    handles, names = axes.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=min(3, len(names)))
    return figure
