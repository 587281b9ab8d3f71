"""The style of figures: letters, lines, colours, and axes of shares that begin at zero."""

from __future__ import annotations

import gc
import math
import textwrap
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
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
"""The width of a page in inches."""
STYLE: Any = {
    "font.family": ["DejaVu Sans"], "font.size": 9.5, "text.color": INK, "svg.fonttype": "none",
    "axes.titlesize": 10.5, "axes.titleweight": "bold", "axes.titlelocation": "left", "axes.titlecolor": INK,
    "axes.labelcolor": MUTED, "axes.edgecolor": LINE, "axes.facecolor": "none", "axes.spines.top": False,
    "axes.spines.right": False, "axes.grid": True, "axes.axisbelow": True, "grid.color": LINE, "grid.linewidth": 0.7,
    "xtick.color": MUTED, "ytick.color": MUTED, "xtick.major.size": 0, "ytick.major.size": 0,
    "legend.frameon": False, "figure.facecolor": PAPER, "savefig.facecolor": "auto",
}  # fmt: skip
CHECK_MARK = "✓"
"""Marks a loss that may be the best."""
POINTS_PER_INCH = 72

_ROOT_TICKS = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
"""Where an axis by square roots may have ticks."""
_WIDE_RANGE = 8
"""A metric spans a wide range where its largest value is more than so many times its smallest."""
_NEAR_NO_SKILL = 0.4
"""Errors come near the no-skill line where the largest is more than this share of it."""
_MOST_ROOT_TICKS = 9
"""How many ticks an axis by square roots has room for."""
_NEW_OBJECTS = 50_000
"""While figures are plotted, Python looks for garbage after so many new objects."""
_LINE_HEIGHT = 9.5
"""The height of a label at the end of a line, in points."""
_LABEL_INDENT = 12
"""Between the axes and the letters of a label, in points."""
_LABEL_GAP = 3
"""Between a leader and the letters of its label, in points."""


@contextmanager
def styled() -> Iterator[None]:
    """Plot in the style of a report for the block."""
    with rc_context(STYLE), warnings.catch_warnings(), _seldom_collected():
        # A label may have letters that the font of the PNG lacks; an SVG is shown with the fonts of
        # its viewer.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        yield


@contextmanager
def _seldom_collected() -> Iterator[None]:
    """Look for garbage seldom during the block.

    A figure has tens of thousands of objects, nearly all in use. To look through them after every
    700 new objects, as Python does, takes a quarter of the time of a report.
    """
    usual = gc.get_threshold()
    gc.set_threshold(_NEW_OBJECTS, *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)


class Layout(ConstrainedLayoutEngine):
    """Places the axes of a figure, and then what depends on how large they have become."""

    def __init__(self, *, h_pad: float | None = None, w_pad: float | None = None) -> None:
        super().__init__(h_pad=h_pad, w_pad=w_pad)
        self._last_steps: list[Callable[[], None]] = []

    def call_last(self, step: Callable[[], None]) -> None:
        """Call a function whenever the axes have been placed."""
        self._last_steps.append(step)

    def execute(self, fig: Figure) -> Any:
        """Place the axes of a figure, then call the functions that wait for it."""
        grids = super().execute(fig)
        for step in self._last_steps:
            step()
        return grids


def new_figure(width: float, height: float, **pads: float) -> Figure:
    """Return an empty figure of a size in inches, whose axes are placed by `Layout`."""
    figure = Figure(figsize=(width, height), layout=Layout(**pads))
    # This canvas keeps its renderer. Without it, a renderer is made for each text that is measured.
    FigureCanvasAgg(figure)
    return figure


def panels(
    count: int, columns: int, width: float, height: float, **shared: Any
) -> tuple[Figure, list[Axes]]:
    """Return a figure of a width with panels of a height each, so many a row."""
    rows = math.ceil(count / columns)
    figure = new_figure(width, rows * height, h_pad=0.08)
    grid = figure.subplots(rows, min(count, columns), squeeze=False, **shared)
    places = list(grid.flat)
    for axes in places[count:]:
        axes.set_axis_off()
    return figure, places[:count]


def wrapped(label: str, width: int) -> str:
    """Return a label in words, as sentences have it, broken into lines."""
    lines = textwrap.wrap(readable(label), width, break_long_words=True)
    return "\n".join(lines) or label


def with_unit_of(metric: Metric) -> str:
    """Return the label of a metric with its unit, for an axis."""
    return f"{metric.label} (%)" if metric.percent else metric.label


