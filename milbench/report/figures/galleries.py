"""Galleries: pictures of what each loss finds where in test bags.

A row of a gallery is a bag of instances or an image. Sequences have a column each.
"""

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
    "A few test bags, and what each loss finds in them. Above each bag: the label set that the "
    "loss predicts, with ✓ if it is right. Colour: the most probable class of each position; the "
    "stronger the colour, the more probable the class. Boxes: the true instances."
)
GALLERY_FILE = "gallery.npz"
"""The file of a cell with its gallery."""
MOST_BAGS = 4
"""The largest number of images or sets in a figure."""
MOST_SEQUENCES = 3
"""The largest number of sequences in a figure."""
MOST_LOSSES = 7
"""The largest number of losses in a figure."""
MOST_STRIPS = 12
"""The largest number of classes that have a strip below a sequence."""
MOST_NAMED = 60
"""The largest number of instances of a class in a set that are all written with their class."""
MOST_IN_TITLE = 5
"""The largest number of classes of a bag that are all named above the bag."""
MOST_LETTERS = 9
"""A longer name of a class is shortened inside a picture."""
_STRIP = 0.13
"""The height in inches of the strip of a class."""
_FRAMES = 1.25
"""The height in inches of the frames of a sequence, such as a spectrogram."""
_TITLE = 0.28
"""The height in inches of the title above the frames, or above the strips of a loss."""
_MARGIN = 0.03
"""The free space in inches around the picture of a bag."""
_HIGHEST = 1.2
"""The largest height of the picture of a bag for a width of 1. A higher image is made narrower."""
_LINE = 0.17
"""The height in inches of a line of a title above a bag."""
_HEAD_LINE = 0.19
"""The height in inches of a line of the head of a column."""
_GAP = 0.22
"""The free space in inches between a bag and the title of the bag below."""


def galleries(study: Study, task: str) -> dict[str, Gallery]:
    """Return loss -> gallery, for at most MOST_LOSSES losses, the best mean first.

    All galleries are of one seed, so that they have the same bags.
    """
    paths = _gallery_paths(study, task)
    if not paths:
        return {}
    seed = _most_common_seed(paths)
    found: dict[str, Gallery] = {}
    for variant in map(str, study.summary(task).index):
        path = paths.get((variant, seed))
        if path is None or len(found) == MOST_LOSSES:
            continue
        # A loss whose gallery cannot be read is left out, so that the rest of the report is shown.
        with suppress(UsageError):
            found[variant] = load(path)
    return found


def _gallery_paths(study: Study, task: str) -> dict[tuple[str, int], Path]:
    """Return (loss, seed) -> the file of its gallery, for the galleries of a task."""
    cells = study.cells_of(task)
    paths = {}
    for variant, seed, cell in zip(cells["variant"], cells["seed"], cells["cell"], strict=True):
        folder = study.results.folders.get(cell)
        if folder is not None and (folder / GALLERY_FILE).is_file():
            paths[str(variant), int(seed)] = folder / GALLERY_FILE
    return paths


def _most_common_seed(paths: Mapping[tuple[str, int], Path]) -> int:
    """Return the seed with most galleries, of several such seeds the smallest."""
    counts = Counter(seed for _, seed in paths)
    return min(counts, key=lambda seed: (-counts[seed], seed))


def differing(galleries: Sequence[Gallery], count: int) -> list[int]:
    """Return the numbers of `count` bags to show, which should have many different classes.

    The bag with most classes that no chosen bag has is chosen next. Of several such bags it is the
    one for which most losses are wrong.
    """
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
    """Return how many losses predict a wrong label set for a bag."""
    return sum(gallery.detected(bag) != gallery.true(bag) for gallery in galleries)


def gallery_figure(seen: Mapping[str, Gallery]) -> Figure:
    """Plot what each loss finds where in some test bags.

    `seen`: loss -> its gallery.
    """
    first = next(iter(seen.values()))
    if first.kind == "sequence":
        return sequence_figure(seen)
    return _bags_figure(seen)


