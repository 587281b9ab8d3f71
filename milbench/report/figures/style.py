"""The style of figures: letters, lines, colours, and axes of shares that begin at zero."""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator
from matplotlib.transforms import offset_copy
from numpy.typing import NDArray

from milbench._utils.palette import INK, LINE, MUTED, PAPER
from milbench._utils.pictures import literal
from milbench.contracts.metric_info import Metric
from milbench.report.formatting import readable
from milbench.report.looks import Look
from milbench.report.study import Study

WIDTH = 9.6
STYLE: Any = {
    "font.family": ["DejaVu Sans"], "font.size": 9.5, "text.color": INK, "svg.fonttype": "none",
    "axes.titlesize": 10.5, "axes.titleweight": "bold", "axes.titlelocation": "left", "axes.titlecolor": INK,
    "axes.labelcolor": MUTED, "axes.edgecolor": LINE, "axes.facecolor": "none", "axes.spines.top": False,
    "axes.spines.right": False, "axes.grid": True, "axes.axisbelow": True, "grid.color": LINE, "grid.linewidth": 0.7,
    "xtick.color": MUTED, "ytick.color": MUTED, "xtick.major.size": 0, "ytick.major.size": 0,
    "legend.frameon": False, "figure.facecolor": PAPER, "savefig.facecolor": "auto",
}  # fmt: skip
TICK = "✓"
_TICKS = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)


@contextmanager
def styled() -> Iterator[None]:
    """Draw in the style of a report for the block."""
    with rc_context(STYLE), warnings.catch_warnings():
        # A label may have letters that the font of the PNG lacks; an SVG is shown with the fonts of its viewer.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        yield


def wrapped(label: str, width: int) -> str:
    """Return a label as sentences have it, broken into lines."""
    return "\n".join(textwrap.wrap(readable(label), width, break_long_words=True)) or label


def panels(
    count: int, columns: int, width: float, height: float, **shared: Any
) -> tuple[Figure, list[Axes]]:
    """Return a figure of a width with panels of a height each, so many a row."""
    rows, columns = -(-count // columns), min(count, columns)
    figure = Figure(figsize=(width, rows * height), layout=ConstrainedLayoutEngine(h_pad=0.08))
    grid = list(figure.subplots(rows, columns, squeeze=False, **shared).flat)
    for axes in grid[count:]:
        axes.set_axis_off()
    return figure, grid[:count]


@dataclass(frozen=True)
class Drawn:
    """How a loss is drawn on a task: colour and marker say which loss it is, filling what is known of it."""

    look: Look
    is_best: bool = False  # whether it may be the best
    is_excluded: bool = False  # worse than the best; False where no loss is excluded or ticked

    @property
    def colour(self) -> str:
        """The colour of lines, marks and letters."""
        return self.look.colour

    @property
    def marks(self) -> dict[str, Any]:
        """The style of marks: filled, but hollow where the loss is excluded."""
        face = PAPER if self.is_excluded else self.colour
        return {"marker": self.look.marker, "mfc": face, "mec": self.colour}

    @property
    def line(self) -> dict[str, Any]:
        """The style of a line: full, but dashed and thin where the loss is excluded."""
        if self.is_excluded:
            return {"color": self.colour, "ls": (0, (4, 2)), "lw": 1.0}
        return {"color": self.colour, "ls": "-", "lw": 1.8}

    def named(self, name: str) -> str:
        """Return a name with a tick before it where the loss may be the best."""
        return f"{TICK} {name}" if self.is_best else name


def drawn_losses(study: Study, task: str) -> dict[str, Drawn]:
    """Return how each loss is drawn on a task."""
    contender = study.summary(task)["contender"]
    is_known = bool(contender.any())
    found = {}
    for name in map(str, contender.index):
        is_best = bool(contender[name])
        found[name] = Drawn(study.looks[name], is_best, is_known and not is_best)
    return found


def without_verdict(study: Study) -> dict[str, Drawn]:
    """Return how each loss is drawn where several tasks are in one panel."""
    return {name: Drawn(look) for name, look in study.looks.items()}


def error_axis(
    axes: Axes,
    study: Study,
    task: str,
    axis: Literal["x", "y"],
    means: pd.Series[float],
    highest: float,
) -> None:
    """Scale an axis of the primary metric of a task and draw the no-skill line, where what is shown comes near it."""
    line = float(study.no_skill(task).mean())
    if study.metric(task).lower_is_better and highest > 0.4 * line:
        (axes.axvline if axis == "x" else axes.axhline)(line, color=MUTED, ls="--", lw=1)
        if axis == "y":  # at the right, where errors are smaller
            axes.annotate("no skill", (0.99, line), xycoords=("axes fraction", "data"), xytext=(0, 2), fontsize=7.5,
                          textcoords="offset points", color=MUTED, ha="right")  # fmt: skip
        highest = max(line, highest)
    value_axis(axes, axis, study.metric(task), float(means.min()), float(highest))


def label_ends(
    axes: Axes,
    ends: Mapping[str, tuple[float, float]],
    drawn: Mapping[str, Drawn],
    texts: Mapping[str, str] | None = None,
) -> None:
    """Write the name of every line right of its end (x, y), or its text, so that no two are on one another."""
    if not ends:
        return
    if texts is None:
        texts = {name: drawn[name].named(readable(name)) for name in ends}
    axes.figure.draw_without_rendering()  # type: ignore[union-attr]  # only then heights are known
    names = sorted(ends, key=lambda name: ends[name][1])
    points = axes.transData.transform([ends[name] for name in names])
    wanted = axes.transAxes.inverted().transform(points)[:, 1]
    height = axes.get_window_extent().height
    places = _apart(wanted, 9.5 / 72 * axes.figure.dpi / height)
    beside = offset_copy(axes.transAxes, axes.get_figure(root=True), x=12, units="points")
    for name, place in zip(names, places, strict=True):
        text = texts[name]
        axes.annotate(
            literal(text), ends[name], (1, place), textcoords=beside, va="center",
            fontsize=11 if text == TICK else 7.5, color=drawn[name].colour, annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": drawn[name].colour, "lw": 0.6, "shrinkA": 1, "shrinkB": 0,
                        "relpos": (0, 0.5)},
        )  # fmt: skip


