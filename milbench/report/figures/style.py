"""The style of figures: letters, lines, and scales with units."""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator, SymmetricalLogLocator

from milbench._utils.palette import INK, LINE, MUTED, PAPER

DASHES = ("-", "--", ":", "-.")
WIDTH = 9.6
NARROW = 5.6
"""Inches, of a figure of small panels whose letters can still be read on the screen of a telephone."""
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
