"""Pictures of what each loss detects where in test bags that differ: a row a bag, or a column a sequence."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from milbench._utils.palette import INK, MUTED, class_colours
from milbench._utils.pictures import (
    RIGHT,
    WRONG,
    draw_classes,
    edges,
    extent_of,
    literal,
    name_at,
    plain,
    show_image,
)
from milbench.errors import UsageError
from milbench.report.figures.style import WIDTH, wrapped
from milbench.report.study import Study
from milbench.store.gallery import Gallery, load

MOST_BAGS, MOST_SEQUENCES, MOST_LOSSES, MOST_STRIPS = 4, 3, 7, 12
GALLERY_FILE = "gallery.npz"
CAPTION = (
    "Test bags that differ, with what each loss finds where. Above each: the label set that the loss names, ✓ if it is "
    "right. Colour: the most probable class of a position, the stronger the more probable; frames: the true instances."
)
MOST_NAMED = 60  # instances of a class in a set that are named beside their points
MOST_IN_TITLE = 5  # classes that are named above a bag
MOST_LETTERS = 9  # of a name inside a picture
_STRIP, _FRAMES, _TITLE = (
    0.13,
    1.25,
    0.28,
)  # inches: of a class's strip, a sequence's frames, and the line above either


def gallery_figure(seen: Mapping[str, Gallery]) -> Figure:
    """Draw what each loss detects where in test bags that differ."""
    return (
        sequence_figure(seen)
        if next(iter(seen.values())).kind == "sequence"
        else _bags_by_loss(seen)
    )


def galleries(study: Study, task: str) -> dict[str, Gallery]:
    """Return the galleries of the first losses that have one, the best mean first, of one seed: the same bags."""
    own, folders = study.cells_of(task), study.results.folders
    paths = own["cell"].map(lambda cell: folders.get(cell, Path()) / GALLERY_FILE)
    kept = own.assign(path=paths)[paths.map(Path.is_file)]
    if kept.empty:
        return {}
    of_seed = kept[kept["seed"] == kept["seed"].mode()[0]].set_index("variant")[
        "path"
    ]  # the least of equally common
    loaded: dict[str, Gallery] = {}
    for variant in map(str, study.summary(task).index):
        if variant in of_seed and len(loaded) < MOST_LOSSES:
            with suppress(UsageError):  # without the picture the numbers can still be shown
                loaded[variant] = load(of_seed[variant])
    return loaded


def _bags_by_loss(seen: Mapping[str, Gallery]) -> Figure:
    bags = differing([*seen.values()], MOST_BAGS)
    columns = 1 + len(seen)
    side = max(1.25, WIDTH / max(columns, 5))
    layout = ConstrainedLayoutEngine(w_pad=0.03, h_pad=0.03)
    figure = Figure(
        figsize=(max(WIDTH, side * columns), (side + 0.32) * len(bags) + 0.5), layout=layout
    )
    grid = figure.subplots(len(bags), columns, squeeze=False)
    first, letters = next(iter(seen.values())), int(13 * side)
    for bag, (truth, *places) in zip(bags, grid, strict=True):
        _draw_bag(
            truth,
            first,
            bag,
            None if first.position_classes is None else first.position_classes[bag],
            None,
        )
        write_title(truth, first, bag, letters, truth=True)
        for axes, gallery in zip(places, seen.values(), strict=True):
            strengths = gallery.probs[bag].astype(np.float32).max(axis=0)
            _draw_bag(axes, gallery, bag, gallery.class_map(bag), strengths)
            write_title(axes, gallery, bag, letters)
    # Without instance truth the label set is all that is known of a bag.
    known = first.boxes is not None or first.position_classes is not None
    lines = max(axes.get_title().count("\n") for axes in grid[0])
    for axes, name in zip(grid[0], ["truth" if known else "label set", *seen], strict=True):
        axes.annotate(literal(wrapped(name, 20)), (0.5, 1), xytext=(0, 20 + 11 * lines), xycoords="axes fraction",
                      ha="center", textcoords="offset points", fontsize=10, fontweight="bold",
                      annotation_clip=False)  # fmt: skip
    return figure


def _draw_bag(axes: Axes, gallery: Gallery, bag: int, classes: Any, strengths: Any) -> None:
    """Draw a bag with its true boxes, and the class of every position where they are known."""
    plain(axes)
    if gallery.kind != "image":
        _scatter(axes, gallery, bag, classes, strengths)
        return
    show_image(axes, gallery.instances[bag])
    if gallery.boxes is not None and gallery.classes is not None:
        for left, top, right, bottom in gallery.boxes[bag][gallery.classes[bag] >= 0].tolist():
            box = Rectangle(
                (left, top), right - left, bottom - top, fill=False, ec="white", lw=0.9, alpha=0.8
            )
            axes.add_patch(box)
    if classes is not None:
        ys, xs = centres(gallery)
        draw_classes(axes, classes, strengths, len(gallery.class_names), extent_of(ys, xs))
        for (row, column), name in _named_places(gallery, bag).items():
            name_at(axes, xs[column], ys[row], shorten(name))


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
    points = np.pad(points, [(0, 0), (0, 0), (0, 1)])[
        ..., :2
    ]  # a second coordinate of 0 where there is one alone
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
            axes.annotate(literal(shorten(gallery.class_names[index])), (x[k], y[k]), xytext=(4, 2), fontsize=7.5,
                          color=INK, textcoords="offset points", annotation_clip=True)  # fmt: skip
    low, high = points[valid].min(axis=0), points[valid].max(axis=0)
    pad = np.where(high > low, 0.08 * (high - low), 1)
    (left, bottom), (right, top) = low - pad, high + pad
    axes.set(xlim=(left, right), ylim=(bottom, top))


def sequence_figure(seen: Mapping[str, Gallery]) -> Figure:
    """Draw the frames of test sequences that differ and, below them, the probability of each class over time."""
    first = next(iter(seen.values()))
    bags = differing([*seen.values()], MOST_SEQUENCES)
    classes = _shown_classes(list(seen.values()), bags)
    heights = [_FRAMES + _TITLE, *[_STRIP * len(classes) + _TITLE] * len(seen)]
    figure = Figure(figsize=(WIDTH, sum(heights) + 0.3), layout="constrained")
    grid = figure.subplots(1 + len(seen), len(bags), squeeze=False, height_ratios=heights)
    for column, bag in enumerate(bags):
        _draw_frames(grid[0, column], first, bag)
        for axes, gallery in zip(grid[1:, column], seen.values(), strict=True):
            _draw_strips(axes, gallery, bag, classes)
    for axes, name in zip(grid[:, 0], ["truth", *seen], strict=True):
        axes.set_ylabel(literal(wrapped(name, 14)), color=INK, fontweight="bold")
    for axes in grid[1:, 0]:
        axes.set_yticks(
            range(len(classes)), [literal(first.class_names[c]) for c in classes], fontsize=7.5
        )
    for axes in grid[-1]:
        axes.xaxis.set_major_locator(MaxNLocator(4))
        axes.tick_params(axis="x", labelsize=7.5)
    figure.supxlabel("frames" if first.frames_per_second is None else "seconds", fontsize=9)
    return figure


def _shown_classes(galleries: Sequence[Gallery], bags: Sequence[int]) -> list[int]:
    """Return all classes where they are few, else those that occur or are detected in a sequence that is shown."""
    count = len(galleries[0].class_names)
    if count <= MOST_STRIPS:
        return list(range(count))
    occurring = {
        c
        for gallery in galleries
        for bag in bags
        for c in gallery.true(bag) | gallery.detected(bag)
    }
    return sorted(occurring or range(count))[:MOST_STRIPS]


def _draw_frames(axes: Axes, gallery: Gallery, bag: int) -> None:
    plain(axes)
    frames, colours = (
        gallery.instances[bag][:, : _length(gallery, bag)],
        class_colours(len(gallery.class_names)),
    )
    extent = (0, frames.shape[1] * _step(gallery), 0, frames.shape[0])
    axes.imshow(frames, cmap="gray", aspect="auto", origin="lower", extent=extent)
    for cls, start, end in _events(gallery, bag):
        axes.add_patch(
            Rectangle((start, 0), end - start, len(frames), fill=False, ec=colours[cls], lw=1.6)
        )
    write_title(axes, gallery, bag, 40, truth=True)


def _draw_strips(axes: Axes, gallery: Gallery, bag: int, classes: list[int]) -> None:
    plain(axes)
    probs = gallery.probs[bag, classes].astype(np.float32)
    if gallery.mask is not None:
        probs = np.where(gallery.mask[bag], probs, 0)
    colours = class_colours(len(gallery.class_names))
    rgb = np.broadcast_to(
        np.array([to_rgb(colours[c]) for c in classes])[:, None], (*probs.shape, 3)
    )
    rgba = np.concatenate([rgb, probs[..., None]], axis=2)
    left, right = edges(centres(gallery)[1] * np.float32(_step(gallery)))
    axes.imshow(
        rgba, interpolation="none", aspect="auto", extent=(left, right, len(classes) - 0.5, -0.5)
    )
    for cls, start, end in _events(gallery, bag):
        if cls in classes:
            low = classes.index(cls) - 0.45  # so that the first strip's frame is not cut off
            axes.add_patch(Rectangle((start, low), end - start, 0.9, fill=False, ec=INK, lw=0.8))
    axes.set_xlim(0, _length(gallery, bag) * _step(gallery))
    write_title(axes, gallery, bag, 40)


def _events(gallery: Gallery, bag: int) -> list[tuple[int, float, float]]:
    """Return class, begin and end of the true events of a sequence; none where they are not known."""
    if gallery.boxes is None or gallery.classes is None:
        return []
    instances, step = (
        zip(gallery.classes[bag].tolist(), gallery.boxes[bag].tolist(), strict=True),
        _step(gallery),
    )
    return [(cls, box[0] * step, box[2] * step) for cls, box in instances if cls >= 0]


def _length(gallery: Gallery, bag: int) -> int:
    return int((~np.isnan(gallery.instances[bag, 0])).sum())


def _step(gallery: Gallery) -> float:
    """Return the length of a frame on the axis of time."""
    return 1 / (gallery.frames_per_second or 1)


def centres(gallery: Gallery) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return y of every row and x of every column of positions, in pixels; of a sequence x alone counts, in frames."""
    if gallery.ys is not None and gallery.xs is not None:
        return gallery.ys, gallery.xs
    sizes, positions = gallery.instances.shape[-2:], gallery.probs.shape[-2:]
    ys, xs = (
        (np.arange(n, dtype=np.float32) + 0.5) * (size / n)
        for size, n in zip(sizes, positions, strict=True)
    )
    return ys, xs