def _bags_figure(seen: Mapping[str, Gallery]) -> Figure:
    """Plot a row for each bag: a column with the truth, then a column for each loss."""
    first = next(iter(seen.values()))
    bags = differing(list(seen.values()), MOST_BAGS)
    columns = 1 + len(seen)
    side = max(1.25, WIDTH / max(columns, 5))
    # The letters of a title are about 1/13 inch wide.
    letters = int(13 * side)
    figure = Figure(figsize=(max(WIDTH, side * columns), side * len(bags)))
    grid = []
    for bag in bags:
        # `_lay_out` sets the positions of axes, when the titles are known.
        row = [figure.add_axes((0, 0, 1, 1)) for _ in range(columns)]
        grid.append(row)
        _draw_truth(row[0], first, bag)
        _write_true_set(row[0], first, bag, letters)
        for axes, gallery in zip(row[1:], seen.values(), strict=True):
            _draw_found(axes, gallery, bag)
            _write_found_set(axes, gallery, bag, letters)
    # If nothing is known of instances, the first column can only say the label sets.
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
    """Set the positions of the axes of a gallery, and write the heads of columns above them.

    Each row of axes is below its titles. All sizes are known, so that the layout need not be
    computed by matplotlib, which takes long for many axes.

    Args:
        figure: the figure of the gallery; its height is set.
        grid: the axes, by row and column.
        heads: the head of each column.
        height_of_width: the height of the picture of a bag for a width of 1.
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
    """Write the head of a column above its first axes, whose title has a height in inches."""
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
    """Draw axes as nothing but a thin frame."""
    # Invisible axes have no ticks, which would take time to make.
    axes.xaxis.set_visible(False)
    axes.yaxis.set_visible(False)
    axes.spines[:].set(visible=True, edgecolor=LINE)


def _draw_truth(axes: Axes, gallery: Gallery, bag: int) -> None:
    """Draw a bag with its true instances, where they are known."""
    _bare(axes)
    classes = None if gallery.position_classes is None else gallery.position_classes[bag]
    if gallery.kind == "image":
        show_image(axes, gallery.instances[bag])
        _draw_boxes(axes, gallery, bag)
    else:
        _scatter(axes, gallery, bag, classes, None)


def _draw_found(axes: Axes, gallery: Gallery, bag: int) -> None:
    """Draw a bag with the most probable class at every position."""
    _bare(axes)
    classes = gallery.class_map(bag)
    strengths = gallery.probs[bag].astype(np.float32).max(axis=0)
    if gallery.kind != "image":
        _scatter(axes, gallery, bag, classes, strengths)
        return
    show_image(axes, gallery.instances[bag])
    _draw_boxes(axes, gallery, bag)
    ys, xs = centres(gallery)
    draw_classes(axes, classes, strengths, len(gallery.class_names), extent_of(ys, xs))
    for (row, column), name in _named_positions(gallery, bag).items():
        name_at(axes, xs[column], ys[row], shorten(name))


def _draw_boxes(axes: Axes, gallery: Gallery, bag: int) -> None:
    """Draw the box of every true instance of an image, if boxes are known."""
    if gallery.boxes is None or gallery.classes is None:
        return
    is_instance = gallery.classes[bag] >= 0
    for left, top, right, bottom in gallery.boxes[bag][is_instance].tolist():
        size = (right - left, bottom - top)
        axes.add_patch(Rectangle((left, top), *size, fill=False, ec="white", lw=0.9, alpha=0.8))


def _named_positions(gallery: Gallery, bag: int) -> dict[tuple[int, int], str]:
    """Return position (row, column) -> the names of the classes for which it is most probable.

    Only classes that are predicted to be present count. The hit rate looks at the same positions.
    """
    names: dict[tuple[int, int], list[str]] = {}
    for index in sorted(gallery.detected(bag)):
        strengths = gallery.probs[bag, index].astype(np.float32)
        if gallery.mask is not None:
            # -1 is less than any probability, so that padding is never the most probable position.
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
    """Draw the K instances of a set as points, with their classes if these are known.

    Args:
        axes: the axes to draw on.
        gallery: the gallery that has the set.
        bag: the number of the set in the gallery.
        classes: (K,), the class of each instance, where the number of classes stands for
            background; None: not known.
        strengths: (K,), the probability of the class of each instance; None: the classes are true.
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
            # There are too many instances to write their class, as on a slide.
            axes.plot(x[which], y[which], ".", color=colours[index], ms=2, mew=0)
            continue
        name = literal(shorten(gallery.class_names[index]))
        for k in which:
            # Even a point of a small probability has to be seen.
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
    # All sets of a gallery have the same limits, so that they can be compared.
    _show_all(axes, coordinates[is_valid])


