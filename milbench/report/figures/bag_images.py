"""One image of a bag on its axes: the picture, classes laid over it in their colours, their names, and the verdict."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray

from milbench._utils.palette import LINE, class_colours
from milbench.api.gallery import Gallery
from milbench.report.figures.style import literal

STRENGTH = 0.75
"""The opacity of a class with probability 1."""
MOST_NAMED = 5
_RIGHT, _WRONG = "#159a74", "#cf4456"


def plain(axes: Axes) -> None:
    """Remove ticks and grid, and leave a thin frame of the axes."""
    axes.set(xticks=[], yticks=[])
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set(visible=True, edgecolor=LINE)


def show_grey(axes: Axes, image: NDArray[Any]) -> None:
    """Show an image (N, H, W) in [0, 1] as the mean of its channels."""
    grey = np.clip(image.mean(axis=0), 0, 1)
    axes.imshow(grey, cmap="gray", vmin=0, vmax=1, interpolation="none", extent=_extent(image))


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
    found = classes < count
    rgba[found, :3] = colours[classes[found]]
    rgba[found, 3] = STRENGTH * strengths[found]
    limits = (axes.get_xlim(), axes.get_ylim())
    axes.imshow(rgba, interpolation="none", extent=extent)
    axes.set(xlim=limits[0], ylim=limits[1])


def name_at(axes: Axes, x: float, y: float, name: str) -> None:
    """Write a name around a point in pixels, in letters that are legible on any image."""
    axes.text(x, y, literal(name), color="white", fontsize=11, fontweight="bold", ha="center", va="center",
              path_effects=[withStroke(linewidth=2.2, foreground="black")])  # fmt: skip


def centres(gallery: Gallery) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return y of every row and x of every column of positions, in pixels; of a sequence x alone counts, in frames."""
    if gallery.centres is not None:
        return gallery.centres
    sizes, positions = gallery.instances.shape[-2:], gallery.probs.shape[-2:]
    ys, xs = ((np.arange(n, dtype=np.float32) + 0.5) * (size / n) for size, n in zip(sizes, positions, strict=True))
    return ys, xs


def extent_of(ys: NDArray[np.float32], xs: NDArray[np.float32]) -> tuple[float, float, float, float]:
    """Return left, right, bottom and top in pixels of a map, from the centres of its rows and columns."""
    (top, bottom), (left, right) = edges(ys), edges(xs)
    return left, right, bottom, top


def edges(centres: NDArray[np.float32]) -> tuple[float, float]:
    """Return the begin of the first and the end of the last cell around evenly spaced centres."""
    step = float(centres[-1] - centres[0]) / (len(centres) - 1) if len(centres) > 1 else 2 * float(centres[0])
    return float(centres[0]) - step / 2, float(centres[-1]) + step / 2


def judge(axes: Axes, gallery: Gallery, bag: int) -> None:
    """Write the detected classes above a bag, and whether they are its label set."""
    detected = gallery.detected(bag)
    mark, colour = ("✓", _RIGHT) if detected == gallery.true(bag) else ("✗", _WRONG)
    title = f"{mark} {set_name(detected, gallery.class_names)}"
    axes.set_title(literal(title), fontsize=9, loc="center", color=colour, pad=3)


def set_name(classes: set[int], names: tuple[str, ...]) -> str:
    """Return a label set as text, or the number of its classes where they are more than MOST_NAMED."""
    if len(classes) > MOST_NAMED:
        return f"{len(classes)} classes"
    return "{" + ", ".join(names[c] for c in sorted(classes)) + "}" if classes else "∅"


def _extent(image: NDArray[Any]) -> tuple[float, float, float, float]:
    """Return the extent in which pixel i covers [i, i + 1], as boxes and centres of positions assume."""
    return 0, image.shape[2], image.shape[1], 0
