"""A table as a picture, whose cells have a colour and a text that say the same."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from milbench._utils.palette import BAD_SOFT, GOOD_EDGE, GOOD_SOFT, INK, LINE, WARN_SOFT
from milbench._utils.pictures import literal
from milbench.report.figures.style import new_figure, wrapped
from milbench.report.formatting import readable

# The codes of cells. They are floats, as a table of codes has NaN for a missing cell.
PLAIN = 0.0
GOOD = 1.0
OPEN = 2.0
BAD = 3.0
SILENT = 4.0
"""The code of a cell without a verdict, in a figure where other cells may have one."""
TINTS = ("none", GOOD_SOFT, WARN_SOFT, BAD_SOFT, LINE)
"""The colour of each code, from `PLAIN` on."""
_MANY_COLUMNS = 12
"""With more columns, letters are small."""


def cells_figure(codes: pd.DataFrame, text: pd.DataFrame, width: float) -> Figure:
    """Plot a table of codes as colours, with text on them and upright names of columns."""
    has_two_lines = text.map(lambda cell: "\n" in cell).any(axis=None)
    row_height = 0.36 if has_two_lines else 0.27
    longest_head = max(len(str(column)) for column in codes.columns)
    height = 0.9 + row_height * len(codes) + 0.055 * longest_head
    figure = new_figure(width, height, h_pad=0.15)
    axes = figure.subplots()
    letters = 8.0 if codes.shape[1] <= _MANY_COLUMNS else 6.2
    frame_good(axes, codes)
    fill_cells(axes, codes, text, TINTS, size=letters, edge=(0.8, LINE))
    heads = [literal(wrapped(str(column), 18)) for column in codes.columns]
    name_columns(axes, heads, rotation=90, fontsize=7.5)
    rows = [literal(wrapped(str(row), 40)) for row in codes.index]
    axes.set_yticks(_middles(rows), rows, fontsize=8.5)
    return figure


def frame_good(axes: Axes, codes: pd.DataFrame) -> None:
    """Draw a frame around every good cell, for readers who cannot see its tint."""
    frames = []
    for row, column in np.argwhere(codes.to_numpy() == GOOD):
        frames.append(Rectangle((column + 0.03, row + 0.04), 0.94, 0.92))
    if frames:
        axes.add_collection(
            PatchCollection(frames, facecolor="none", edgecolor=GOOD_EDGE, linewidth=1, zorder=3)
        )


def fill_cells(
    axes: Axes,
    codes: pd.DataFrame,
    text: pd.DataFrame,
    colours: Sequence[str],
    *,
    size: float,
    edge: tuple[float, str],
) -> None:
    """Fill every cell with the colour of its code, and write its text and the names of rows.

    Args:
        axes: the axes to draw on.
        codes: the code of each cell, NaN for a missing cell.
        text: the text of each cell.
        colours: the colour of each code, from code 0 on.
        size: the size of letters in points.
        edge: the width in points and the colour of the lines between cells.
    """
    rows, columns = codes.shape
    width, colour = edge
    # With these limits every code lies in the middle of the range of its colour.
    axes.pcolormesh(
        np.ma.masked_invalid(codes.to_numpy(float)),
        cmap=ListedColormap(list(colours)),
        vmin=-0.5,
        vmax=len(colours) - 0.5,
        linewidths=width,
        edgecolor=colour,
    )
    # y goes downwards, so that the first row is at the top.
    axes.set(xlim=(0, columns), ylim=(rows, 0))
    for (row, column), shown in np.ndenumerate(text.to_numpy()):
        if shown:
            axes.text(
                column + 0.5, row + 0.5, shown, ha="center", va="center", size=size, color=INK
            )
    axes.spines[:].set_visible(False)
    axes.grid(visible=False)
    axes.xaxis.tick_top()
    names = [literal(readable(str(label))) for label in codes.index]
    axes.set_yticks(_middles(names), names, color=INK)


def name_columns(axes: Axes, heads: Sequence[str], *, rotation: float, fontsize: float) -> None:
    """Write the names of columns above them."""
    axes.set_xticks(_middles(heads), heads, rotation=rotation, color=INK, fontsize=fontsize)


def _middles(names: Sequence[str]) -> list[float]:
    """Return the middle of the row or column of each name."""
    return [number + 0.5 for number in range(len(names))]
