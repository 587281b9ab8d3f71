"""The figure of what each loss is good for: losses by uses, each use in its own metric."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
from matplotlib.figure import Figure

from milbench._utils.palette import LINE
from milbench._utils.pictures import literal
from milbench.contracts.metric_info import Metric
from milbench.report.figures.coloured_cells import (
    GOOD,
    PLAIN,
    SILENT,
    TINTS,
    fill_cells,
    frame_good,
    name_columns,
)
from milbench.report.figures.heatmap import mean_text
from milbench.report.figures.style import WIDTH, new_figure, wrapped

CAPTION = (
    "Means over seeds with the half width of their 95 % interval, each use in its own metric. "
    "Green ✓: the loss may be the best for that use. Grey: most losses cannot be told apart, or "
    "nothing is shown to be learnt, as the head of the column says; there is no ✓."
)
_HEAD_WIDTH = 20
"""The number of letters that fit into a line above a column."""


@dataclass(frozen=True)
class UseColumn:
    """A column of the figure: how good losses are for one use."""

    title: str
    """The use, such as "whole label sets"."""
    metric: Metric
    """The metric by which the use is judged."""
    remark: str
    """Why losses are not judged, such as "too few seeds"; "" if they are judged."""
    rows: pd.DataFrame
    """A row for each loss: mean, low and high (the 95 % interval) and contender (bool)."""


def uses_figure(uses: Sequence[UseColumn], losses: Sequence[str]) -> Figure | None:
    """Plot the losses of one task in rows, and uses in columns.

    None if no use has a value. `losses` gives the order of rows.
    """
    if not losses or not any(_has_values(use) for use in uses):
        return None
    # A use without values is shown if it has a remark, which says why.
    shown = [use for use in uses if use.remark or _has_values(use)]
    codes = pd.DataFrame(PLAIN, index=list(losses), columns=range(len(shown)))
    text = pd.DataFrame("", index=list(losses), columns=range(len(shown)))
    for column, use in enumerate(shown):
        for loss in losses:
            code, words = _cell(use, loss)
            codes.loc[loss, column] = code
            text.loc[loss, column] = words
    heads = [literal(_head(use)) for use in shown]
    most_lines = 1 + max(head.count("\n") for head in heads)
    width = min(WIDTH, 2.6 + 1.4 * len(shown))
    figure = new_figure(width, 0.3 + 0.36 * len(losses) + 0.16 * most_lines, h_pad=0.08)
    axes = figure.subplots()
    frame_good(axes, codes)
    fill_cells(axes, codes, text, TINTS, size=8.0, edge=(0.8, LINE))
    name_columns(axes, heads, rotation=0, fontsize=8)
    return figure


def _has_values(use: UseColumn) -> bool:
    return bool(use.rows["mean"].notna().any())


def _cell(use: UseColumn, loss: str) -> tuple[float, str]:
    """Return the code and the text of the cell of a loss and a use."""
    is_silent = bool(use.remark)
    code = SILENT if is_silent else PLAIN
    row = use.rows.reindex([loss]).iloc[0]
    mean = float(row["mean"])
    if math.isnan(mean):
        return code, ""
    half = (float(row["high"]) - float(row["low"])) / 2
    # If losses cannot be told apart, nearly all may be the best, and a reader would take the ticks
    # for praise.
    is_best = bool(row["contender"]) and not is_silent
    if is_best:
        code = GOOD
    return code, mean_text(mean, half, use.metric, is_best)


def _head(use: UseColumn) -> str:
    """Return the head of a column: the use, its metric and the remark."""
    parts = [use.title, use.metric.heading, use.remark]
    return "\n".join(wrapped(part, _HEAD_WIDTH) for part in parts if part)