def _coordinates(gallery: Gallery) -> NDArray[np.float32]:
    """Return two coordinates of every instance of each set: coordinates, or else features.

    If instances have only one, the second coordinate is 0.
    """
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
    """Plot the frames of test sequences and, below them, the probability of each class over time.

    `seen`: loss -> its gallery.
    """
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
    """Return the classes that have a strip: all classes, or those of the shown sequences.

    If there are more than MOST_STRIPS classes, only classes that occur or are predicted in one of
    the shown sequences have a strip.
    """
    count = len(galleries[0].class_names)
    if count <= MOST_STRIPS:
        return list(range(count))
    occurring: set[int] = set()
    for gallery in galleries:
        for bag in bags:
            occurring |= gallery.true(bag) | gallery.detected(bag)
    return sorted(occurring or range(count))[:MOST_STRIPS]


def _draw_frames(axes: Axes, gallery: Gallery, bag: int) -> None:
    """Draw the frames of a sequence as an image, with a box around every true event."""
    plain(axes)
    frames = gallery.instances[bag][:, : _length(gallery, bag)]
    colours = class_colours(len(gallery.class_names))
    height = len(frames)
    extent = (0, frames.shape[1] * _step(gallery), 0, height)
    axes.imshow(frames, cmap="gray", aspect="auto", origin="lower", extent=extent)
    for cls, start, end in _events(gallery, bag):
        box = Rectangle((start, 0), end - start, height, fill=False, ec=colours[cls], lw=1.6)
        axes.add_patch(box)
    _write_true_set(axes, gallery, bag, 40)


def _draw_strips(axes: Axes, gallery: Gallery, bag: int, classes: list[int]) -> None:
    """Draw a strip for each class, whose opacity is the probability of the class over time."""
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
            # The box is less high than the strip: in the first strip it would be cut off.
            low = classes.index(cls) - 0.45
            axes.add_patch(Rectangle((start, low), end - start, 0.9, fill=False, ec=INK, lw=0.8))
    axes.set_xlim(0, _length(gallery, bag) * _step(gallery))
    _write_found_set(axes, gallery, bag, 40)


def _events(gallery: Gallery, bag: int) -> list[tuple[int, float, float]]:
    """Return (class, start, end) of the true events of a sequence; [] if they are not known.

    Start and end are in the unit of the axis of time, see `_step`.
    """
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
    """Return how many frames a sequence has, without the padding after them, which is NaN."""
    is_frame = ~np.isnan(gallery.instances[bag, 0])
    return int(is_frame.sum())


def _step(gallery: Gallery) -> float:
    """Return the length of a frame on the axis of time: in seconds, or 1 if that is not known."""
    return 1 / (gallery.frames_per_second or 1)


def centres(gallery: Gallery) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return y of every row and x of every column of positions, in pixels.

    For a sequence only x matters. It is in frames.
    """
    if gallery.ys is not None and gallery.xs is not None:
        return gallery.ys, gallery.xs
    height, width = gallery.instances.shape[-2:]
    rows, columns = gallery.probs.shape[-2:]
    return _spread(rows, height), _spread(columns, width)


def _spread(count: int, length: int) -> NDArray[np.float32]:
    """Return the centres of `count` equal parts of a length."""
    return (np.arange(count, dtype=np.float32) + 0.5) * (length / count)


def _write_true_set(axes: Axes, gallery: Gallery, bag: int, width: int) -> None:
    """Write the true label set of a bag above it, with at most `width` letters in a line."""
    _write_title(axes, wrapped(set_name(gallery.true(bag), gallery.class_names), width), INK)


def _write_found_set(axes: Axes, gallery: Gallery, bag: int, width: int) -> None:
    """Write the label set that a loss predicts above a bag, and whether it is right.

    A line has at most `width` letters.
    """
    found = gallery.detected(bag)
    name = set_name(found, gallery.class_names)
    if found == gallery.true(bag):
        _write_title(axes, wrapped(f"✓ {name}", width), RIGHT)
    else:
        _write_title(axes, wrapped(f"✗ {name}", width), WRONG)


def _write_title(axes: Axes, text: str, colour: str) -> None:
    axes.set_title(literal(text), fontsize=9, loc="center", color=colour, pad=3)


def shorten(name: str) -> str:
    """Return a name with at most MOST_LETTERS letters, for the inside of a picture."""
    if len(name) <= MOST_LETTERS:
        return name
    return f"{name[: MOST_LETTERS - 1]}…"


def set_name(classes: set[int], names: tuple[str, ...]) -> str:
    """Return a label set as text, or only its size if it has more than MOST_IN_TITLE classes."""
    if not classes:
        return "∅"
    if len(classes) > MOST_IN_TITLE:
        return f"{len(classes)} classes"
    listed = ", ".join(names[index] for index in sorted(classes))
    return f"{{{listed}}}"
