"""The style of figures, and their formats: PNG and SVG files, and SVG that takes the colours of a page."""

from __future__ import annotations

import html
import io
import textwrap
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator, SymmetricalLogLocator

from milbench._utils.palette import BAD_SOFT, GOOD_SOFT, INK, LINE, MUTED, PAPER, WARN_SOFT
from milbench.report.figures.slim import slim

_VARIABLES = {
    PAPER: "var(--card)",
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    LINE: "var(--line)",
    GOOD_SOFT: "var(--good-soft)",
    BAD_SOFT: "var(--bad-soft)",
    WARN_SOFT: "var(--warn-soft)",
}

DASHES = ("-", "--", ":", "-.")
WIDTH = 9.6
NARROW = 5.6
"""Inches, of a figure of small panels whose letters can still be read on the screen of a telephone."""
MOST_INLINE = 6000
"""Characters of the data of a figure that its page holds: more would make a page of many figures heavy."""
_SHOWN = 115
"""Pixels an inch, at most, on a page: there letters of narrow figures are no larger than those of others."""
_DPI = 170

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
    "svg.hashsalt": "milbench",
}


class Facts(NamedTuple):
    """What a figure shows: a sentence, and a line a mark or a point of a curve, of shares and not of percentages."""

    says: str
    frame: pd.DataFrame


@dataclass(frozen=True)
class Picture:
    """A figure with its caption.

    Args:
        name: the name of its files, without their suffix.
        kind: its place in the report: "seeds", "curves", "reliability", "reliability-sets", "costs", "pareto",
            "gallery", "sensitivity" or "errors-1", ...
        task: the label of the task.
        title: the heading of its caption.
        caption: sentences that explain it.
        figure: the drawing.
        facts: what it shows, for those who cannot see it, and its data.
    """

    name: str
    kind: str
    task: str
    title: str
    caption: str
    figure: Figure
    facts: Facts

    @property
    def alternative(self) -> str:
        """The text in place of the drawing: what it is and what it shows."""
        return f"{self.title}. {self.facts.says}"

    @cached_property
    def csv(self) -> str:
        """The data of the drawing, of shares and not of percentages."""
        return self.facts.frame.to_csv(index=False, float_format="%.5g", lineterminator="\n")

    def __post_init__(self) -> None:
        with styled():
            self.figure.draw_without_rendering()
            self.figure.set_layout_engine("none")  # one layout for every format

    @cached_property
    def svg(self) -> str:
        """The figure as the text of an SVG file, the same for the same data."""
        buffer = io.StringIO()
        with styled():
            # Not by savefig, which would draw everything once more for a layout.
            canvas: Any = FigureCanvasSVG(self.figure)
            canvas.print_svg(buffer, metadata={"Date": None, "Creator": None})
        return buffer.getvalue()

    def write(self, folder: Path) -> None:
        """Write PNG, SVG and the data as CSV into a folder."""
        # The SVG comes last: a figure keeps what drew it last, and the pixels of many figures would fill the memory.
        dpi = self.figure.dpi
        with styled():
            self.figure.set_dpi(_DPI)
            canvas: Any = FigureCanvasAgg(self.figure)
            canvas.print_png(folder / f"{self.name}.png")
            self.figure.set_dpi(dpi)
        (folder / f"{self.name}.svg").write_text(self.svg, "utf-8")
        (folder / f"{self.name}.csv").write_text(self.csv, "utf-8")

    @cached_property
    def inline(self) -> str:
        """The SVG for a page that holds several: small, with ids of its own and the colours of the page."""
        svg = slim(self.svg[self.svg.index("<svg") :], f"f{zlib.crc32(self.name.encode()):x}-")
        for colour, variable in _VARIABLES.items():
            svg = svg.replace(colour, variable)
        widest = round(_SHOWN * self.figure.get_figwidth())
        text = html.escape(self.alternative)
        return svg.replace("<svg ", f'<svg role="img" aria-label="{text}" style="max-width: {widest}px" ', 1)

    def data_link(self) -> str:
        """Return the address of its data: in the page itself, or of the file beside it where they are many."""
        if len(self.csv) > MOST_INLINE:
            return f"figures/{self.name}.csv"
        return "data:text/csv;charset=utf-8," + quote(self.csv, safe=",.;:+-=()[]")


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


def literal(text: str) -> str:
    """Return text escaped for matplotlib, for which a pair of dollars would start a formula."""
    return text.replace("$", r"\$")


def scale_axis(
    axes: Axes,
    axis: Literal["x", "y"],
    values: Sequence[float],
    widest_linear: float = 20.0,
    subs: Sequence[float] = (1, 2, 5),
) -> str:
    """Set a logarithmic scale where the values of an axis span a wide range; zeros then lie on a linear part below it.

    A logarithmic scale is to be announced beside the axis by the words that are returned.

    Args:
        axes: the axes.
        axis: the axis of them.
        values: all values along it; with a negative one the scale stays linear.
        widest_linear: the ratio of the largest to the smallest positive value from which the scale is logarithmic.
        subs: the multiples of powers of ten that have a label, as long as the values span less than a factor of 300.

    Returns:
        ", log scale", and from where it is linear; "" for a linear one.
    """
    positive = [value for value in values if value > 0]
    if not positive or min(values) < 0 or max(positive) / min(positive) < widest_linear:
        return ""
    set_scale = axes.set_xscale if axis == "x" else axes.set_yscale
    ticks = axes.xaxis if axis == "x" else axes.yaxis
    subs = subs if max(positive) / min(positive) < 300 else (1,)
    told = ", log scale"
    if len(positive) == len(values):
        set_scale("log")
        ticks.set_major_locator(LogLocator(subs=subs))
    else:
        # Below a ten-thousandth of the largest value the labels of a logarithmic scale would lie on one another.
        least = max(min(positive), max(positive) / 1e4)
        told += f", linear below {least:.3g}"
        set_scale("symlog", linthresh=least, linscale=0.4)
        ticks.set_major_locator(SymmetricalLogLocator(base=10, linthresh=least, subs=subs))
    ticks.set_minor_locator(NullLocator())
    ticks.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}" if value >= 0 else ""))
    return told


def unit_axis(axes: Axes, values: Sequence[float], unit: Callable[[float], str], label: str = "") -> None:
    """Label a horizontal axis of costs with units; it starts at zero unless the values span more than a factor of five.

    Args:
        axes: the axes.
        values: all values along the axis.
        unit: returns a value as text with its unit.
        label: of the axis, to which is added that its scale is logarithmic where it is.
    """
    positive = [value for value in values if value > 0]
    # Where fewer than two labels fit between the ends, matplotlib would set one at every digit.
    few = bool(positive) and max(positive) < 10 * min(positive)
    told = scale_axis(axes, "x", values, widest_linear=5, subs=(1, 2, 5) if few else (1, 3))
    axes.set_xlabel(f"{label}{told}".removeprefix(", "))
    if axes.get_xscale() == "linear":
        axes.set_xlim(0, max(values, default=0) * 1.2 or 1)
        axes.xaxis.set_major_locator(MaxNLocator(3))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _plain(unit(value)) if value > 0 else "0"))
    axes.tick_params(axis="x", labelsize=8.5)


def _plain(text: str) -> str:
    """Return "2 ms" for "2.00 ms"."""
    value, _, unit = text.partition(" ")
    return f"{value.rstrip('0').rstrip('.') if '.' in value else value} {unit}"
