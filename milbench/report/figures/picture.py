"""A figure of a report: a PNG in a file, and SVG or PNG inside a page that takes the page's colours."""

import base64
import html
import io
import re
from dataclasses import dataclass
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
    PAPER: "var(--card)", INK: "var(--ink)", MUTED: "var(--muted)", LINE: "var(--line)", GOOD_SOFT: "var(--good-soft)",
    BAD_SOFT: "var(--bad-soft)", WARN_SOFT: "var(--warn-soft)", BETTER: "var(--better)", SAME: "var(--same)",
    WORSE: "var(--worse)", GOOD_EDGE: "var(--good)",
}  # fmt: skip
_VARIABLES |= {tone.light: f"var(--{name})" for name, tone in TONES.items()}
_PIXELS, _LEAST = 112, 62  # of an inch on a page, at most, and on the screen of a telephone
_DPI = 150


@dataclass(frozen=True)
class Picture:
    """A figure, or the bytes of an earlier PNG, with its caption. Photographs are PNGs on the page too."""

    name: str
    title: str
    caption: str
    figure: Figure | bytes
    photographs: bool = False

    def png(self, dpi: int = _DPI) -> bytes:
        """Return the figure as a PNG."""
        if isinstance(self.figure, bytes):
            return self.figure
        buffer = io.BytesIO()
        self.figure.set_dpi(dpi)
        canvas: Any = FigureCanvasAgg(self.figure)
        canvas.print_png(buffer)
        return buffer.getvalue()

    def html(self) -> Markup:
        """Return the figure for a page, with its title and caption as the text that a screen reader says."""
        text = html.escape(f"{self.title}. {self.caption}")
        if self.photographs or isinstance(self.figure, bytes):
            data = base64.b64encode(self.png(100)).decode()
            return Markup(f'<img alt="{text}" src="data:image/png;base64,{data}">')  # noqa: S704 escaped above
        buffer = io.StringIO()
        with rc_context({"svg.hashsalt": self.name}):  # so that figures of one page share no id
            canvas: Any = FigureCanvasSVG(self.figure)
            canvas.print_svg(buffer, metadata={"Date": None, "Creator": None})
        svg = buffer.getvalue()
        used = set(re.findall(r"#([\w.-]+)", svg))
        svg = re.sub(
            r' id="([^"]*)"', lambda m: m[0] if m[1] in used else "", svg[svg.index("<svg") :]
        )
        svg = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>|\n\s*", " ", svg, flags=re.DOTALL)
        svg = re.sub(r"(\d+\.\d\d)\d+(?![^<>]*</text>)", r"\1", svg)
        svg = re.sub(r"font-family: [^;\"]*;? ?|<g/>| transform=\"rotate\(-0 [^\"]*\"", "", svg)
        svg = re.sub(r">\s+<", "><", svg)
        for colour, variable in _VARIABLES.items():
            svg = svg.replace(colour, variable)
        svg = re.sub(r' width="[^"]*pt"| height="[^"]*pt"', "", svg, count=2)
        width = self.figure.get_figwidth()
        style = f"max-width: {round(_PIXELS * width)}px; --least: {round(_LEAST * width)}px"
        svg = svg.replace("<svg ", f'<svg role="img" aria-label="{text}" style="{style}" ', 1)
        return Markup(svg)  # noqa: S704 matplotlib escapes the text of figures


def drawn(
    name: str, title: str, caption: str, figure: Figure | None, photographs: bool = False
) -> list[Picture]:
    """Return a picture with its layout computed once for all formats; none for no figure."""
    if figure is None:
        return []
    figure.set_dpi(_DPI)  # letters have another width at another resolution
    for _ in range(2):  # the first pass moves labels whose height the second one knows
        figure.draw_without_rendering()
    figure.set_layout_engine("none")
    return [Picture(name, title, caption, figure, photographs)]
