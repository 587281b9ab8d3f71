"""How figures tell variants apart: colour, dash and mark, the same in every figure, and the legend that names them."""

from __future__ import annotations

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from milbench._utils.palette import COLOURS
from milbench.report.figures.style import DASHES
from milbench.report.study import Study, Variant

MARKS = ("o", "s", "^", "D")


def colour_of(study: Study, variant: Variant) -> str:
    """Return the colour of a variant."""
    return COLOURS[study.variants.index(variant) % len(COLOURS)]


def dash_of(study: Study, variant: Variant) -> str:
    """Return the dash of the lines of a variant, another one for each round of the colours."""
    return DASHES[study.variants.index(variant) // len(COLOURS) % len(DASHES)]


def mark_of(study: Study, variant: Variant) -> str:
    """Return the mark of a variant, another one for each round of the colours."""
    return MARKS[study.variants.index(variant) // len(COLOURS) % len(MARKS)]


def legend_below(figure: Figure, most: int) -> None:
    """Draw a legend below the figure, in as many columns as fit its width, `most` at most; none without lines."""
    if not any(axes.get_legend_handles_labels()[1] for axes in figure.axes):
        return
    renderer = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]
    for columns in range(most, 0, -1):
        legend = figure.legend(loc="outside lower center", ncols=columns)
        if columns == 1 or legend.get_window_extent(renderer).width <= figure.bbox.width:
            return
        legend.remove()
