"""The style of figures: letters, lines, colours, labels of lines, and scales of axes."""

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
    "axes.titlesize": 10.5, "axes.titleweight": "bold", "axes.titlelocation": "left",
    "axes.titlecolor": INK, "axes.labelcolor": MUTED, "axes.edgecolor": LINE,
    "axes.facecolor": "none", "axes.spines.top": False, "axes.spines.right": False,
    "axes.grid": True, "axes.axisbelow": True, "grid.color": LINE, "grid.linewidth": 0.7,
    "xtick.color": MUTED, "ytick.color": MUTED, "xtick.major.size": 0, "ytick.major.size": 0,
    "legend.frameon": False, "figure.facecolor": PAPER, "savefig.facecolor": "auto",
}  # fmt: skip
"""Parameters of matplotlib (rcParams)."""
CHECK_MARK = "✓"
"""The sign of a loss that may be the best."""
POINTS_PER_INCH = 72

_ROOT_TICKS = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
"""The values at which an axis with a scale of square roots may have ticks."""
_WIDE_RANGE = 8
"""A metric spans a wide range if its largest value is more than this multiple of its smallest."""
_NEAR_NO_SKILL = 0.4
"""The no-skill line is shown if the largest error is more than this share of its value."""
_MOST_ROOT_TICKS = 9
"""The number of ticks that an axis with a scale of square roots has room for."""
_NEW_OBJECTS = 50_000
"""While figures are plotted, Python collects garbage after this number of new objects."""
_LINE_HEIGHT = 9.5
"""The height of a label at the end of a line, in points."""
_LABEL_INDENT = 12
"""The distance between the axes and the letters of a label, in points."""
_LABEL_GAP = 3
"""The distance between a leader and the letters of its label, in points."""


@contextmanager
def styled() -> Iterator[None]:
    """Plot in the style of a report during a `with` block."""
    with rc_context(STYLE), warnings.catch_warnings(), _seldom_collected():
        # A label may have letters that the font of the PNG lacks. The SVG of a page has them all,
        # as it is shown with the fonts of its viewer.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        yield


@contextmanager
def _seldom_collected() -> Iterator[None]:
    """Let Python collect garbage seldom during a `with` block.

    A figure has tens of thousands of objects, nearly all in use. By default Python looks for
    garbage after every 700 new objects, which takes a quarter of the time of a report.
    """
    usual = gc.get_threshold()
    gc.set_threshold(_NEW_OBJECTS, *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)


class Layout(ConstrainedLayoutEngine):
    """A layout that sets the positions of axes, and then calls steps that depend on their size."""

    def __init__(self, *, h_pad: float | None = None, w_pad: float | None = None) -> None:
        super().__init__(h_pad=h_pad, w_pad=w_pad)
        self._last_steps: list[Callable[[], None]] = []

    def call_last(self, step: Callable[[], None]) -> None:
        """Call a function each time after the positions of axes were set."""
        self._last_steps.append(step)

    def execute(self, fig: Figure) -> Any:
        """Set the positions of the axes of a figure, then call the steps of `call_last`."""
        grids = super().execute(fig)
        for step in self._last_steps:
            step()
        return grids


def new_figure(width: float, height: float, **pads: float) -> Figure:
    """Return an empty figure of a size in inches, with `Layout` as its layout."""
    figure = Figure(figsize=(width, height), layout=Layout(**pads))
    # This canvas keeps its renderer. The default canvas makes a new one for each text it measures.
    FigureCanvasAgg(figure)
    return figure


def panels(
    count: int, columns: int, width: float, height: float, **shared: Any
) -> tuple[Figure, list[Axes]]:
    """Return a figure with panels in rows, and the axes of the panels.

    Args:
        count: the number of panels.
        columns: the largest number of panels in a row.
        width: the width of the figure in inches.
        height: the height of a panel in inches.
        **shared: further arguments of `Figure.subplots`, such as sharex.
    """
    rows = math.ceil(count / columns)
    figure = new_figure(width, rows * height, h_pad=0.08)
    grid = figure.subplots(rows, min(count, columns), squeeze=False, **shared)
    all_axes = list(grid.flat)
    # The last row may have more axes than there are panels left.
    for axes in all_axes[count:]:
        axes.set_axis_off()
    return figure, all_axes[:count]


def wrapped(label: str, width: int) -> str:
    """Return a readable label, as in sentences, broken into lines of `width` letters."""
    lines = textwrap.wrap(readable(label), width, break_long_words=True)
    return "\n".join(lines) or label


def with_unit_of(metric: Metric) -> str:
    """Return the label of a metric with its unit, for an axis."""
    return f"{metric.label} (%)" if metric.percent else metric.label


@dataclass(frozen=True)
class LossStyle:
    """How a loss is plotted on a task.

    Colour and marker show which loss it is. The filling of the marker shows the verdict.
    """

    look: Look
    is_best: bool = False
    """Whether the loss may be the best."""
    is_excluded: bool = False
    """Whether the loss is worse than the best; False if there are no verdicts."""

    @property
    def colour(self) -> str:
        """The colour of lines, symbols and letters."""
        return self.look.colour

    @property
    def marker_style(self) -> dict[str, Any]:
        """The style of symbols: hollow if the loss is excluded, else filled."""
        face = PAPER if self.is_excluded else self.colour
        return {"marker": self.look.marker, "mfc": face, "mec": self.colour}

    @property
    def line_style(self) -> dict[str, Any]:
        """The style of a line: dashed and thin if the loss is excluded, else solid."""
        if self.is_excluded:
            return {"color": self.colour, "ls": (0, (4, 2)), "lw": 1.0}
        return {"color": self.colour, "ls": "-", "lw": 1.8}

    def named(self, name: str) -> str:
        """Return a name, with a check mark before it if the loss may be the best."""
        return f"{CHECK_MARK} {name}" if self.is_best else name


