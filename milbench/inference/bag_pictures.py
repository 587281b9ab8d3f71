"""Pictures of where classes are in bags: over an image, over the frames of a sequence, or in the plane."""

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

MOST_CLASSES, COLUMNS = 8, 4  # that are drawn of one bag, and beside each other
PANEL = 4.2  # inches, the side of a panel
LETTERS = 11  # of a title in an inch
LEAST = 1e-6  # span of a scale: probabilities that differ by less are the same
STRENGTH = 0.9  # the opacity of the largest probability over an image


def draw(predictions: BagPredictions, bag: int) -> Figure | None:
    """Draw the probability of each class of the predicted label set, or of the likeliest class where it is empty.

    Each class has a scale of its own, from the smallest to the largest probability in the bag; that of a sequence
    begins at 0. None where the bags have no places.
    """
    places = {name: place[bag].numpy() for name, place in predictions.batch.places.items()}
    probs, classes = predictions.probs[bag, :-1].numpy(), predictions.label_set(bag)
    title = f"{predictions.batch.names[bag]}: {{{', '.join(predictions.class_names[c] for c in classes)}}}"
    if not classes:
        classes = [int(probs.reshape(len(probs), -1).max(axis=1).argmax())]
        title += f", the likeliest is {predictions.class_names[classes[0]]}"
    classes = classes[:MOST_CLASSES]
    if "start" in places:
        return _over_time(predictions, bag, classes, title)
    if not {"x", "y"} <= places.keys():
        return None
    columns, rows = min(len(classes), COLUMNS), -(-len(classes) // COLUMNS)
    figure = Figure(figsize=(PANEL * columns, PANEL * rows), layout="constrained")
    figure.suptitle(_wrapped(title, PANEL * columns))
    panels = figure.subplots(rows, columns, squeeze=False).flat
    for axes in panels[len(classes) :]:
        axes.set_visible(False)
    colours = class_colours(len(predictions.class_names))
    image = open_image(predictions.batch.files[bag]) if predictions.batch.files else None
    is_instance = predictions.mask[bag].numpy()
    for axes, cls in zip(panels, classes, strict=False):
        if image:
            shades = _over_image(
                axes, image, places["x"][0], places["y"][:, 0], probs[cls], colours[cls]
            )
        else:
            shades = _in_plane(
                axes, places["x"][is_instance], places["y"][is_instance], probs[cls][is_instance]
            )
        low, high = shades.get_clim()
        shades.set_clim(low, max(high, low + LEAST))
        axes.set_title(_wrapped(f"P({predictions.class_names[cls]})", PANEL))
        figure.colorbar(shades, ax=axes, shrink=0.8)
    return figure


def _wrapped(text: str, inches: float) -> str:
    return literal(textwrap.fill(text, int(LETTERS * inches)))


def _in_plane(axes: Axes, x: NDArray[Any], y: NDArray[Any], values: NDArray[Any]) -> ScalarMappable:
    order = values.argsort()  # the largest on top
    size = max(1.0, 20_000 / len(values)) ** 0.5 * 2
    dots = axes.scatter(x[order], y[order], c=values[order], s=size, cmap="viridis", lw=0)
    axes.set_aspect("equal")
    axes.invert_yaxis()  # as pictures are: y grows downwards
    return dots


def _over_image(
    axes: Axes, image: Image, xs: NDArray[Any], ys: NDArray[Any], values: NDArray[Any], colour: Any
) -> ScalarMappable:
    """Draw (h, w) values at columns xs and rows ys, in pixels, over an image in grey: the more opaque the larger."""
    width, height = image.size
    axes.imshow(
        grey(image.resize(bounded(width, height)))[0], cmap="gray", extent=(0, width, height, 0)
    )
    (columns, xs), (rows, ys) = _inside(xs, width), _inside(ys, height)
    colours = LinearSegmentedColormap.from_list(
        "class", [(*to_rgb(colour), 0), (*to_rgb(colour), STRENGTH)]
    )
    shades = axes.imshow(
        values[rows][:, columns], cmap=colours, interpolation="none", extent=extent_of(ys, xs)
    )
    plain(axes)
    axes.set(xlim=(0, width), ylim=(height, 0))
    return shades


def _inside(centres: NDArray[Any], size: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return which positions are not in the margin of a square that an image is fitted into, and their centres."""
    which = np.flatnonzero((centres > 0) & (centres < size))
    return (
        (which, centres[which])
        if len(which)
        else (np.array([len(centres) // 2]), np.array([size / 2]))
    )


def _over_time(predictions: BagPredictions, bag: int, classes: list[int], title: str) -> Figure:
    """Draw the frames of a sequence with the names of its classes where they are likeliest, and below them curves."""
    is_instance = predictions.mask[bag].numpy()
    starts, ends = (
        predictions.batch.places[name][bag].numpy()[is_instance] for name in ("start", "end")
    )
    frames = predictions.batch.bags.instances[bag].numpy()
    frames = frames[:, ~np.isnan(frames[0])]
    figure = Figure(figsize=(2 * PANEL, PANEL), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    low, high = np.percentile(frames, [1, 99])
    extent = (0, ends[-1], 0, len(frames))
    above.imshow(
        frames, cmap="gray", vmin=low, vmax=high, aspect="auto", origin="lower", extent=extent
    )
    colours = class_colours(len(predictions.class_names))
    for number, cls in enumerate(classes):
        values, name = (
            predictions.probs[bag, cls].numpy()[is_instance],
            predictions.class_names[cls],
        )
        below.stairs(
            values,
            [*starts, ends[-1]],
            color=colours[cls],
            lw=1.6,
            label=literal(name),
            baseline=None,
        )
        best = int(predictions.evidence[bag, cls].numpy()[is_instance].argmax())
        height = len(frames) * (1 - (number + 0.5) / len(classes))
        if predictions.labels[bag, cls]:
            name_at(above, (starts[best] + ends[best]) / 2, height, name)
    above.set_ylabel("features")
    below.set(
        xlabel="seconds",
        ylabel="probability",
        xlim=(0, ends[-1]),
        ylim=(0, max(LEAST, below.get_ylim()[1])),
    )
    below.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    figure.suptitle(_wrapped(title, 2 * PANEL))
    return figure
