"""Figures of misread bags: for each variant, examples of every error pattern, a row a pattern."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from milbench._utils.palette import INK, MUTED
from milbench.api.gallery import Gallery, Misread
from milbench.api.metric_info import describe
from milbench.report.figures.bag_images import centres, draw_classes, extent_of, name_at, plain, show_colours
from milbench.report.figures.style import WIDTH, literal, wrapped

LONGEST = 6
"""The most characters of a string that are shown, so that titles do not touch; no house number has more."""
COLUMNS = 8
"""The number of examples side by side, as many as are stored of a pattern."""
_LABEL = 1.2
"""The width of the column with the names of the patterns, in widths of an example."""


def misread_figure(seen: Mapping[str, Gallery]) -> tuple[str, str, Figure] | None:
    """Return label, caption and figure of the first loss with examples of misread bags; None where there are none."""
    for variant, gallery in seen.items():
        if gallery.misread is not None and len(gallery.misread):
            return variant, _caption(gallery.misread), _figure(gallery, gallery.misread)
    return None


def _caption(misread: Misread) -> str:
    return (
        f"Test bags by error pattern, {sum(misread.counts.values())} of {misread.bags} misread. Above each: truth → "
        "read, ∅ where nothing is read. Colour: the most probable class of a position, the stronger the more probable."
    )


def _figure(gallery: Gallery, misread: Misread) -> Figure:
    rows = [name for name in misread.counts if misread.of(name)]
    side = WIDTH / (COLUMNS + _LABEL)
    layout = ConstrainedLayoutEngine(w_pad=0.02, h_pad=0.03)
    figure = Figure(figsize=(WIDTH, (side + 0.2) * len(rows) + 0.1), layout=layout)
    grid = figure.subplots(len(rows), 1 + COLUMNS, squeeze=False, width_ratios=[_LABEL, *[1] * COLUMNS])
    for name, (label, *places) in zip(rows, grid, strict=True):
        _draw_label(label, name, misread)
        examples = misread.of(name)[:COLUMNS]
        for axes, example in zip(places, examples, strict=False):
            _draw_example(axes, gallery, misread, example)
        for axes in places[len(examples) :]:
            axes.set_axis_off()
    return figure


def _draw_label(axes: Axes, pattern: str, misread: Misread) -> None:
    axes.set_axis_off()
    axes.text(0, 0.5, literal(wrapped(describe(f"error_{pattern}").label, 14)), transform=axes.transAxes, va="bottom",
              color=INK, fontweight="bold")  # fmt: skip
    axes.text(0, 0.44, f"{misread.counts[pattern]} of {misread.bags}", transform=axes.transAxes, va="top", color=MUTED)


def _draw_example(axes: Axes, gallery: Gallery, misread: Misread, example: int) -> None:
    plain(axes)
    show_colours(axes, misread.images[example])
    class_map, strengths = misread.class_maps[example], misread.strengths[example].astype(np.float32)
    ys, xs = centres(gallery)
    background = len(gallery.class_names)
    draw_classes(axes, class_map, strengths, background, extent_of(ys, xs))
    for c in np.unique(class_map[class_map < background]):
        row, column = np.unravel_index(int(np.where(class_map == c, strengths, -1).argmax()), class_map.shape)
        name_at(axes, xs[column], ys[row], gallery.class_names[c], size=8)
    title = f"{_short(misread.truth[example])} → {_short(misread.read[example])}"
    axes.set_title(literal(title), fontsize=8, fontweight="normal", loc="center", color=INK, pad=3)


def _short(string: str) -> str:
    return (string if len(string) <= LONGEST else string[: LONGEST - 1] + "…") or "∅"