def loss_styles(study: Study, task: str) -> dict[str, LossStyle]:
    """Return how each loss is plotted on a task."""
    contender = study.summary(task)["contender"]
    # If no loss may be the best, there are no verdicts.
    has_verdicts = bool(contender.any())
    found = {}
    for name in map(str, contender.index):
        is_best = bool(contender[name])
        is_excluded = has_verdicts and not is_best
        found[name] = LossStyle(study.looks[name], is_best, is_excluded)
    return found


def styles_without_verdict(looks: Mapping[str, Look]) -> dict[str, LossStyle]:
    """Return how each loss is plotted in a panel with several tasks, which shows no verdicts."""
    return {name: LossStyle(look) for name, look in looks.items()}


def label_ends(
    axes: Axes,
    ends: Mapping[str, tuple[float, float]],
    styles: Mapping[str, LossStyle],
    texts: Mapping[str, str] | None = None,
) -> None:
    """Write the name of every line right of its end, with a leader from the end to the name.

    A leader is a thin line. If the ends of lines are close, their names are moved apart, so that no
    two names cover one another.

    Args:
        axes: axes of a figure by `new_figure`: its layout moves names apart when the axes have
            their size.
        ends: loss -> the last point (x, y) of its line.
        styles: loss -> how it is plotted.
        texts: loss -> the text to write in place of its name.
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
        # The height of 0.5 is a stopgap until the layout is known. The layout needs only the widths
        # of labels.
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
    # Leaders lie between axes and labels, so that the layout has to make room only for labels.
    leaders.set_in_layout(False)
    axes.add_collection(leaders, autolim=False)

    def move_apart() -> None:
        # Ends of lines and heights of labels are shares of the size of the axes.
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
    """Return heights of labels that are at least `least` apart, each near its wanted height.

    Wanted heights are ascending. Labels are pushed up by those below them, and down again if the
    highest label would reach above the top, which is 1.

    Example: labels at 0.1, 0.2 and 0.9 have to be 0.3 apart. They are pushed up to 0.1, 0.4 and
    0.9. Below the top, the highest label may be at 0.85 at most, the middle one at 0.55 and the
    lowest one at 0.25. The result is 0.1, 0.4 and 0.85.
    """
    # The room that the labels below each label need. After it is subtracted, labels that touch have
    # equal heights, and the heights must only ascend.
    below = least * np.arange(len(wanted))
    pushed_up = np.maximum.accumulate(wanted - below) + below
    # The middle of the highest label is half a label below the top. The labels above each label
    # need room as well: the reverse of the room below.
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
    """Scale an axis of the primary metric of a task, and plot the no-skill line if it is near.

    Args:
        axes: the axes that have the axis.
        study: the results of the comparison.
        task: the task, whose primary metric the axis shows.
        axis: which of the two axes shows the metric.
        means: the values that a reader has to tell apart; the smallest of them decides on the
            scale.
        highest: the largest value that is shown, such as that of a seed or the end of an interval.
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
        # The line has no name: the caption of the only figure with errors on x explains it.
        axes.axvline(value, color=MUTED, ls="--", lw=1)
        return
    axes.axhline(value, color=MUTED, ls="--", lw=1)
    # The name is written at the right end, where errors are smaller and leave room.
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
    """Scale and name an axis of the values of a metric.

    Errors that are shares begin at 0. Their scale is linear, unless they span a wide range. Then a
    y axis is logarithmic if no error is 0. Otherwise, and always on an x axis, the scale is that of
    square roots, which can show 0. All other metrics keep the scale that matplotlib chooses.

    Args:
        axes: the axes that have the axis.
        axis: which of the two axes is scaled.
        metric: the metric.
        low: the smallest value that a reader has to tell from others.
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
            # A little room is left below and above the values. As no share is above 1, the axis
            # ends at 1.04 at most.
            axes.set_ylim(0.6 * low, min(1.04, 1.3 * high))
            log_ticks(scaled, 100)
            return
        # A little room is left above the values. If all errors are 0, the axis needs some length.
        top = min(1.04, 1.08 * high) or 1.0
        if is_wide:
            scaled.set_label_text(f"{label}, √ scale")
            _set_root_scale(axes, axis)
            scaled.set_ticks(_root_ticks(top))
        else:
            scaled.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
        _set_limits(axes, axis, 0, top)
    if metric.percent:
        # Setting a scale also sets a formatter, so that this one has to be set afterwards.
        scaled.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.3g}"))


def _set_root_scale(axes: Axes, axis: Literal["x", "y"]) -> None:
    """Give an axis a scale of square roots."""

    def root(values: NDArray[Any]) -> NDArray[Any]:
        roots: NDArray[Any] = np.sqrt(np.maximum(values, 0))
        return roots

    set_scale = axes.set_xscale if axis == "x" else axes.set_yscale
    set_scale("function", functions=(root, np.square))


def _set_limits(axes: Axes, axis: Literal["x", "y"], low: float, high: float) -> None:
    set_limits = axes.set_xlim if axis == "x" else axes.set_ylim
    set_limits(low, high)


def _root_ticks(top: float) -> list[float]:
    """Return the ticks of an axis with a scale of square roots, up to the value `top`.

    From the largest tick downwards, each tick is kept that is not too near to the kept tick above,
    or to 0.
    """
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
    """Write plain numbers at the ticks 1, 2, 5, 10, ... of a logarithmic axis.

    A long axis has fewer ticks. Numbers are multiplied by `unit`.
    """
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
