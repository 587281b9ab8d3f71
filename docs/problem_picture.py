"""Draw docs/problem.png: a bag, its label set, a network, its maps and the loss.

It is a drawing, not a result: the digits are scikit-learn's, the maps are made up. Run from the repository root:
python docs/problem_picture.py
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray
from sklearn.datasets import load_digits

# Letters that a telephone of 390 pixels still shows: the picture is scaled to about a third there.
SMALL, LARGE = 15, 19
INK, QUIET, ACCENT = "#1c2733", "#5b6874", "#00695c"
CANVAS = 24  # pixels a side of the photo
PLACES = {3: (3, 2), 8: (12, 14)}  # row and column of the corner of each digit
SIDE = 8  # pixels a side of a digit of scikit-learn


def photo() -> NDArray[np.float64]:
    """Return a canvas with a three, an eight and some speckles."""
    digits = load_digits()
    canvas = 3 * np.random.default_rng(0).random((CANVAS, CANVAS))
    for digit, (row, column) in PLACES.items():
        first = int(np.flatnonzero(digits.target == digit)[0])
        place = canvas[row : row + SIDE, column : column + SIDE]
        place += digits.images[first]
    return canvas


def map_of(digit: int) -> NDArray[np.float64]:
    """Return a smooth spot where the digit is."""
    row, column = np.array(PLACES[digit]) + SIDE / 2
    rows, columns = np.mgrid[:CANVAS, :CANVAS]
    distance = (rows - row) ** 2 + (columns - column) ** 2
    return np.exp(-distance / (2 * 3.2**2))


def show(axes: Axes, image: NDArray[np.float64], colours: str, title: str) -> None:
    """Show an image with a frame and a title."""
    axes.imshow(image, cmap=colours, interpolation="nearest")
    axes.set_title(title, fontsize=LARGE, color=INK, pad=8)
    axes.set_xticks([])
    axes.set_yticks([])


def box(page: Axes, centre: tuple[float, float], text: str, colour: str = INK) -> None:
    """Write a text into a frame."""
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


def arrow(page: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    """Draw an arrow."""
    style = {"arrowstyle": "-|>", "lw": 2.5, "color": QUIET, "mutation_scale": 24}
    page.annotate("", xy=end, xytext=start, arrowprops=style)


def draw() -> None:
    """Draw and save the figure."""
    figure = plt.figure(figsize=(8, 7.4), facecolor="white")
    page = figure.add_axes((0, 0, 1, 1))
    page.set_xlim(0, 1)
    page.set_ylim(0, 1)
    page.axis("off")

    show(figure.add_axes((0.03, 0.49, 0.33, 0.36)), photo(), "gray_r", "the bag: a photo")
    show(figure.add_axes((0.69, 0.7, 0.2, 0.22)), map_of(3), "Greens", "map of class 3")
    show(figure.add_axes((0.69, 0.41, 0.2, 0.22)), map_of(8), "Greens", "map of class 8")
    box(page, (0.515, 0.67), "network")
    arrow(page, (0.37, 0.67), (0.425, 0.67))
    arrow(page, (0.61, 0.7), (0.68, 0.78))
    arrow(page, (0.61, 0.64), (0.68, 0.55))

    box(page, (0.195, 0.24), "the label set\n{3, 8}")
    page.text(
        0.195,
        0.1,
        "which classes occur,\nnot where, not how often",
        ha="center",
        va="center",
        fontsize=SMALL,
        color=QUIET,
    )
    box(page, (0.79, 0.22), "the loss:\ndo the maps\nexplain {3, 8}?", ACCENT)
    arrow(page, (0.34, 0.24), (0.625, 0.24))
    arrow(page, (0.79, 0.4), (0.79, 0.335))
    page.text(
        0.79,
        0.07,
        "milbench compares these",
        ha="center",
        va="center",
        fontsize=SMALL,
        color=ACCENT,
    )
    figure.savefig(Path(__file__).with_name("problem.png"), dpi=120)


if __name__ == "__main__":
    draw()
