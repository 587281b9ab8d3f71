"""Figures of where classes are in bags.

They show an image, a sequence over time, or instances as dots in the plane.
"""

import math
import textwrap
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL.Image import Image

from milbench._utils.images import bounded, grey, open_image
from milbench._utils.palette import class_colours
from milbench._utils.pictures import extent_of, literal, name_at, plain
from milbench.inference.predict_bags import BagPredictions

MOST_CLASSES = 8
"""The most classes of a bag that are drawn. If there are more, the first ones are."""
COLUMNS = 4
"""The most panels beside each other."""
PANEL = 4.2
"""The side of a panel in inches."""
LETTERS = 11
"""How many letters of a title fit into an inch."""
MANY_DOTS = 20_000
"""The number of dots from which on dots have their smallest size."""
LEAST = 1e-6
"""The least span of a scale of probabilities, so that it does not show mere rounding."""
STRENGTH = 0.9
"""The opacity of the largest probability over an image."""


def draw(predictions: BagPredictions, bag: int) -> Figure | None:
    """Return a figure of the probability of each class in the predicted label set of a bag.

    If the label set is empty, the likeliest class is drawn. In a sequence all classes have one
    scale, which begins at 0. In other bags each class has a scale of its own, from its smallest to
    its largest probability in the bag. None where positions have no known place in the bag.
    """
    names = predictions.class_names
    classes = predictions.label_set(bag)
    label_set = ", ".join(names[cls] for cls in classes)
    title = f"{predictions.batch.names[bag]}: {{{label_set}}}"
    if not classes:
        likeliest = _likeliest_class(predictions, bag)
        classes = [likeliest]
        title += f", the likeliest is {names[likeliest]}"
    classes = classes[:MOST_CLASSES]
    places = predictions.batch.places
    if "start" in places:
        return _over_time(predictions, bag, classes, title)
    if "x" in places and "y" in places:
        return _in_panels(predictions, bag, classes, title)
    return None


def _likeliest_class(predictions: BagPredictions, bag: int) -> int:
    """Return the class with the largest probability at any position, except for background."""
    probs = predictions.probs[bag, :-1].numpy()
    return int(probs.reshape(len(probs), -1).max(axis=1).argmax())


def _in_panels(predictions: BagPredictions, bag: int, classes: list[int], title: str) -> Figure:
    """Return a figure with a panel for each class.

    It shows the image of the bag, or the instances of the bag as dots in the plane.
    """
    columns = min(len(classes), COLUMNS)
    rows = math.ceil(len(classes) / COLUMNS)
    figure = Figure(figsize=(PANEL * columns, PANEL * rows), layout="constrained")
    figure.suptitle(_wrapped(title, PANEL * columns))
    panels = figure.subplots(rows, columns, squeeze=False).flat
    for axes in panels[len(classes) :]:
        axes.set_visible(False)
    files = predictions.batch.files
    image = open_image(files[bag]) if files else None
    for axes, cls in zip(panels, classes, strict=False):
        if image is None:
            shades = _in_plane(axes, predictions, bag, cls)
        else:
            shades = _over_image(axes, image, predictions, bag, cls)
        low, high = shades.get_clim()
        shades.set_clim(low, max(high, low + LEAST))
        axes.set_title(_wrapped(f"P({predictions.class_names[cls]})", PANEL))
        figure.colorbar(shades, ax=axes, shrink=0.8)
    return figure


def _wrapped(text: str, inches: float) -> str:
    """Return a text with line breaks, so that it is at most this wide."""
    return literal(textwrap.fill(text, int(LETTERS * inches)))


def _in_plane(axes: Axes, predictions: BagPredictions, bag: int, cls: int) -> ScalarMappable:
    """Draw a dot for each instance of a bag, in the colour of the probability of a class."""
    is_instance = predictions.mask[bag].numpy()
    x = predictions.batch.places["x"][bag].numpy()[is_instance]
    y = predictions.batch.places["y"][bag].numpy()[is_instance]
    values = predictions.probs[bag, cls].numpy()[is_instance]
    # The dots with the largest probabilities are drawn last, and so on top.
    order = values.argsort()
    # The more dots there are, the smaller they are. Matplotlib wants their area in square points.
    room = max(1.0, MANY_DOTS / len(values))
    area = 2 * room**0.5
    dots = axes.scatter(x[order], y[order], c=values[order], s=area, cmap="viridis", lw=0)
    axes.set_aspect("equal")
    # Let y grow downwards, as in pictures.
    axes.invert_yaxis()
    return dots


