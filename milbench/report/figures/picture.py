"""A figure of a report: as a PNG in a file, and as SVG or PNG inside a page.

An SVG takes the colours of the page.
"""

import base64
import html
import io
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from milbench._utils.palette import (
    BAD_SOFT,
    BETTER,
    GOOD_EDGE,
    GOOD_SOFT,
    INK,
    LINE,
    MUTED,
    PAPER,
    SAME,
    TONES,
    WARN_SOFT,
    WORSE,
)

_VARIABLES = {
    PAPER: "var(--card)",
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    LINE: "var(--line)",
    GOOD_SOFT: "var(--good-soft)",
    BAD_SOFT: "var(--bad-soft)",
    WARN_SOFT: "var(--warn-soft)",
    BETTER: "var(--better)",
    SAME: "var(--same)",
    WORSE: "var(--worse)",
    GOOD_EDGE: "var(--good)",
}
_VARIABLES |= {tone.light: f"var(--{name})" for name, tone in TONES.items()}
"""Colour of a figure -> the CSS variable that replaces it, so that figures follow a dark theme."""
_PIXELS_PER_INCH = 112
"""The largest size of a figure on a page, in pixels for an inch of the figure."""
_LEAST_PIXELS_PER_INCH = 62
"""The smallest size of a figure. The screen of a telephone scrolls it sideways."""
_DPI = 150
"""The resolution of a PNG in dots per inch."""


@dataclass(frozen=True)
class Picture:
    """A figure with its title and caption."""

    name: str
    """The name of its file, without a suffix."""
    title: str
    caption: str
    figure: Figure | bytes
    """The figure, or the PNG of an earlier report if a published report cannot plot it again."""
    photographs: bool = False
    """Whether the figure has photographs: the page then shows a PNG, not an SVG."""

    def png(self) -> bytes:
        """Return the figure as a PNG."""
        return self._png

    @cached_property
    def _png(self) -> bytes:
        """The PNG, made once: page and file both need that of a figure with photographs."""
        if isinstance(self.figure, bytes):
            return self.figure
        return _as_png(self.figure)

    def html(self) -> Markup:
        """Return the figure as an element of a page.

        A screen reader says its title and caption.
        """
        text = html.escape(f"{self.title}. {self.caption}")
        if self.photographs or isinstance(self.figure, bytes):
            return _image(self.png(), text)
        svg = _themed(_shortened(_as_svg(self.figure, self.name)))
        width = self.figure.get_figwidth()
        most = round(_PIXELS_PER_INCH * width)
        least = round(_LEAST_PIXELS_PER_INCH * width)
        # report.css reads `--least` as the smallest width of a figure.
        style = f"max-width: {most}px; --least: {least}px"
        svg = svg.replace("<svg ", f'<svg role="img" aria-label="{text}" style="{style}" ', 1)
        return Markup(svg)  # noqa: S704 matplotlib escapes the text of figures


def _image(png: bytes, text: str) -> Markup:
    """Return a PNG as an element of a page, with an escaped text that describes it."""
    data = base64.b64encode(png).decode()
    return Markup(f'<img alt="{text}" src="data:image/png;base64,{data}">')  # noqa: S704


def _as_png(figure: Figure) -> bytes:
    """Return a figure as a PNG."""
    figure.set_dpi(_DPI)
    buffer = io.BytesIO()
    canvas: Any = FigureCanvasAgg(figure)
    canvas.print_png(buffer)
    return buffer.getvalue()


def _as_svg(figure: Figure, name: str) -> str:
    """Return a figure as the text of an SVG, from its root element on."""
    buffer = io.StringIO()
    # matplotlib makes ids from the salt. Different names give the figures of a page different ids.
    with rc_context({"svg.hashsalt": name}):
        canvas: Any = FigureCanvasSVG(figure)
        canvas.print_svg(buffer, metadata={"Date": None, "Creator": None})
    svg = buffer.getvalue()
    return svg[svg.index("<svg") :]


def _shortened(svg: str) -> str:
    """Return an SVG without what a page does not need, such as unused ids and comments."""
    used = set(re.findall(r"#([\w.-]+)", svg))

    def kept_id(found: re.Match[str]) -> str:
        return found[0] if found[1] in used else ""

    svg = re.sub(r' id="([^"]*)"', kept_id, svg)
    svg = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>|\n\s*", " ", svg, flags=re.DOTALL)
    # Coordinates are cut to a hundredth of a point, but not the numbers that are shown as text.
    svg = re.sub(r"(\d+\.\d\d)\d+(?![^<>]*</text>)", r"\1", svg)
    # Text takes the font of the page.
    svg = re.sub(r'font-family: [^;"]*;? ?', "", svg)
    # Empty groups do nothing. Neither do rotations by 0, which matplotlib writes as -0.
    svg = re.sub(r'<g/>| transform="rotate\(-0 [^"]*"', "", svg)
    svg = re.sub(r">\s+<", "><", svg)
    # The page sets the size of a figure. The first two sizes in the text are width and height of
    # the root element.
    return re.sub(r' width="[^"]*pt"| height="[^"]*pt"', "", svg, count=2)


def _themed(svg: str) -> str:
    """Return an SVG with CSS variables of the page in place of colours."""
    for colour, variable in _VARIABLES.items():
        svg = svg.replace(colour, variable)
    return svg


def pictures_of(
    name: str, title: str, caption: str, figure: Figure | None, photographs: bool = False
) -> list[Picture]:
    """Return a list with the picture of a figure; [] if there is no figure.

    The layout of the figure is computed once, for all formats.
    """
    if figure is None:
        return []
    # The width of letters depends a little on the resolution, so that one resolution is set for the
    # layout of PNG and SVG.
    figure.set_dpi(_DPI)
    layout = figure.get_layout_engine()
    if layout is not None:
        layout.execute(figure)
        # Axes of a fixed aspect shrink in the first pass. A second one places what is beside them.
        if any(axes.get_aspect() != "auto" for axes in figure.axes):
            layout.execute(figure)
        figure.set_layout_engine("none")
    return [Picture(name, title, caption, figure, photographs)]
