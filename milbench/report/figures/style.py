"""The style of figures: letters, lines, colours, and axes of shares that begin at zero."""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from milbench._utils.palette import COLOURS, INK, LINE, MUTED, PAPER, distinct
from milbench.api.metric_info import Metric
from milbench.report.study import Study

WIDTH = 9.6
STYLE: Any = {
    "font.family": ["DejaVu Sans"],
    "font.size": 9.5,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlecolor": INK,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": LINE,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": LINE,
    "grid.linewidth": 0.7,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "legend.frameon": False,
    "figure.facecolor": PAPER,
    "savefig.facecolor": "auto",
    "svg.fonttype": "none",
}
GREY = "#8b95a1"
"""Of losses that are not contenders: seen on white and on black."""
_TICKS = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)


@contextmanager
def styled() -> Iterator[None]:
    """Draw in the style of a report for the block."""
    with rc_context(STYLE), warnings.catch_warnings():
        # A label may have letters that the font of the PNG lacks; an SVG is shown with the fonts of its viewer.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        yield


def wrapped(label: str, width: int = 26) -> str:
    """Return a label broken into lines."""
    return "\n".join(textwrap.wrap(label, width, break_long_words=True)) or label


def colours(study: Study, task: str) -> dict[str, Any]:
    """Return a colour for each loss that may be the best on a task, the same on every task, and grey for the others."""
    found, palette = study.summary(task)["contender"], distinct(COLOURS, len(study.colours))
    return {
        str(variant): palette[study.colours[str(variant)]] if is_contender else GREY
        for variant, is_contender in found.items()
    }


def value_axis(axes: Axes, axis: Literal["x", "y"], metric: Metric, low: float, high: float) -> None:
    """Scale and name an axis of values: shares from 0 on, by square roots where they span a wide range.

    `low` is the smallest value that has to be told from others, `high` the largest that is shown.
    """
    set_scale, set_limits = (axes.set_xscale, axes.set_xlim) if axis == "x" else (axes.set_yscale, axes.set_ylim)
    ticks = axes.xaxis if axis == "x" else axes.yaxis
    label = f"{metric.label}{' (%)' if metric.percent else ''}"
    ticks.set_label_text(label)
    formatter = FuncFormatter(lambda value, _: f"{100 * value:.3g}")
    if not metric.percent or not metric.lower_is_better or low < 0:  # an excess over an optimum may be negative
        if metric.percent:
            ticks.set_major_formatter(formatter)
        return
    top = min(1.04, 1.08 * high) or 1.0
    if high > 8 * low:
        ticks.set_label_text(f"{label}, √ scale")
        set_scale("function", functions=(lambda v: np.sqrt(np.maximum(v, 0)), np.square))
        shown = [tick for tick in _TICKS if tick <= top]
        least = (top**0.5) / 9
        kept: list[float] = []
        for tick in reversed(shown):
            if not kept or kept[-1] ** 0.5 - tick**0.5 > least:
                kept.append(tick)
        ticks.set_ticks(sorted({0.0, *kept}))
    else:
        ticks.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
    ticks.set_major_formatter(formatter)  # a new scale brings its own
    set_limits(0, top)
