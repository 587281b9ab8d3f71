"""Plot pictures with their classes over them, in colours and by name: for reports, predictions."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray

from milbench._utils.palette import LINE, class_colours

STRENGTH = 0.75
"""The opacity of a class with probability 1."""
RIGHT = "#159a74"
"""The colour of a class that is predicted and occurs."""
WRONG = "#cf4456"
"""The colour of a class that is predicted and does not occur."""


def literal(text: str) -> str:
    """Escape the dollar signs of a text, since matplotlib takes what two enclose for a formula."""
    return text.replace("$", r"\$")


def plain(axes: Axes) -> None:
    """Remove ticks and grid, and leave a thin frame of the axes."""
    axes.set(xticks=[], yticks=[])
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set(visible=True, edgecolor=LINE)


def show_image(axes: Axes, image: NDArray[Any]) -> None:
    """Show an image (N, H, W) in [0, 1].

    It is in colour if it has three channels, else the mean of the channels in grey.
    """
    channels, height, width = image.shape
    pixels = image.transpose(1, 2, 0) if channels == 3 else image.mean(axis=0)
    # Pixel i covers [i, i + 1], as boxes and centres of positions assume. The extent is left,
    # right, bottom, top.
    extent = (0, width, height, 0)
    axes.imshow(
        np.clip(pixels, 0, 1), cmap="gray", vmin=0, vmax=1, interpolation="none", extent=extent
    )


def draw_classes(
    axes: Axes,
    classes: NDArray[Any],
    strengths: NDArray[Any],
    count: int,
    extent: tuple[float, float, float, float],
) -> None:
    """Draw a map of classes over an image, each class in its colour.

    Args:
        axes: where the image is shown already.
        classes: (h, w), from 0 to `count` - 1, or `count` where nothing is drawn.
        strengths: (h, w), from 0 to 1, which scale the opacity up to `STRENGTH`.
        count: the number of classes.
        extent: left, right, bottom and top of the map, in pixels.
    """
    rgba = np.zeros((*classes.shape, 4))
    colours = np.array([to_rgb(colour) for colour in class_colours(count)])
    detected = classes < count
    rgba[detected, :3] = colours[classes[detected]]
    rgba[detected, 3] = STRENGTH * strengths[detected]
    # `imshow` would set the limits to the extent of the map, which may be smaller than the image.
    xlim = axes.get_xlim()
    ylim = axes.get_ylim()
    axes.imshow(rgba, interpolation="none", extent=extent)
    axes.set(xlim=xlim, ylim=ylim)


def name_at(axes: Axes, x: float, y: float, name: str) -> None:
    """Write a name centred on a point in pixels, in letters that are legible on any image."""
    axes.text(
        x,
        y,
        literal(name),
        color="white",
        fontsize=11,
        fontweight="bold",
        ha="center",
        va="center",
        path_effects=[withStroke(linewidth=2.2, foreground="black")],
    )


def extent_of(ys: NDArray[Any], xs: NDArray[Any]) -> tuple[float, float, float, float]:
    """Return left, right, bottom and top of a map, in pixels.

    `ys` and `xs` are the centres of its rows and columns.
    """
    top, bottom = edges(ys)
    left, right = edges(xs)
    return left, right, bottom, top


def edges(centres: NDArray[Any]) -> tuple[float, float]:
    """Return the start of the first and the end of the last cell around evenly spaced centres."""
    first = float(centres[0])
    last = float(centres[-1])
    # A single cell begins at 0.
    step = 2 * first
    if len(centres) > 1:
        step = float(centres[-1] - centres[0]) / (len(centres) - 1)
    return first - step / 2, last + step / 2
