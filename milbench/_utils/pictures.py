"""A picture on its axes, with classes laid over it in their colours and their names, in reports and predictions."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray

from milbench._utils.palette import LINE, class_colours

STRENGTH = 0.75  # the opacity of a class with probability 1
RIGHT, WRONG = "#159a74", "#cf4456"
"""The colours of what is found rightly and wrongly."""


def literal(text: str) -> str:
    """Return text escaped for matplotlib, for which a pair of dollars would start a formula."""
    return text.replace("$", r"\$")


def plain(axes: Axes) -> None:
    """Remove ticks and grid, and leave a thin frame of the axes."""
    axes.set(xticks=[], yticks=[])
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set(visible=True, edgecolor=LINE)


def show_image(axes: Axes, image: NDArray[Any]) -> None:
    """Show an image (N, H, W) in [0, 1]: three channels in colour, others as their mean in grey."""
    pixels = np.clip(image.transpose(1, 2, 0) if len(image) == 3 else image.mean(axis=0), 0, 1)
    extent = (
        0,
        image.shape[2],
        image.shape[1],
        0,
    )  # pixel i covers [i, i + 1], as boxes and centres of positions assume
    axes.imshow(pixels, cmap="gray", vmin=0, vmax=1, interpolation="none", extent=extent)


def draw_classes(
    axes: Axes,
    classes: NDArray[Any],
    strengths: NDArray[Any],
    count: int,
    extent: tuple[float, float, float, float],
) -> None:
    """Draw a map of `count` classes over an image, each class in its colour.

    `classes` (h, w) are `count` where nothing is drawn. A position is opaque in proportion to its strength, from 0 to
    STRENGTH. The extent of the map is left, right, bottom and top in pixels.
    """
    rgba = np.zeros((*classes.shape, 4))
    colours = np.array([to_rgb(colour) for colour in class_colours(count)])
    detected = classes < count
    rgba[detected, :3] = colours[classes[detected]]
    rgba[detected, 3] = STRENGTH * strengths[detected]
    xlim, ylim = axes.get_xlim(), axes.get_ylim()
    axes.imshow(rgba, interpolation="none", extent=extent)
    axes.set(xlim=xlim, ylim=ylim)


def name_at(axes: Axes, x: float, y: float, name: str) -> None:
    """Write a name around a point in pixels, in letters that are legible on any image."""
    axes.text(x, y, literal(name), color="white", fontsize=11, fontweight="bold", ha="center", va="center",
              path_effects=[withStroke(linewidth=2.2, foreground="black")])  # fmt: skip


def extent_of(ys: NDArray[Any], xs: NDArray[Any]) -> tuple[float, float, float, float]:
    """Return left, right, bottom and top in pixels of a map, from the centres of its rows and columns."""
    (top, bottom), (left, right) = edges(ys), edges(xs)
    return left, right, bottom, top


def edges(centres: NDArray[Any]) -> tuple[float, float]:
    """Return the begin of the first and the end of the last cell around evenly spaced centres."""
    step = (
        float(centres[-1] - centres[0]) / (len(centres) - 1)
        if len(centres) > 1
        else 2 * float(centres[0])
    )
    return float(centres[0]) - step / 2, float(centres[-1]) + step / 2
