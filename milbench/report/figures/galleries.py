"""Pictures of what each loss detects where in test bags that differ: a row a bag, or a column a sequence."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from milbench._utils.palette import INK, LINE, MUTED, class_colours
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
from milbench.report.figures.style import POINTS_PER_INCH, WIDTH, new_figure, wrapped
from milbench.report.study import Study
from milbench.store.gallery import Gallery, load

CAPTION = (
    "Test bags that differ, with what each loss finds where. Above each: the label set that the "
    "loss names, ✓ if it is right. Colour: the most probable class of a position, the stronger "
    "the more probable; frames: the true instances."
)
GALLERY_FILE = "gallery.npz"
MOST_BAGS = 4
MOST_SEQUENCES = 3
MOST_LOSSES = 7
MOST_STRIPS = 12
"""At most so many classes of a sequence have a strip."""
MOST_NAMED = 60
"""The instances of a class in a set are named where they are no more."""
MOST_IN_TITLE = 5
"""The classes of a bag are named above it where they are no more."""
MOST_LETTERS = 9
"""A longer name is shortened inside a picture."""
_STRIP = 0.13
"""The height in inches of the strip of a class."""
_FRAMES = 1.25
"""The height in inches of the frames of a sequence."""
_TITLE = 0.28
"""The height in inches of the line above either."""
_MARGIN = 0.03
"""The free space in inches around the picture of a bag."""
_HIGHEST = 1.2
"""The picture of a bag is at most so high for a width of 1: a higher image is narrower."""
_LINE = 0.17
"""The height in inches of a line above a bag."""
_HEAD_LINE = 0.19
"""The height in inches of a line above a column."""
_GAP = 0.22
"""The free space in inches between a bag and the line above the next one."""


def galleries(study: Study, task: str) -> dict[str, Gallery]:
    """Return the galleries of the first losses that have one, the best mean first, of one seed: the same bags."""
    paths = _gallery_paths(study, task)
    if not paths:
        return {}
    seed = _most_common_seed(paths)
    found: dict[str, Gallery] = {}
    for variant in map(str, study.summary(task).index):
        path = paths.get((variant, seed))
        if path is None or len(found) == MOST_LOSSES:
            continue
        # Without the picture the numbers can still be shown.
        with suppress(UsageError):
            found[variant] = load(path)
    return found


def _gallery_paths(study: Study, task: str) -> dict[tuple[str, int], Path]:
    """Return the files of the galleries of a task, by loss and seed."""
    cells = study.cells_of(task)
    paths = {}
    for variant, seed, cell in zip(cells["variant"], cells["seed"], cells["cell"], strict=True):
        folder = study.results.folders.get(cell)
        if folder is not None and (folder / GALLERY_FILE).is_file():
            paths[str(variant), int(seed)] = folder / GALLERY_FILE
    return paths


def _most_common_seed(paths: Mapping[tuple[str, int], Path]) -> int:
    """Return the seed of most galleries, the least of equally common ones."""
    counts = Counter(seed for _, seed in paths)
    return min(counts, key=lambda seed: (-counts[seed], seed))


def differing(galleries: Sequence[Gallery], count: int) -> list[int]:
    """Return the numbers of bags to show: always the one with most classes not yet shown, of these where most err."""
    first = galleries[0]
    left = list(range(min(len(gallery) for gallery in galleries)))
    mistakes = {bag: _mistakes(galleries, bag) for bag in left}
    chosen: list[int] = []
    shown: set[int] = set()

    def worth(bag: int) -> tuple[int, int, int]:
        return len(first.true(bag) - shown), mistakes[bag], -bag

    while left and len(chosen) < count:
        bag = max(left, key=worth)
        chosen.append(bag)
        left.remove(bag)
        shown |= first.true(bag)
    return sorted(chosen)


def _mistakes(galleries: Sequence[Gallery], bag: int) -> int:
    """Return how many losses name a wrong label set for a bag."""
    return sum(gallery.detected(bag) != gallery.true(bag) for gallery in galleries)


def gallery_figure(seen: Mapping[str, Gallery]) -> Figure:
    """Draw what each loss detects where in test bags that differ."""
    first = next(iter(seen.values()))
    if first.kind == "sequence":
        return sequence_figure(seen)
    return _bags_figure(seen)


def _bags_figure(seen: Mapping[str, Gallery]) -> Figure:
    """Draw a row for each bag, the truth first and then a column for each loss."""
    first = next(iter(seen.values()))
    bags = differing(list(seen.values()), MOST_BAGS)
    columns = 1 + len(seen)
    side = max(1.25, WIDTH / max(columns, 5))
    # Above a bag 13 letters fit into an inch.
    letters = int(13 * side)
    figure = Figure(figsize=(max(WIDTH, side * columns), side * len(bags)))
    grid = []
    for bag in bags:
        row = [figure.add_axes((0, 0, 1, 1)) for _ in range(columns)]
        grid.append(row)
        _draw_truth(row[0], first, bag)
        _write_true_set(row[0], first, bag, letters)
        for axes, gallery in zip(row[1:], seen.values(), strict=True):
            _draw_found(axes, gallery, bag)
            _write_found_set(axes, gallery, bag, letters)
    # Without instance truth the label set is all that is known of a bag.
    is_truth_known = first.boxes is not None or first.position_classes is not None
    heads = ["truth" if is_truth_known else "label set", *seen]
    _lay_out(figure, grid, heads, _height_of_width(first))
    return figure


def _height_of_width(gallery: Gallery) -> float:
    """Return the height of the picture of a bag for a width of 1."""
    if gallery.kind != "image":
        return 1.0
    height, width = gallery.instances.shape[-2:]
    return float(min(_HIGHEST, height / width))


def _lay_out(
    figure: Figure, grid: Sequence[Sequence[Axes]], heads: Sequence[str], height_of_width: float
) -> None:
    """Place the axes of a gallery in rows, each row below its titles, and write the heads of columns above.

    All sizes are known, so that no layout has to be searched for, which takes long for so many
    axes.
    """
    width = figure.get_figwidth()
    column_width = width / len(heads)
    picture_width = column_width - 2 * _MARGIN
    picture_height = picture_width * height_of_width
    title_heights = []
    for row in grid:
        most_lines = max(_count_lines(axes.get_title()) for axes in row)
        title_heights.append(_LINE * most_lines)
    names = [wrapped(head, 20) for head in heads]
    head_height = _HEAD_LINE * max(_count_lines(name) for name in names)
    rows_height = sum(title_heights) + len(grid) * (picture_height + _GAP)
    height = _MARGIN + head_height + rows_height
    figure.set_size_inches(width, height)
    for axes, name in zip(grid[0], names, strict=True):
        _write_head(axes, name, title_heights[0])
    top = height - _MARGIN - head_height
    for row, title_height in zip(grid, title_heights, strict=True):
        bottom = top - title_height - picture_height
        for column, axes in enumerate(row):
            left = column * column_width + _MARGIN
            axes.set_position(
                (left / width, bottom / height, picture_width / width, picture_height / height)
            )
        top = bottom - _GAP


def _write_head(axes: Axes, name: str, title_height: float) -> None:
    """Write the head of a column above the axes of its first row and their title, so many inches high."""
    axes.annotate(
        literal(name),
        (0.5, 1),
        xytext=(0, POINTS_PER_INCH * title_height + 3),
        xycoords="axes fraction",
        textcoords="offset points",
        ha="center",
        fontsize=10,
        fontweight="bold",
        annotation_clip=False,
    )


def _count_lines(text: str) -> int:
    return 1 + text.count("\n")


def _bare(axes: Axes) -> None:
    """Leave a thin frame of axes alone. Ticks that are not made take no time."""
    axes.xaxis.set_visible(False)
    axes.yaxis.set_visible(False)
    axes.spines[:].set(visible=True, edgecolor=LINE)


def _draw_truth(axes: Axes, gallery: Gallery, bag: int) -> None:
    """Draw a bag with its true instances."""
    _bare(axes)
    classes = None if gallery.position_classes is None else gallery.position_classes[bag]
    if gallery.kind == "image":
        show_image(axes, gallery.instances[bag])
        _frame_instances(axes, gallery, bag)
    else:
        _scatter(axes, gallery, bag, classes, None)


def _draw_found(axes: Axes, gallery: Gallery, bag: int) -> None:
    """Draw a bag with the most probable class of every position."""
    _bare(axes)
    classes = gallery.class_map(bag)
    strengths = gallery.probs[bag].astype(np.float32).max(axis=0)
    if gallery.kind != "image":
        _scatter(axes, gallery, bag, classes, strengths)
        return
    show_image(axes, gallery.instances[bag])
    _frame_instances(axes, gallery, bag)
    ys, xs = centres(gallery)
    draw_classes(axes, classes, strengths, len(gallery.class_names), extent_of(ys, xs))
    for (row, column), name in _named_positions(gallery, bag).items():
        name_at(axes, xs[column], ys[row], shorten(name))


def _frame_instances(axes: Axes, gallery: Gallery, bag: int) -> None:
    """Draw a frame around every true instance of an image, where they are known."""
    if gallery.boxes is None or gallery.classes is None:
        return
    is_instance = gallery.classes[bag] >= 0
    for left, top, right, bottom in gallery.boxes[bag][is_instance].tolist():
        size = (right - left, bottom - top)
        axes.add_patch(Rectangle((left, top), *size, fill=False, ec="white", lw=0.9, alpha=0.8))


def _named_positions(gallery: Gallery, bag: int) -> dict[tuple[int, int], str]:
    """Return the most probable position of each detected class, as for the hit rate: (row, column) -> its name."""
    names: dict[tuple[int, int], list[str]] = {}
    for index in sorted(gallery.detected(bag)):
        strengths = gallery.probs[bag, index].astype(np.float32)
        if gallery.mask is not None:
            # Less than any probability: padding is never the most probable position.
            strengths = np.where(gallery.mask[bag], strengths, -1)
        row, column = np.unravel_index(int(strengths.argmax()), strengths.shape)
        names.setdefault((int(row), int(column)), []).append(gallery.class_names[index])
    return {position: " ".join(of_position) for position, of_position in names.items()}


def _scatter(
    axes: Axes,
    gallery: Gallery,
    bag: int,
    classes: NDArray[np.int64] | None,
    strengths: NDArray[np.float32] | None,
) -> None:
    """Draw the instances of a set as points, each with its class where that is known.

    Args:
        axes: where they are drawn.
        gallery: what is known of all bags.
        bag: the number of the set.
        classes: (K,), of the instances, background C; None: not known.
        strengths: (K,), how probable these classes are; None: they are the true ones.
    """
    background = len(gallery.class_names)
    coordinates = _coordinates(gallery)
    is_valid = np.ones(coordinates.shape[:2], bool) if gallery.mask is None else gallery.mask
    class_map = np.full(coordinates.shape[1], background) if classes is None else classes
    # Padding is neither a class nor background.
    class_map = np.where(is_valid[bag], class_map, -1)
    colours = class_colours(background)
    x, y = coordinates[bag].T
    is_empty = class_map == background
    axes.plot(x[is_empty], y[is_empty], "o", color=MUTED, alpha=0.35, ms=3, mew=0)
    is_instance = (class_map >= 0) & ~is_empty
    for index in np.unique(class_map[is_instance]):
        which = np.flatnonzero(class_map == index)
        if len(which) > MOST_NAMED:
            # A map of many places, such as a slide.
            axes.plot(x[which], y[which], ".", color=colours[index], ms=2, mew=0)
            continue
        name = literal(shorten(gallery.class_names[index]))
        for k in which:
            # What is improbable is still seen.
            alpha = 1.0 if strengths is None else float(np.clip(strengths[k], 0.15, 1))
            axes.plot(x[k], y[k], "o", color=colours[index], alpha=alpha, ms=6, mew=0)
            axes.annotate(
                name,
                (x[k], y[k]),
                xytext=(4, 2),
                textcoords="offset points",
                fontsize=7.5,
                color=INK,
                annotation_clip=True,
            )
    # The limits of all sets are the same, so that sets can be compared.
    _show_all(axes, coordinates[is_valid])


def _coordinates(gallery: Gallery) -> NDArray[np.float32]:
    """Return two coordinates of every instance of a set; the second is 0 where there is one alone."""
    known = gallery.instances if gallery.coords is None else gallery.coords
    with_zeros = np.pad(known, [(0, 0), (0, 0), (0, 1)])
    return np.asarray(with_zeros[..., :2])


def _show_all(axes: Axes, points: NDArray[np.float32]) -> None:
    """Set the limits of axes so that all points (n, 2) are inside, with a margin."""
    low = points.min(axis=0)
    high = points.max(axis=0)
    margin = np.where(high > low, 0.08 * (high - low), 1)
    left, bottom = low - margin
    right, top = high + margin
    axes.set(xlim=(left, right), ylim=(bottom, top))


def sequence_figure(seen: Mapping[str, Gallery]) -> Figure:
    """Draw the frames of test sequences that differ and, below them, the probability of each class over time."""
    first = next(iter(seen.values()))
    bags = differing(list(seen.values()), MOST_SEQUENCES)
    classes = _shown_classes(list(seen.values()), bags)
    height_of_frames = _FRAMES + _TITLE
    height_of_strips = _STRIP * len(classes) + _TITLE
    heights = [height_of_frames] + [height_of_strips] * len(seen)
    figure = new_figure(WIDTH, sum(heights) + 0.3)
    grid = figure.subplots(1 + len(seen), len(bags), squeeze=False, height_ratios=heights)
    for column, bag in zip(grid.T, bags, strict=True):
        _draw_frames(column[0], first, bag)
        for axes, gallery in zip(column[1:], seen.values(), strict=True):
            _draw_strips(axes, gallery, bag, classes)
    for axes, name in zip(grid[:, 0], ["truth", *seen], strict=True):
        axes.set_ylabel(literal(wrapped(name, 14)), color=INK, fontweight="bold")
    names = [literal(first.class_names[index]) for index in classes]
    for axes in grid[1:, 0]:
        axes.set_yticks(range(len(classes)), names, fontsize=7.5)
    for axes in grid[-1]:
        axes.xaxis.set_major_locator(MaxNLocator(4))
        axes.tick_params(axis="x", labelsize=7.5)
    unit = "frames" if first.frames_per_second is None else "seconds"
    figure.supxlabel(unit, fontsize=9)
    return figure


def _shown_classes(galleries: Sequence[Gallery], bags: Sequence[int]) -> list[int]:
    """Return all classes where they are few, else those that occur or are detected in a sequence that is shown."""
    count = len(galleries[0].class_names)
    if count <= MOST_STRIPS:
        return list(range(count))
    occurring: set[int] = set()
    for gallery in galleries:
        for bag in bags:
            occurring |= gallery.true(bag) | gallery.detected(bag)
    return sorted(occurring or range(count))[:MOST_STRIPS]


def _draw_frames(axes: Axes, gallery: Gallery, bag: int) -> None:
    """Draw the frames of a sequence with a frame around every true event."""
    plain(axes)
    frames = gallery.instances[bag][:, : _length(gallery, bag)]
    colours = class_colours(len(gallery.class_names))
    height = len(frames)
    extent = (0, frames.shape[1] * _step(gallery), 0, height)
    axes.imshow(frames, cmap="gray", aspect="auto", origin="lower", extent=extent)
    for cls, start, end in _events(gallery, bag):
        frame = Rectangle((start, 0), end - start, height, fill=False, ec=colours[cls], lw=1.6)
        axes.add_patch(frame)
    _write_true_set(axes, gallery, bag, 40)


def _draw_strips(axes: Axes, gallery: Gallery, bag: int, classes: list[int]) -> None:
    """Draw a strip for each class, the stronger the more probable the class is at that time."""
    plain(axes)
    probs = gallery.probs[bag, classes].astype(np.float32)
    if gallery.mask is not None:
        probs = np.where(gallery.mask[bag], probs, 0)
    colours = class_colours(len(gallery.class_names))
    rgba = np.empty((*probs.shape, 4))
    for row, index in enumerate(classes):
        rgba[row, :, :3] = to_rgb(colours[index])
    rgba[..., 3] = probs
    _, xs = centres(gallery)
    left, right = edges(xs * np.float32(_step(gallery)))
    extent = (left, right, len(classes) - 0.5, -0.5)
    axes.imshow(rgba, interpolation="none", aspect="auto", extent=extent)
    for cls, start, end in _events(gallery, bag):
        if cls in classes:
            # Less than a strip's height, so that the frame of the first one is not cut off.
            low = classes.index(cls) - 0.45
            axes.add_patch(Rectangle((start, low), end - start, 0.9, fill=False, ec=INK, lw=0.8))
    axes.set_xlim(0, _length(gallery, bag) * _step(gallery))
    _write_found_set(axes, gallery, bag, 40)


def _events(gallery: Gallery, bag: int) -> list[tuple[int, float, float]]:
    """Return class, begin and end of the true events of a sequence; none where they are not known."""
    if gallery.boxes is None or gallery.classes is None:
        return []
    step = _step(gallery)
    events = []
    for cls, box in zip(gallery.classes[bag].tolist(), gallery.boxes[bag].tolist(), strict=True):
        start, _, end, _ = box
        if cls >= 0:
            events.append((cls, start * step, end * step))
    return events


def _length(gallery: Gallery, bag: int) -> int:
    """Return how many frames a sequence has; the frames after them are NaN."""
    is_frame = ~np.isnan(gallery.instances[bag, 0])
    return int(is_frame.sum())


def _step(gallery: Gallery) -> float:
    """Return the length of a frame on the axis of time: in seconds, or 1 where these are not known."""
    return 1 / (gallery.frames_per_second or 1)


def centres(gallery: Gallery) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return y of every row and x of every column of positions, in pixels.

    Of a sequence only x matters, in frames.
    """
    if gallery.ys is not None and gallery.xs is not None:
        return gallery.ys, gallery.xs
    height, width = gallery.instances.shape[-2:]
    rows, columns = gallery.probs.shape[-2:]
    return _spread(rows, height), _spread(columns, width)