def _over_image(
    axes: Axes, image: Image, predictions: BagPredictions, bag: int, cls: int
) -> ScalarMappable:
    """Draw the probabilities of a class over an image in grey: the larger the more opaque."""
    width, height = image.size
    extent = (0, width, height, 0)
    axes.imshow(grey(image.resize(bounded(width, height)))[0], cmap="gray", extent=extent)
    # Positions are in a grid: all rows have the same x, and all columns the same y.
    xs = predictions.batch.places["x"][bag].numpy()[0]
    ys = predictions.batch.places["y"][bag].numpy()[:, 0]
    columns, xs = _inside(xs, width)
    rows, ys = _inside(ys, height)
    values = predictions.probs[bag, cls].numpy()[rows][:, columns]
    colour = to_rgb(class_colours(len(predictions.class_names))[cls])
    colours = LinearSegmentedColormap.from_list("class", [(*colour, 0), (*colour, STRENGTH)])
    shades = axes.imshow(values, cmap=colours, interpolation="none", extent=extent_of(ys, xs))
    plain(axes)
    axes.set(xlim=(0, width), ylim=(height, 0))
    return shades


def _inside(centres: NDArray[Any], size: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the indices and centres of the positions within an image, along a side of this size.

    Other positions are in the margin, where the image was fitted into a square.
    """
    numbers = np.flatnonzero((centres > 0) & (centres < size))
    if len(numbers):
        return numbers, centres[numbers]
    # Where positions are farther apart than the image is wide, the middle one stands for all of it.
    return np.array([len(centres) // 2]), np.array([size / 2])


def _over_time(predictions: BagPredictions, bag: int, classes: list[int], title: str) -> Figure:
    """Return a figure of the frames of a sequence, and below them the probabilities over time."""
    figure = Figure(figsize=(2 * PANEL, PANEL), layout="constrained")
    figure.suptitle(_wrapped(title, 2 * PANEL))
    above, below = figure.subplots(2, 1, sharex=True)
    _draw_frames(above, predictions, bag, classes)
    _draw_curves(below, predictions, bag, classes)
    return figure


def _times(predictions: BagPredictions, bag: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return where the positions of a sequence start and end, in seconds."""
    is_instance = predictions.mask[bag].numpy()
    places = predictions.batch.places
    return places["start"][bag].numpy()[is_instance], places["end"][bag].numpy()[is_instance]


def _draw_frames(axes: Axes, predictions: BagPredictions, bag: int, classes: list[int]) -> None:
    """Draw the features of a sequence over time.

    The name of each class is written where its evidence is strongest.
    """
    starts, ends = _times(predictions, bag)
    frames = predictions.batch.bags.instances[bag].numpy()
    # Shorter sequences of a batch are filled up with NaN.
    frames = frames[:, ~np.isnan(frames[0])]
    low, high = np.percentile(frames, [1, 99])
    extent = (0, ends[-1], 0, len(frames))
    axes.imshow(
        frames, cmap="gray", vmin=low, vmax=high, aspect="auto", origin="lower", extent=extent
    )
    is_instance = predictions.mask[bag].numpy()
    for number, cls in enumerate(classes):
        # If the label set is empty, the likeliest class is drawn, but its name is left out, as it
        # was not found.
        if not predictions.labels[bag, cls]:
            continue
        strongest = int(predictions.evidence[bag, cls].numpy()[is_instance].argmax())
        middle = (starts[strongest] + ends[strongest]) / 2
        # Each name has a height of its own, so that none covers another.
        height = len(frames) * (1 - (number + 0.5) / len(classes))
        name_at(axes, middle, height, predictions.class_names[cls])
    axes.set_ylabel("features")


def _draw_curves(axes: Axes, predictions: BagPredictions, bag: int, classes: list[int]) -> None:
    """Draw the probability of each class over time."""
    starts, ends = _times(predictions, bag)
    is_instance = predictions.mask[bag].numpy()
    colours = class_colours(len(predictions.class_names))
    for cls in classes:
        axes.stairs(
            predictions.probs[bag, cls].numpy()[is_instance],
            [*starts, ends[-1]],
            color=colours[cls],
            lw=1.6,
            label=literal(predictions.class_names[cls]),
            baseline=None,
        )
    top = max(LEAST, axes.get_ylim()[1])
    axes.set(xlabel="seconds", ylabel="probability", xlim=(0, ends[-1]), ylim=(0, top))
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
