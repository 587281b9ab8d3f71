"""Small charts of lines as SVG, to be put into a page: they take the colours of its theme.

The style sheet of the site says how the classes of their parts look.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import NamedTuple

from torch import Tensor


@dataclass(frozen=True)
class Line:
    """A line of a chart."""

    label: str
    xs: Tensor
    ys: Tensor


@dataclass(frozen=True)
class Axes:
    """The axes of a chart: from the first to the last tick, and a little beyond."""

    x_label: str
    y_label: str
    x_ticks: tuple[float, ...]
    y_ticks: tuple[float, ...]
    has_symbols: bool = False
    """Whether each value has a symbol, where few values are shown."""


class Box(NamedTuple):
    """Where a chart is drawn, in units of the SVG."""

    width: int
    height: int
    left: int
    right: int
    top: int
    bottom: int


LARGE = Box(width=320, height=220, left=52, right=310, top=28, bottom=178)
SMALL = Box(width=160, height=104, left=24, right=154, top=8, bottom=86)
"""A small chart has ticks, and no words: its page says what its axes are."""
MARGIN = 0.05
"""By what share of the ticks' range the axes go on beyond the first and the last tick."""
KINDS = ("first", "second")
"""The classes of the lines, which say their colour and their style."""


def chart(lines: Sequence[Line], axes: Axes, alt: str, box: Box = LARGE) -> str:
    """Return a chart of at most two lines as an SVG element.

    Values beyond the axes are drawn at their ends. `alt` says what the chart shows.
    """
    parts = [*_ticks(axes, box)]
    for line, kind in zip(lines, KINDS, strict=False):
        parts += _line(line, kind, axes, box)
    if not lines:
        parts.append(_text((box.left + box.right) / 2, box.height / 2, "middle", alt))
    elif box == LARGE:
        parts += _words(axes, box)
        if len(lines) > 1:
            parts += _legend(lines, box)
    name = f'role="img" aria-label="{escape(alt)}"'
    return f'<svg viewBox="0 0 {box.width} {box.height}" {name}>{"".join(parts)}</svg>'


def _line(line: Line, kind: str, axes: Axes, box: Box) -> list[str]:
    """Return the path of a line, and its symbols."""
    points = [
        (_across(x, axes, box), _down(y, axes, box))
        for x, y in zip(line.xs.tolist(), line.ys.tolist(), strict=True)
    ]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    parts = [f'<polyline class="{kind}" points="{path}"/>']
    if axes.has_symbols:
        radius = 2.5 if box == LARGE else 1.5
        parts += [
            f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}"/>' for x, y in points
        ]
    return parts


def _ticks(axes: Axes, box: Box) -> list[str]:
    """Return the axes, with the numbers at their ticks and a line at 0."""
    zero = _down(0.0, axes, box)
    parts = [
        _rule(box.left, box.bottom, box.right, box.bottom),
        _rule(box.left, box.top, box.left, box.bottom),
        _rule(box.left, zero, box.right, zero),
    ]
    below = box.bottom + 14
    beside = box.left - 5
    parts += [_text(_across(x, axes, box), below, "middle", _number(x)) for x in axes.x_ticks]
    # A number is in the middle of its tick, 4 units above the foot of its digits.
    parts += [_text(beside, _down(y, axes, box) + 4, "end", _number(y)) for y in axes.y_ticks]
    return parts


def _words(axes: Axes, box: Box) -> list[str]:
    """Return the labels of both axes."""
    middle_across = (box.left + box.right) / 2
    middle_down = (box.top + box.bottom) / 2
    x_label = _text(middle_across, box.height - 8, "middle", axes.x_label)
    y_label = _text(0, 0, "middle", axes.y_label)
    return [x_label, f'<g transform="translate(12 {middle_down}) rotate(-90)">{y_label}</g>']


def _legend(lines: Sequence[Line], box: Box) -> list[str]:
    """Return a sample of each line and its label, side by side above the chart."""
    parts = []
    for number, (line, kind) in enumerate(zip(lines, KINDS, strict=False)):
        left = box.left + number * (box.right - box.left) / 2
        parts.append(f'<polyline class="{kind}" points="{left},12 {left + 24},12"/>')
        parts.append(_text(left + 30, 16, "start", line.label))
    return parts


def _across(x: float, axes: Axes, box: Box) -> float:
    """Return how far from the left a value is drawn."""
    share = _share(x, axes.x_ticks)
    return box.left + share * (box.right - box.left)


def _down(y: float, axes: Axes, box: Box) -> float:
    """Return how far from the top a value is drawn."""
    share = _share(y, axes.y_ticks)
    return box.bottom - share * (box.bottom - box.top)


def _share(value: float, ticks: Sequence[float]) -> float:
    """Return where a value is on an axis, from 0 to 1."""
    extra = MARGIN * (ticks[-1] - ticks[0])
    start = ticks[0] - extra
    end = ticks[-1] + extra
    return min(max((value - start) / (end - start), 0.0), 1.0)


def _rule(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1}" y1="{y1:.1f}" x2="{x2}" y2="{y2:.1f}"/>'


def _text(x: float, y: float, anchor: str, words: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def _number(value: float) -> str:
    """Return a number with a true minus sign."""
    return f"{value:g}".replace("-", "\N{MINUS SIGN}")