def _spread(count: int, length: int) -> NDArray[np.float32]:
    """Return the centres of so many equal parts of a length."""
    return (np.arange(count, dtype=np.float32) + 0.5) * (length / count)


def _write_true_set(axes: Axes, gallery: Gallery, bag: int, width: int) -> None:
    """Write the label set of a bag above it, `width` letters a line."""
    _write_title(axes, wrapped(set_name(gallery.true(bag), gallery.class_names), width), INK)


def _write_found_set(axes: Axes, gallery: Gallery, bag: int, width: int) -> None:
    """Write the label set that a loss names above a bag, `width` letters a line, and whether it is right."""
    found = gallery.detected(bag)
    name = set_name(found, gallery.class_names)
    if found == gallery.true(bag):
        _write_title(axes, wrapped(f"✓ {name}", width), RIGHT)
    else:
        _write_title(axes, wrapped(f"✗ {name}", width), WRONG)


def _write_title(axes: Axes, text: str, colour: str) -> None:
    axes.set_title(literal(text), fontsize=9, loc="center", color=colour, pad=3)


def shorten(name: str) -> str:
    """Return a name that fits into a picture, above which it is whole."""
    if len(name) <= MOST_LETTERS:
        return name
    return f"{name[: MOST_LETTERS - 1]}…"


def set_name(classes: set[int], names: tuple[str, ...]) -> str:
    """Return a label set as text, or the number of its classes where they are more than MOST_IN_TITLE."""
    if not classes:
        return "∅"
    if len(classes) > MOST_IN_TITLE:
        return f"{len(classes)} classes"
    listed = ", ".join(names[index] for index in sorted(classes))
    return f"{{{listed}}}"
