"""The figure of the test error to expect of each loss against the number of settings tried."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from milbench.contracts.metric_info import Metric
from milbench.report.figures.lines import plot_line
from milbench.report.figures.style import label_ends, new_figure, styles_without_verdict, value_axis
from milbench.report.looks import Look

CAPTION = (
    "Validation bags choose one of the draws of settings that were tried. The line is the error on "
    "test bags to expect of the chosen draw, with its 95 % interval. Whoever searches less should "
    "look further to the left."
)


def budget_figure(curves: pd.DataFrame, metric: Metric, looks: Mapping[str, Look]) -> Figure | None:
    """Plot the expected test error on a task against the number of draws.

    None if there are values for fewer than two numbers of draws.

    Args:
        curves: a row for each loss and number of draws, with the columns loss (its label), draws,
            expected, low and high.
        metric: the metric of the error.
        looks: label of a loss -> its look.
    """
    known = curves.dropna(subset="expected").sort_values("draws")
    numbers = sorted(set(known["draws"].astype(int)))
    if len(numbers) < 2:
        return None
    figure = new_figure(6.6, 3.4)
    axes = figure.subplots()
    styles = styles_without_verdict(looks)
    ends = {}
    for name, rows in known.groupby("loss", sort=False):
        by_number = rows.set_index("draws")
        line = by_number["expected"]
        plot_line(axes, line, (by_number["low"], by_number["high"]), styles[str(name)])
        ends[str(name)] = (int(line.index[-1]), float(line.iloc[-1]))
    lowest = float(known["expected"].min())
    highest = float(np.nanmax(known[["expected", "high"]].to_numpy()))
    value_axis(axes, "y", metric, lowest, highest)
    axes.set_ylabel(f"expected {axes.get_ylabel()}")
    axes.set_xscale("log")
    axes.set_xticks(numbers, [f"{number:,}" for number in numbers])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("draws of settings that were tried, log scale")
    label_ends(axes, ends, styles)
    return figure