def differing(galleries: Sequence[Gallery], count: int) -> list[int]:
    """Return the numbers of bags to show: always the one with most classes not yet shown, of these where most err."""
    first, left = galleries[0], list(range(min(map(len, galleries))))
    wrong = [sum(one.detected(bag) != one.true(bag) for one in galleries) for bag in left]
    chosen: list[int] = []
    shown: set[int] = set()
    while left and len(chosen) < count:
        chosen.append(max(left, key=lambda bag: (len(first.true(bag) - shown), wrong[bag], -bag)))
        left.remove(chosen[-1])
        shown |= first.true(chosen[-1])
    return sorted(chosen)


def write_title(axes: Axes, gallery: Gallery, bag: int, width: int, *, truth: bool = False) -> None:
    """Write the detected classes above a bag, `width` letters a line, and whether they are right; or the true ones."""
    true, classes = gallery.true(bag), gallery.true(bag) if truth else gallery.detected(bag)
    mark, colour = ("", INK) if truth else ("✓ ", RIGHT) if classes == true else ("✗ ", WRONG)
    title = literal(wrapped(f"{mark}{set_name(classes, gallery.class_names)}", width))
    axes.set_title(title, fontsize=9, loc="center", color=colour, pad=3)


def shorten(name: str) -> str:
    """Return a name that fits into a picture, above which it is whole."""
    return name if len(name) <= MOST_LETTERS else f"{name[: MOST_LETTERS - 1]}…"


def set_name(classes: set[int], names: tuple[str, ...]) -> str:
    """Return a label set as text, or the number of its classes where they are more than MOST_IN_TITLE."""
    if len(classes) > MOST_IN_TITLE:
        return f"{len(classes)} classes"
    return "{" + ", ".join(names[c] for c in sorted(classes)) + "}" if classes else "∅"