@dataclass(frozen=True)
class LossStyle:
    """How a loss is plotted on a task: colour and marker show which loss it is, the filling shows the verdict."""

    look: Look
    is_best: bool = False
    """Whether it may be the best."""
    is_excluded: bool = False
    """Whether it is worse than the best; False where there is no verdict on any loss."""

    @property
    def colour(self) -> str:
        """The colour of lines, marks and letters."""
        return self.look.colour

    @property
    def marker_style(self) -> dict[str, Any]:
        """The style of marks: filled, but hollow where the loss is excluded."""
        face = PAPER if self.is_excluded else self.colour
        return {"marker": self.look.marker, "mfc": face, "mec": self.colour}

    @property
    def line_style(self) -> dict[str, Any]:
        """The style of a line: full, but dashed and thin where the loss is excluded."""
        if self.is_excluded:
            return {"color": self.colour, "ls": (0, (4, 2)), "lw": 1.0}
        return {"color": self.colour, "ls": "-", "lw": 1.8}

    def named(self, name: str) -> str:
        """Return a name with a check mark before it where the loss may be the best."""
        return f"{CHECK_MARK} {name}" if self.is_best else name


def loss_styles(study: Study, task: str) -> dict[str, LossStyle]:
    """Return how each loss is plotted on a task."""
    contender = study.summary(task)["contender"]
    # Where no loss may be the best, none was judged.
    has_verdicts = bool(contender.any())
    found = {}
    for name in map(str, contender.index):
        is_best = bool(contender[name])
        is_excluded = has_verdicts and not is_best
        found[name] = LossStyle(study.looks[name], is_best, is_excluded)
    return found


def styles_without_verdict(looks: Mapping[str, Look]) -> dict[str, LossStyle]:
    """Return how each loss is plotted where several tasks are in one panel."""
    return {name: LossStyle(look) for name, look in looks.items()}


def label_ends(
    axes: Axes,
    ends: Mapping[str, tuple[float, float]],
    styles: Mapping[str, LossStyle],
    texts: Mapping[str, str] | None = None,
) -> None:
    """Write the name of every line right of its end, with a leader from the end to the name.

    Names whose ends are close are moved apart, so that no two cover one another.

    Args:
        axes: of a figure by `new_figure`, as names are moved when the axes have their size.
        ends: the last point (x, y) of each line, by the name of its loss.
        styles: how each loss is plotted.
        texts: what is written in place of names.
    """
    if not ends:
        return
    if texts is None:
        texts = {name: styles[name].named(readable(name)) for name in ends}
    figure: Any = axes.get_figure(root=True)
    beside = offset_copy(axes.transAxes, figure, x=_LABEL_INDENT, units="points")
    names = sorted(ends, key=lambda name: ends[name][1])
    labels = []
    for name in names:
        # At any height: only the width of a label counts until the axes have their height.
        label = axes.text(1, 0.5, literal(texts[name]), transform=beside)
        label.set(
            va="center",
            fontsize=11 if texts[name] == CHECK_MARK else 7.5,
            color=styles[name].colour,
        )
        labels.append(label)
    colours = [styles[name].colour for name in names]
    leaders = LineCollection(
        [], colors=colours, linewidths=0.6, transform=axes.transAxes, clip_on=False, zorder=3
    )
    leaders.set_in_layout(False)
    axes.add_collection(leaders, autolim=False)

    def move_apart() -> None:
        points = axes.transData.transform([ends[name] for name in names])
        starts = axes.transAxes.inverted().transform(points)
        box = axes.get_window_extent()
        pixels_per_point = figure.dpi / POINTS_PER_INCH
        heights = _apart(starts[:, 1], _LINE_HEIGHT * pixels_per_point / box.height)
        stop = 1 + (_LABEL_INDENT - _LABEL_GAP) * pixels_per_point / box.width
        segments = []
        for label, start, height in zip(labels, starts, heights, strict=True):
            label.set_y(float(height))
            segments.append([(start[0], start[1]), (stop, height)])
        leaders.set_segments(segments)

    figure.get_layout_engine().call_last(move_apart)


def _apart(wanted: NDArray[np.float64], least: float) -> NDArray[np.float64]:
    """Move ascending heights apart, so that two are at least `least` apart, and none is far from where it should be.

    The top is 1: where labels would reach above it, they are moved down again, with those below.

    Example: 0.1, 0.2 and 0.9 that must be 0.3 apart are pushed up to 0.1, 0.4 and 0.9. The highest
    label may be at 0.85, the one below it at 0.55 and the lowest at 0.25: the result is 0.1, 0.4
    and 0.85.
    """
    # The least height that the labels below each label take up together. After it is subtracted,
    # labels that touch have equal heights: it is then enough that no label is lower than the one
    # before.
    below = least * np.arange(len(wanted))
    pushed_up = np.maximum.accumulate(wanted - below) + below
    # The middle of the highest label is half a label below the top, and labels above need room as
    # well.
    highest = 1 - least / 2
    above = below[::-1]
    heights: NDArray[np.float64] = np.minimum(pushed_up, highest - above)
    return heights


