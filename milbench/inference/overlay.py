"""Figures of what a network finds: colour is the class of a position or pixel, opacity its probability or weight."""

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

LONGER_SIDE = 8.0  # inches, of a picture; what is written about it may make the page larger
LINE_LENGTH = 90
DIMMED = 0.5  # the brightness of the picture below a sensitivity map, so that the colours of the map stand out


def prediction_figure(model: Trained, picture: Image, prediction: Prediction) -> Figure:
    """Return a picture in which every position has the colour of its class, below the text read in it."""
    figure, axes = _figure_of(picture)
    draw_prediction(axes, model, picture, prediction)
    write_caption(axes, reading_text(model, prediction), details(model, prediction))
    return figure


def sensitivity_figure(model: Trained, picture: Image, prediction: Prediction) -> Figure:
    """Return a picture in which every pixel has the colour of the class that depends on it most, relative to others."""
    figure, axes = _figure_of(picture)
    show_image(axes, DIMMED * grey(picture) / 255)
    if winning := sorted(set(prediction.components.cls.tolist())):
        instances = model.task.instances_from(picture).to(model.device)
        classes = prediction.probs.argmax(dim=0)
        maps = [
            sensitivity(model.network, model.loss, instances, c, classes == c).numpy()
            for c in winning
        ]
        values = np.stack(
            [shares / max(shares.max(), 1e-300) for shares in maps]
        )  # 0 where a class needs no pixel
        extent = (0, picture.width, picture.height, 0)
        strongest = np.array(winning)[values.argmax(axis=0)]
        draw_classes(axes, strongest, values.max(axis=0), len(model.format.class_names), extent)
    _name_components(axes, model, prediction)
    meaning = "colour: the class that depends most on a pixel; strength: how much it depends"
    write_caption(axes, reading_text(model, prediction), f"{details(model, prediction)}\n{meaning}")
    return figure


def draw_prediction(axes: Axes, model: Trained, picture: Image, prediction: Prediction) -> None:
    """Draw a picture in grey, over it the most probable class of every position, and the names of what is read."""
    show_image(axes, grey(picture) / 255)
    classes, strengths = (
        prediction.probs.argmax(dim=0).numpy(),
        prediction.probs.amax(dim=0).numpy(),
    )
    ys, xs = (centres.numpy() for centres in prediction.centres)
    draw_classes(axes, classes, strengths, len(model.format.class_names), extent_of(ys, xs))
    _name_components(axes, model, prediction)


def write_caption(axes: Axes, read: str, below: str) -> None:
    """Write the text read above a picture, and details below it."""
    head = textwrap.fill(read or "nothing", LINE_LENGTH // 2)
    axes.set_title(literal(head), loc="left", color=INK, fontsize=14, fontweight="bold")
    lines = [textwrap.fill(line, LINE_LENGTH) for line in below.splitlines()]
    axes.set_xlabel(literal("\n".join(lines)), loc="left", color=MUTED, fontsize=9)


def details(model: Trained, prediction: Prediction) -> str:
    """Return the label set, its probability and the decoder."""
    named = f"label set {label_set_text(model, prediction.labels)}, probability {np.exp(prediction.log_prob):.2g}"
    return f"{named}\nread by {prediction.decoder}"


def _figure_of(picture: Image) -> tuple[Figure, Axes]:
    inches = LONGER_SIDE / max(picture.size)
    figure = Figure(figsize=(picture.width * inches, picture.height * inches))
    axes = figure.add_axes((0, 0, 1, 1))
    plain(axes)
    return figure, axes


def _name_components(axes: Axes, model: Trained, prediction: Prediction) -> None:
    """Write the class of each component that is read at its middle, the largest ones on top of others."""
    ys, xs = prediction.centres
    components = prediction.read_from
    for i in np.argsort(components.mass):
        x, y = pixel_at(components.x[i], xs), pixel_at(components.y[i], ys)
        name_at(axes, x, y, model.format.class_names[int(components.cls[i])])
