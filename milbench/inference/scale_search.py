"""Search for the scale at which a picture is read: a network recognises instances of the sizes in its training data.

The paper reads whole pictures at their own size. Here a picture of house numbers is read at several scales, and the
scale is used whose label set, as the loss finds it there, is the most probable: at a wrong scale the classes are spread
over many positions of low probability, and no label set is probable.
"""

from __future__ import annotations

import math

from PIL import Image

from milbench._utils.images import bounded
from milbench.api.decoder import Decoder
from milbench.errors import UsageError
from milbench.inference.load import Trained
from milbench.inference.predict import Prediction, check_size, predict

STEPS = 2
"""How many scales a doubling has. Training on house numbers varies their size by a factor of 1.4, one step."""
LARGEST_SCALE = 1000.0
"""No picture is read at a scale above this, or below 1 / LARGEST_SCALE."""
ENLARGED_SIDES = 4
"""A picture is enlarged to at most so many sides of a training crop."""
Scale = float | None
"""The size at which a picture is read, as a multiple of its own; None: the best of several."""


def parse_scale(model: Trained, text: str | None) -> Scale:
    """Return the scale that the user asked for, "auto" or a number; without one auto for house numbers, else 1.

    Raises:
        UsageError: the text is neither, or it is "auto" for a task whose instances have one size.
    """
    if text is None:
        return None if _crop_side(model) else 1.0
    if text == "auto":
        if _crop_side(model):
            return None
        raise UsageError(f"--scale auto is for house numbers: {model.cell.task} has digits of one size; give a number")
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 1 / LARGEST_SCALE <= number <= LARGEST_SCALE:
        raise UsageError(
            f"--scale {text}: expected auto or a number from {1 / LARGEST_SCALE:g} to {LARGEST_SCALE:g}, such as 0.5"
        )
    return number


def candidate_sizes(model: Trained, size: tuple[int, int], scale: Scale) -> list[tuple[int, int]]:
    """Return the widths and heights in pixels at which a picture of that width and height is read, ascending.

    Where the best scale is searched for, the longer side goes from that of a training crop up to its own, or up to
    ENLARGED_SIDES crops if it is shorter than that. Very large pictures are shrunk first. A size in which the network
    has no position is left out.

    Raises:
        UsageError: the network has no position in a picture of any of these sizes.
    """
    if scale is not None:
        candidates = [bounded(*_times(size, scale))]
    else:
        own = bounded(*size)
        side = _crop_side(model) or max(own)
        limits = [STEPS * math.log2(sides * side / max(own)) for sides in (1, ENLARGED_SIDES)]
        first, last = math.ceil(limits[0] - 1e-9), max(math.floor(limits[1] + 1e-9), 0)
        candidates = [_times(own, 2 ** (n / STEPS)) for n in range(first, last + 1)]
    for n, (width, height) in enumerate(candidates):
        try:
            check_size(model, width, height)
        except UsageError:
            if n + 1 == len(candidates):
                raise
        else:
            return candidates[n:]
    return []


def predict_best_scale(
    model: Trained, picture: Image.Image, scale: Scale, decoder: Decoder | None = None
) -> tuple[Image.Image, Prediction]:
    """Return a picture of mode L or RGB at the size at which it is read, and what is read in it, in its pixels there.

    Of several scales, the one whose label set is the most probable is used. An empty label set is used only if all are
    empty, because in a picture that is far too small or too large the empty set has a probability near 1.

    Raises:
        UsageError: see `candidate_sizes` and `predict`.
    """
    scaled = (
        picture if size == picture.size else picture.resize(size, Image.Resampling.BICUBIC)
        for size in candidate_sizes(model, picture.size, scale)
    )
    predictions = ((one, predict(model, model.task.instances_from(one), decoder)) for one in scaled)
    return max(predictions, key=lambda one: (bool(one[1].labels.any()), one[1].log_prob))


def _crop_side(model: Trained) -> int | None:
    """Return the side of training crops in pixels, where whole pictures show their instances at any size."""
    side: int | None = getattr(model.task, "crop_side", None)
    return side


def _times(size: tuple[int, int], factor: float) -> tuple[int, int]:
    return max(round(size[0] * factor), 1), max(round(size[1] * factor), 1)
