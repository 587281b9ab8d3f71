"""A figure of a report, with its caption and its data, as PNG and SVG files and as SVG that takes a page's colours."""

from __future__ import annotations

import html
import io
import zlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from milbench._utils.palette import BAD_SOFT, GOOD_SOFT, INK, LINE, MUTED, PAPER, WARN_SOFT
from milbench.report.figures.slim import slim
from milbench.report.figures.style import styled

_VARIABLES = {
    PAPER: "var(--card)",
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    LINE: "var(--line)",
    GOOD_SOFT: "var(--good-soft)",
    BAD_SOFT: "var(--bad-soft)",
    WARN_SOFT: "var(--warn-soft)",
}

MOST_INLINE = 6000
"""Characters of the data of a figure that its page holds: more would make a page of many figures heavy."""
_SHOWN = 115
"""Pixels an inch, at most, on a page: there letters of narrow figures are no larger than those of others."""
_DPI = 170


class Facts(NamedTuple):
    """What a figure shows: a sentence, and a line a mark or a point of a curve, of shares and not of percentages."""

    says: str
    frame: pd.DataFrame


@dataclass(frozen=True)
class ReportFigure:
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
