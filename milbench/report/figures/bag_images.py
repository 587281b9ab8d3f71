"""What is written beside the bags of a gallery: where their positions are, what a loss detects, and the verdict."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from milbench._utils.pictures import RIGHT, WRONG, literal
from milbench.api.gallery import Gallery

MOST_NAMED = 5


def centres(gallery: Gallery) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return y of every row and x of every column of positions, in pixels; of a sequence x alone counts, in frames."""
    if gallery.ys is not None and gallery.xs is not None:
        return gallery.ys, gallery.xs
    sizes, positions = gallery.instances.shape[-2:], gallery.probs.shape[-2:]
    ys, xs = ((np.arange(n, dtype=np.float32) + 0.5) * (size / n) for size, n in zip(sizes, positions, strict=True))
    return ys, xs


def write_verdict(axes: Axes, gallery: Gallery, bag: int) -> None:
    """Write the detected classes above a bag, and whether they are its label set."""
    detected = gallery.detected(bag)
    mark, colour = ("✓", RIGHT) if detected == gallery.true(bag) else ("✗", WRONG)
    title = f"{mark} {set_name(detected, gallery.class_names)}"
    axes.set_title(literal(title), fontsize=9, loc="center", color=colour, pad=3)


def set_name(classes: set[int], names: tuple[str, ...]) -> str:
    """Return a label set as text, or the number of its classes where they are more than MOST_NAMED."""
    if len(classes) > MOST_NAMED:
        return f"{len(classes)} classes"
    return "{" + ", ".join(names[c] for c in sorted(classes)) + "}" if classes else "∅"
