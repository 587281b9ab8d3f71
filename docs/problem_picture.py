"""Draw docs/problem.png: a bag, its label set, a network, its maps and the loss.

The picture is a drawing, not a result: the digits are scikit-learn's, and the maps are made up. Run
from the root of the repository: python docs/problem_picture.py
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from sklearn.datasets import load_digits

# Sizes of letters, which are legible even on a telephone 390 pixels wide. It shows the picture at
# about a third of its size.
SMALL = 15
LARGE = 19
INK = "#1c2733"
QUIET = "#5b6874"
ACCENT = "#00695c"
CANVAS = 24
"""Pixels on each side of the photo."""
SIDE = 8
"""Pixels on each side of a digit of scikit-learn."""
CORNERS = {3: (3, 2), 8: (12, 14)}
"""Row and column of the upper left corner of each digit."""
SPINE = 0.915
"""The x of the vertical line from the maps to the loss, where the width of the picture is 1."""


def photo() -> NDArray[np.float64]:
    """Return a canvas with a three, an eight and some speckles."""
    digits = load_digits()
    canvas = 3 * np.random.default_rng(0).random((CANVAS, CANVAS))
    for digit, (row, column) in CORNERS.items():
        first = int(np.flatnonzero(digits.target == digit)[0])
        # A view of the canvas, so that the digit is added to it.
        square = canvas[row : row + SIDE, column : column + SIDE]
        square += digits.images[first]
    return canvas


def map_of(digit: int) -> NDArray[np.float64]:
    """Return a smooth spot where the digit is."""
    row, column = np.array(CORNERS[digit]) + SIDE / 2
    rows, columns = np.mgrid[:CANVAS, :CANVAS]
    squared_distance = (rows - row) ** 2 + (columns - column) ** 2
    width = 3.2
    return np.exp(-squared_distance / (2 * width**2))


def map_of_background() -> NDArray[np.float64]:
    """Return a map that is high wherever no digit is."""
    return 1 - np.maximum(map_of(3), map_of(8))


def show(axes: Axes, image: NDArray[np.float64], colours: str, title: str) -> None:
    """Show an image with a frame and a title."""
    axes.imshow(image, cmap=colours, interpolation="nearest")
    axes.set_title(title, fontsize=LARGE, color=INK, pad=8)
    axes.set_xticks([])
    axes.set_yticks([])


def box(page: Axes, centre: tuple[float, float], text: str, colour: str = INK) -> None:
    """Write a text with a frame around it."""
    page.text(
        *centre,
        text,
        ha="center",
        va="center",
        fontsize=LARGE,
        color=colour,
        linespacing=1.35,
        bbox={"boxstyle": "round,pad=0.5", "facecolor": "white", "edgecolor": colour, "lw": 2},
    )


def line(page: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    """Draw a line without an arrowhead."""
    xs, ys = zip(start, end, strict=True)
    page.plot(xs, ys, lw=2.5, color=QUIET, solid_capstyle="butt")


def arrow(page: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    """Draw an arrow."""
    style = {"arrowstyle": "-|>", "lw": 2.5, "color": QUIET, "mutation_scale": 24}
    page.annotate("", xy=end, xytext=start, arrowprops=style)


def draw() -> None:
    """Draw and save the figure."""
    figure = plt.figure(figsize=(8, 8.8), facecolor="white")
    page = figure.add_axes((0, 0, 1, 1))
    page.set_xlim(0, 1)
    page.set_ylim(0, 1)
    page.axis("off")
    draw_bag_and_network(figure, page)
    draw_maps(figure, page)
    draw_label_set_and_loss(page)
    figure.savefig(Path(__file__).with_name("problem.png"), dpi=120)


def draw_bag_and_network(figure: Figure, page: Axes) -> None:
    """Draw the photo, and the network that sees it."""
    show(figure.add_axes((0.03, 0.5, 0.33, 0.3)), photo(), "gray_r", "the bag: a photo")
    box(page, (0.505, 0.65), "network")
    arrow(page, (0.37, 0.65), (0.415, 0.65))


def draw_maps(figure: Figure, page: Axes) -> None:
    """Draw the maps that the network makes, and the lines from them to the loss."""
    show(figure.add_axes((0.65, 0.755, 0.2, 0.182)), map_of(3), "Greens", "map of class 3")
    show(figure.add_axes((0.65, 0.52, 0.2, 0.182)), map_of(8), "Greens", "map of class 8")
    # The name of this map is below it: above it, the arrow from the network would cross the name.
    background = figure.add_axes((0.675, 0.355, 0.15, 0.136))
    show(background, map_of_background(), "Greens", "")
    background.set_xlabel("map of the background", fontsize=SMALL, color=INK, labelpad=6)
    arrow(page, (0.59, 0.69), (0.64, 0.8))
    arrow(page, (0.6, 0.64), (0.64, 0.62))
    arrow(page, (0.59, 0.61), (0.665, 0.45))

    # All three maps go into the loss, along one line.
    for right, height in [(0.855, 0.846), (0.855, 0.611), (0.83, 0.423)]:
        line(page, (right, height), (SPINE, height))
    line(page, (SPINE, 0.849), (SPINE, 0.3))
    arrow(page, (SPINE, 0.31), (SPINE, 0.252))


def draw_label_set_and_loss(page: Axes) -> None:
    """Draw the label set, which the loss is told, and the loss."""
    box(page, (0.195, 0.17), "the label set\n{3, 8}")
    page.text(
        0.195,
        0.05,
        "which classes occur,\nnot where, not how often",
        ha="center",
        va="center",
        fontsize=SMALL,
        color=QUIET,
    )
    box(page, (0.79, 0.165), "the loss:\ndo the maps\nexplain {3, 8}?", ACCENT)
    arrow(page, (0.34, 0.17), (0.625, 0.17))
    page.text(
        0.79,
        0.04,
        "milbench compares these",
        ha="center",
        va="center",
        fontsize=SMALL,
        color=ACCENT,
    )


if __name__ == "__main__":
    draw()
