"""Figures of what a network finds in a picture.

The colour of a position or pixel shows its class, and the opacity how probable or important it is.

A component is a set of connected positions with the same most probable class. Its mass is the sum
of the probabilities of this class over its positions. A decoder makes a string of what was found:
the classes in the order in which a person would read them.
"""

import textwrap

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL.Image import Image

from milbench._utils.images import grey
from milbench._utils.palette import INK, MUTED
from milbench._utils.pictures import (
    draw_classes,
    extent_of,
    literal,
    name_at,
    plain,
    show_image,
)
from milbench.inference.predict_picture import (
    Prediction,
    label_set_text,
    pixel_at,
    reading_text,
    sensitivity,
)
from milbench.inference.trained import Trained

LONGER_SIDE = 8.0
"""The length in inches of the longer side of a picture. Text above and below adds to it."""
LINE_LENGTH = 90
"""The most characters of a line below a picture. A line above it has half as many."""
DIMMED = 0.5
"""The brightness of the picture below a sensitivity map, whose colours must stand out."""
TINY = 1e-300
"""The least divisor, instead of 0, if the probability of a class depends on no pixel."""


def prediction_figure(model: Trained, picture: Image, prediction: Prediction) -> Figure:
    """Return a figure of a picture in which every position has the colour of its class.

    The string that the decoder reads in the picture is written above it, and details below.
    """
    figure, axes = _figure_of(picture)
    draw_prediction(axes, model, picture, prediction)
    write_caption(axes, reading_text(model, prediction), details(model, prediction))
    return figure


def sensitivity_figure(model: Trained, picture: Image, prediction: Prediction) -> Figure:
    """Return a figure of a picture in which every pixel has the colour of a class.

    It is the class whose probability depends most on the pixel. How much a class depends on a pixel
    is divided by the largest such value of this class in the picture, so that classes can be
    compared.
    """
    figure, axes = _figure_of(picture)
    show_image(axes, DIMMED * grey(picture) / 255)
    # The classes that are the most probable one at some position, since these have components.
    winning = sorted(set(prediction.components.cls.tolist()))
    if winning:
        _draw_sensitivities(axes, model, picture, prediction, winning)
    _name_components(axes, model, prediction)
    meaning = "colour: the class that depends most on a pixel; strength: how much it depends"
    write_caption(axes, reading_text(model, prediction), f"{details(model, prediction)}\n{meaning}")
    return figure


def _draw_sensitivities(
    axes: Axes, model: Trained, picture: Image, prediction: Prediction, winning: list[int]
) -> None:
    """Draw over a picture which class depends most on each pixel, and how much.

    `winning` are the classes to compare: those that are the most probable one at some position.
    """
    instances = model.task.instances_from(picture).to(model.device)
    class_map = prediction.probs.argmax(dim=0)
    relative_maps = []
    for cls in winning:
        is_of_class = class_map == cls
        dependence = sensitivity(model.network, model.loss, instances, cls, is_of_class).numpy()
        relative_maps.append(dependence / max(dependence.max(), TINY))
    # (classes in `winning`, rows, columns), 1 at the pixel on which a class depends most.
    relative = np.stack(relative_maps)
    strongest = np.array(winning)[relative.argmax(axis=0)]
    # Left, right, bottom and top of the picture in pixels.
    extent = (0, picture.width, picture.height, 0)
    draw_classes(axes, strongest, relative.max(axis=0), len(model.format.class_names), extent)


def draw_prediction(axes: Axes, model: Trained, picture: Image, prediction: Prediction) -> None:
    """Draw a picture in grey, and over it the most probable class of every position.

    Nothing is drawn where this is background. The name of each class that the decoder reads is
    written where it was read.
    """
    show_image(axes, grey(picture) / 255)
    classes = prediction.probs.argmax(dim=0).numpy()
    strengths = prediction.probs.amax(dim=0).numpy()
    # Positions are a grid that may be coarser than the pixels. It is drawn where its centres are.
    ys, xs = prediction.centres
    extent = extent_of(ys.numpy(), xs.numpy())
    draw_classes(axes, classes, strengths, len(model.format.class_names), extent)
    _name_components(axes, model, prediction)


def write_caption(axes: Axes, read: str, below: str) -> None:
    """Write the string `read` above a picture, and the text `below` below it."""
    head = textwrap.fill(read or "nothing", LINE_LENGTH // 2)
    axes.set_title(literal(head), loc="left", color=INK, fontsize=14, fontweight="bold")
    lines = [textwrap.fill(line, LINE_LENGTH) for line in below.splitlines()]
    axes.set_xlabel(literal("\n".join(lines)), loc="left", color=MUTED, fontsize=9)


def details(model: Trained, prediction: Prediction) -> str:
    """Return the label set, its probability and the name of the decoder as text."""
    label_set = label_set_text(model, prediction.labels)
    probability = np.exp(prediction.log_prob)
    return f"label set {label_set}, probability {probability:.2g}\nread by {prediction.decoder}"


def _figure_of(picture: Image) -> tuple[Figure, Axes]:
    """Return a figure of the shape of a picture, and axes that fill it."""
    inches_per_pixel = LONGER_SIDE / max(picture.size)
    size = (picture.width * inches_per_pixel, picture.height * inches_per_pixel)
    figure = Figure(figsize=size)
    axes = figure.add_axes((0, 0, 1, 1))
    plain(axes)
    return figure, axes


def _name_components(axes: Axes, model: Trained, prediction: Prediction) -> None:
    """Write the name of its class into the middle of each component from which the string is read.

    These are not all components of `prediction.components`: some decoders leave components out, or
    look for components in another way than by the most probable class.
    """
    ys, xs = prediction.centres
    components = prediction.read_from
    # The name of the component with the largest mass is written last, and so on top.
    for number in np.argsort(components.mass):
        x = pixel_at(components.x[number], xs)
        y = pixel_at(components.y[number], ys)
        name = model.format.class_names[int(components.cls[number])]
        name_at(axes, x, y, name)
