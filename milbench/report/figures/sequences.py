"""Pictures of what each loss hears when: a column a test sequence, below it a row of strips for each loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from milbench._utils.palette import INK, class_colours
from milbench._utils.pictures import edges, literal, plain
from milbench.api.gallery import Gallery
from milbench.report.figures.bag_images import centres, set_name, write_verdict
from milbench.report.figures.style import WIDTH, wrapped

MOST_BAGS = 3
MOST_STRIPS = 12
_TICKS = 4
_STRIP, _FRAMES, _TITLE = 0.13, 1.25, 0.28
"""Heights in inches: of a class's strip, of the frames of a sequence, and of the line above either."""


def sequence_figure(seen: Mapping[str, Gallery]) -> Figure:
    """Draw the frames of the first test sequences and, below them, the probability of each class over time.

    Time is in seconds where it is known how many frames a second has, else in frames. The galleries of all losses are
    of the same sequences.
    """
    first = next(iter(seen.values()))
    bags = range(min(MOST_BAGS, *(len(gallery) for gallery in seen.values())))
    classes = _shown_classes(list(seen.values()), bags)
    heights = [_FRAMES + _TITLE, *[_STRIP * len(classes) + _TITLE] * len(seen)]
    figure = Figure(figsize=(WIDTH, sum(heights) + 0.3), layout="constrained")
    grid = figure.subplots(1 + len(seen), len(bags), squeeze=False, height_ratios=heights)
    for bag in bags:
        _draw_frames(grid[0, bag], first, bag)
        for axes, gallery in zip(grid[1:, bag], seen.values(), strict=True):
            _draw_strips(axes, gallery, bag, classes)
    for axes, name in zip(grid[:, 0], ["truth", *seen], strict=True):
        axes.set_ylabel(literal(wrapped(name, 14)), color=INK, fontweight="bold")
    for axes in grid[1:, 0]:
        axes.set_yticks(range(len(classes)), [literal(first.class_names[c]) for c in classes], fontsize=7.5)
    for axes in grid[-1]:
        axes.xaxis.set_major_locator(MaxNLocator(_TICKS))
        axes.tick_params(axis="x", labelsize=7.5)
    figure.supxlabel("frames" if first.frames_per_second is None else "seconds", fontsize=9)
    return figure


def _shown_classes(galleries: Sequence[Gallery], bags: Sequence[int]) -> list[int]:
    """Return all classes where they are few, else those that occur or are detected in a sequence that is shown."""
    count = len(galleries[0].class_names)
    if count <= MOST_STRIPS:
        return list(range(count))
    found = {c for gallery in galleries for bag in bags for c in gallery.true(bag) | gallery.detected(bag)}
    return sorted(found or range(count))[:MOST_STRIPS]


def _draw_frames(axes: Axes, gallery: Gallery, bag: int) -> None:
    plain(axes)
    frames = gallery.instances[bag]
    frames = frames[:, : _length(gallery, bag)]
    end = frames.shape[1] * _step(gallery)
    axes.imshow(frames, cmap="gray", aspect="auto", origin="lower", extent=(0, end, 0, frames.shape[0]))
    colours = class_colours(len(gallery.class_names))
    for cls, start, end in _events(gallery, bag):
        box = Rectangle((start, 0), end - start, len(frames), fill=False, ec=colours[cls], lw=1.6)
        axes.add_patch(box)
    said = literal(set_name(gallery.true(bag), gallery.class_names))
    axes.set_title(said, fontsize=9, loc="center", color=INK, pad=3)


def _draw_strips(axes: Axes, gallery: Gallery, bag: int, classes: list[int]) -> None:
    plain(axes)
    probs = gallery.probs[bag, classes].astype(np.float32)
    if gallery.mask is not None:
        probs = np.where(gallery.mask[bag], probs, 0)
    colours = class_colours(len(gallery.class_names))
    rgba = np.zeros((*probs.shape, 4))
    rgba[..., :3] = np.array([to_rgb(colours[c]) for c in classes])[:, None]
    rgba[..., 3] = probs
    left, right = edges(centres(gallery)[1] * np.float32(_step(gallery)))
    axes.imshow(rgba, interpolation="none", aspect="auto", extent=(left, right, len(classes) - 0.5, -0.5))
    for cls, start, end in _events(gallery, bag):
        if cls in classes:
            low = classes.index(cls) - 0.45  # so that the first strip's frame is not cut off
            axes.add_patch(Rectangle((start, low), end - start, 0.9, fill=False, ec=INK, lw=0.8))
    axes.set_xlim(0, _length(gallery, bag) * _step(gallery))
    write_verdict(axes, gallery, bag)


def _events(gallery: Gallery, bag: int) -> list[tuple[int, float, float]]:
    """Return class, begin and end of the true events of a sequence; none where they are not known."""
    if gallery.boxes is None or gallery.classes is None:
        return []
    found = zip(gallery.classes[bag].tolist(), gallery.boxes[bag].tolist(), strict=True)
    step = _step(gallery)
    return [(cls, box[0] * step, box[2] * step) for cls, box in found if cls >= 0]


def _length(gallery: Gallery, bag: int) -> int:
    return int((~np.isnan(gallery.instances[bag, 0])).sum())


def _step(gallery: Gallery) -> float:
    """Return how much of the axis of time a frame is: its seconds, or 1 where these are not known."""
    return 1 if gallery.frames_per_second is None else 1 / gallery.frames_per_second