def error_axis(
    axes: Axes,
    study: Study,
    task: str,
    axis: Literal["x", "y"],
    means: pd.Series[float],
    highest: float,
) -> None:
    """Scale an axis of the primary metric of a task, and plot the no-skill line if a value comes near it.

    Args:
        axes: where the axis is.
        study: the results of the comparison.
        task: whose primary metric the axis shows.
        axis: which of its two.
        means: the values that have to be told from each other; the smallest of them decides on the
            scale.
        highest: the largest value that is shown, which may be above all means: that of a seed, or
            of an interval.
    """
    metric = study.metric(task)
    no_skill = float(study.constant_answer(task).mean())
    if metric.lower_is_better and highest > _NEAR_NO_SKILL * no_skill:
        _plot_no_skill(axes, axis, no_skill)
        highest = max(no_skill, highest)
    value_axis(axes, axis, metric, float(means.min()), float(highest))


def _plot_no_skill(axes: Axes, axis: Literal["x", "y"], value: float) -> None:
    """Plot the value of no skill as a dashed line across an axis."""
    if axis == "x":
        # Without a name: the caption of the only figure with errors on x says what the line is.
        axes.axvline(value, color=MUTED, ls="--", lw=1)
        return
    axes.axhline(value, color=MUTED, ls="--", lw=1)
    # The name stands at the right, where errors are smaller.
    axes.annotate(
        "no skill",
        (0.99, value),
        xycoords=("axes fraction", "data"),
        xytext=(0, 2),
        textcoords="offset points",
        fontsize=7.5,
        color=MUTED,
        ha="right",
    )


def value_axis(
    axes: Axes, axis: Literal["x", "y"], metric: Metric, low: float, high: float
) -> None:
    """Scale and name an axis of values: shares of errors from 0 on, other values as they come.

    The scale is linear, unless errors span a wide range. Over a wide range y has a logarithmic
    scale if no error is 0. If one is, and for x in any case, a wide range has a scale of square
    roots, which has a place for 0.

    Args:
        axes: where the axis is.
        axis: which of its two.
        metric: what the values are of.
        low: the smallest value that has to be told from others.
        high: the largest value that is shown.
    """
    scaled = axes.xaxis if axis == "x" else axes.yaxis
    label = with_unit_of(metric)
    scaled.set_label_text(label)
    # An excess over an optimum may be negative.
    is_error_share = metric.percent and metric.lower_is_better and low >= 0
    if is_error_share:
        is_wide = high > _WIDE_RANGE * low
        if is_wide and axis == "y" and low > 0:
            axes.set_ylabel(f"{label}, log scale")
            axes.set_yscale("log")
            # A little room below and above the values. No share is above 1, which has a little room
            # too.
            axes.set_ylim(0.6 * low, min(1.04, 1.3 * high))
            log_ticks(scaled, 100)
            return
        # A little room above the values. Errors of 0 alone would leave an axis without a length.
        top = min(1.04, 1.08 * high) or 1.0
        if is_wide:
            scaled.set_label_text(f"{label}, √ scale")
            _set_root_scale(axes, axis)
            scaled.set_ticks(_root_ticks(top))
        else:
            scaled.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
        _set_limits(axes, axis, 0, top)
    if metric.percent:
        # A scale that was set above has brought its own formatter.
        scaled.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.3g}"))


def _set_root_scale(axes: Axes, axis: Literal["x", "y"]) -> None:
    """Scale an axis by square roots."""

    def root(values: NDArray[Any]) -> NDArray[Any]:
        roots: NDArray[Any] = np.sqrt(np.maximum(values, 0))
        return roots

    set_scale = axes.set_xscale if axis == "x" else axes.set_yscale
    set_scale("function", functions=(root, np.square))


def _set_limits(axes: Axes, axis: Literal["x", "y"], low: float, high: float) -> None:
    set_limits = axes.set_xlim if axis == "x" else axes.set_ylim
    set_limits(low, high)


def _root_ticks(top: float) -> list[float]:
    """Return ticks of an axis by square roots up to a value: the largest first, others where they have room."""
    least_distance = math.sqrt(top) / _MOST_ROOT_TICKS
    kept: list[float] = []
    for tick in reversed(_ROOT_TICKS):
        if tick > top:
            continue
        has_room_above = not kept or math.sqrt(kept[-1]) - math.sqrt(tick) > least_distance
        has_room_below = math.sqrt(tick) > least_distance
        if has_room_above and has_room_below:
            kept.append(tick)
    return [0.0, *reversed(kept)]


def log_ticks(axis: Axis, unit: float = 1) -> None:
    """Write plain numbers, times a unit, at 1, 2, 5, 10, ... of a logarithmic axis, at fewer of a long one."""
    low, high = axis.get_view_interval()
    if high < 20 * low:
        steps: tuple[float, ...] = (1, 2, 5)
    elif high < 1000 * low:
        steps = (1, 3)
    else:
        steps = (1,)
    axis.set_major_locator(LogLocator(subs=steps))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{unit * value:.4g}"))
    axis.set_minor_locator(NullLocator())