def _apart(wanted: NDArray[np.float64], least: float) -> NDArray[np.float64]:
    """Return ascending heights as near to the wanted ones as may be, which are at least so far apart.

    The top is 1: where labels would end above it, they are moved down again, with those below.
    """
    steps = least * np.arange(len(wanted))
    pushed_up = np.maximum.accumulate(wanted - steps) + steps
    places: NDArray[np.float64] = np.minimum(pushed_up, 1 - steps[::-1])
    return places


def log_ticks(axis: Axis, unit: float = 1) -> None:
    """Write plain numbers, times a unit, at 1, 2, 5, 10, ... of a logarithmic axis, at fewer of a long one."""
    low, high = axis.get_view_interval()
    axis.set_major_locator(
        LogLocator(subs=(1, 2, 5) if high < 20 * low else (1, 3) if high < 1000 * low else (1,))
    )
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{unit * value:.4g}"))
    axis.set_minor_locator(NullLocator())


def value_axis(
    axes: Axes, axis: Literal["x", "y"], metric: Metric, low: float, high: float
) -> None:
    """Scale and name an axis of values: shares from 0 on; where they span a wide range y by logarithms, x by roots.

    `low` is the smallest value that has to be told from others, `high` the largest that is shown.
    """
    set_scale, set_limits = (
        (axes.set_xscale, axes.set_xlim) if axis == "x" else (axes.set_yscale, axes.set_ylim)
    )
    ticks = axes.xaxis if axis == "x" else axes.yaxis
    label = f"{metric.label}{' (%)' if metric.percent else ''}"
    ticks.set_label_text(label)
    formatter = FuncFormatter(lambda value, _: f"{100 * value:.3g}")
    if (
        not metric.percent or not metric.lower_is_better or low < 0
    ):  # an excess over an optimum may be negative
        if metric.percent:
            ticks.set_major_formatter(formatter)
        return
    if axis == "y" and high > 8 * low > 0:
        axes.set(
            ylabel=f"{label}, log scale", yscale="log", ylim=(0.6 * low, min(1.04, 1.3 * high))
        )
        log_ticks(ticks, 100)
        return
    top = min(1.04, 1.08 * high) or 1.0
    if high > 8 * low:
        ticks.set_label_text(f"{label}, √ scale")
        set_scale("function", functions=(lambda v: np.sqrt(np.maximum(v, 0)), np.square))
        apart, kept = top**0.5 / 9, [np.inf]  # the least distance of two ticks
        for tick in reversed(_TICKS):
            if tick <= top and apart < tick**0.5 < kept[-1] ** 0.5 - apart:
                kept.append(tick)
        ticks.set_ticks([0.0, *kept[:0:-1]])
    else:
        ticks.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
    ticks.set_major_formatter(formatter)  # a new scale brings its own
    set_limits(0, top)
