"""Pictures of what each loss detects where: a row a test bag, a column a loss."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Rectangle

from milbench._utils.palette import INK, MUTED, class_colours
from milbench._utils.pictures import draw_classes, extent_of, literal, name_at, plain, show_grey
from milbench.api.gallery import Gallery, load
from milbench.errors import UsageError
from milbench.report.figures.bag_images import centres, set_name, write_verdict
from milbench.report.figures.sequences import sequence_figure
from milbench.report.figures.style import WIDTH, wrapped
from milbench.report.study import Study, rows_of

MOST_BAGS, MOST_LOSSES = 4, 7
GALLERY_FILE = "gallery.npz"
CAPTION = (
    "Test bags with what each loss finds where. Above each: the label set that the loss names, ✓ if it is right. "
    "Colour: the most probable class of a position, the stronger the more probable; frames: the true instances."
)
MOST_NAMED = 60
"""Instances of a class in a set that are named beside their points; more are points alone."""


def gallery_figure(seen: Mapping[str, Gallery]) -> Figure | None:
    """Draw what each loss detects where in the first test bags; None where there is no gallery."""
    if any(gallery.kind == "sequence" for gallery in seen.values()):
        return sequence_figure(seen)
    return _bags_by_loss(seen) if seen else None


def galleries(study: Study, task: str) -> dict[str, Gallery]:
    """Return the galleries of the first losses that have one, the best mean first, all of one seed.

    Where every seed has test bags of its own, these are then the same bags for all losses.
    """
    folders = study.results.folders
    kept = {
        (row.variant, row.seed): folders[row.cell] / GALLERY_FILE
        for row in rows_of(study.cells_of(task))
        if row.cell in folders and (folders[row.cell] / GALLERY_FILE).is_file()
    }
    if not kept:
        return {}
    seeds = Counter(seed for _, seed in kept)
    seed = min(seeds, key=lambda seed: (-seeds[seed], seed))
    found: dict[str, Gallery] = {}
    for variant in map(str, study.summary(task).index):
        if (variant, seed) in kept and len(found) < MOST_LOSSES:
            try:
                found[variant] = load(kept[variant, seed])
            except UsageError:
                continue  # without the picture the numbers can still be shown
    return found


def _bags_by_loss(seen: Mapping[str, Gallery]) -> Figure:
    bags = min(MOST_BAGS, *(len(gallery) for gallery in seen.values()))
    columns = 1 + len(seen)
    side = max(1.25, WIDTH / max(columns, 5))
    layout = ConstrainedLayoutEngine(w_pad=0.03, h_pad=0.03)
    figure = Figure(figsize=(max(WIDTH, side * columns), (side + 0.32) * bags + 0.5), layout=layout)
    grid = figure.subplots(bags, columns, squeeze=False)
    first = next(iter(seen.values()))
    for bag, (truth, *places) in enumerate(grid):
        _draw_bag(truth, first, bag, None if first.position_classes is None else first.position_classes[bag], None)
        true = literal(set_name(first.true(bag), first.class_names))
        truth.set_title(true, fontsize=9, loc="center", color=INK, pad=3)
        for axes, gallery in zip(places, seen.values(), strict=True):
            strengths = gallery.probs[bag].astype(np.float32).max(axis=0)
            _draw_bag(axes, gallery, bag, gallery.class_map(bag), strengths)
            write_verdict(axes, gallery, bag)
    # Without instance truth the label set is all that is known of a bag.
    known = first.boxes is not None or first.position_classes is not None
    for axes, name in zip(grid[0], ["truth" if known else "label set", *seen], strict=True):
        axes.annotate(literal(wrapped(name, 20)), (0.5, 1), xytext=(0, 20), xycoords="axes fraction", ha="center",
                      textcoords="offset points", fontsize=10, fontweight="bold", annotation_clip=False)  # fmt: skip
    return figure


def _draw_bag(axes: Axes, gallery: Gallery, bag: int, classes: Any, strengths: Any) -> None:
    """Draw a bag with its true boxes, and the class of every position, None where they are not known."""
    plain(axes)
    if gallery.kind != "image":
        _scatter(axes, gallery, bag, classes, strengths)
        return
    show_grey(axes, gallery.instances[bag])
    if gallery.boxes is not None and gallery.classes is not None:
        for left, top, right, bottom in gallery.boxes[bag][gallery.classes[bag] >= 0].tolist():
            box = Rectangle((left, top), right - left, bottom - top, fill=False, ec="white", lw=0.9, alpha=0.8)
            axes.add_patch(box)
    if classes is not None:
        ys, xs = centres(gallery)
        draw_classes(axes, classes, strengths, len(gallery.class_names), extent_of(ys, xs))
        for (row, column), name in _named_places(gallery, bag).items():
            name_at(axes, xs[column], ys[row], name)


def _named_places(gallery: Gallery, bag: int) -> dict[tuple[int, int], str]:
    """Return the most probable position of each detected class, as for the hit rate: (row, column) -> its name."""
    places: dict[tuple[int, int], list[str]] = {}
    for index in sorted(gallery.detected(bag)):
        strengths = gallery.probs[bag, index].astype(np.float32)
        if gallery.mask is not None:
            strengths = np.where(gallery.mask[bag], strengths, -1)
        row, column = np.unravel_index(int(strengths.argmax()), strengths.shape)
        places.setdefault((int(row), int(column)), []).append(gallery.class_names[index])
    return {place: " ".join(names) for place, names in places.items()}


def _scatter(axes: Axes, gallery: Gallery, bag: int, classes: Any, strengths: Any) -> None:
    background = len(gallery.class_names)
    points = gallery.instances if gallery.coords is None else gallery.coords
    points = np.pad(points, [(0, 0), (0, 0), (0, 1)])[..., :2]  # a second coordinate of 0 where there is one alone
    valid = np.ones(points.shape[:2], bool) if gallery.mask is None else gallery.mask
    class_map = np.where(valid[bag], background if classes is None else classes, -1)
    colours, (x, y) = class_colours(background), points[bag].T
    empty = class_map == background
    axes.plot(x[empty], y[empty], "o", color=MUTED, alpha=0.35, ms=3, mew=0)
    for index in np.unique(class_map[(class_map >= 0) & ~empty]):
        which = np.flatnonzero(class_map == index)
        if len(which) > MOST_NAMED:  # a map of many places, such as a slide
            axes.plot(x[which], y[which], ".", color=colours[index], ms=2, mew=0)
            continue
        for k in which:
            alpha = 1.0 if strengths is None else float(np.clip(strengths[k], 0.15, 1))
            axes.plot(x[k], y[k], "o", color=colours[index], alpha=alpha, ms=6, mew=0)
            axes.annotate(literal(gallery.class_names[index]), (x[k], y[k]), xytext=(4, 2), fontsize=7.5, color=INK,
                          textcoords="offset points", annotation_clip=True)  # fmt: skip
    low, high = points[valid].min(axis=0), points[valid].max(axis=0)
    pad = np.where(high > low, 0.08 * (high - low), 1)
    (left, bottom), (right, top) = low - pad, high + pad
    axes.set(xlim=(left, right), ylim=(bottom, top))
