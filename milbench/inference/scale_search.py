"""At which size to look at a picture: a network knows instances of the size that they had in training alone.

The paper looks at whole pictures as they are. Here a picture of house numbers is also looked at larger and smaller, and
what counts is the look whose label set is the most probable: at a wrong size the classes are spread over many doubtful
positions, and no one label set has much of the probability. Nothing is learnt for that and no label is used.
"""

from __future__ import annotations

import math

from PIL import Image

from milbench._utils.images import bounded
from milbench.errors import UsageError
from milbench.inference.load import Trained
from milbench.inference.predict import Decoder, Prediction, check_size, predict

STEPS = 2
"""Sizes to a doubling. Training on house numbers varies their size by 1.4, one step, as well."""
LARGEST = 1000.0
"""Or 1 / LARGEST: no picture is looked at larger or smaller than that."""
ENLARGED = 4
"""A picture is enlarged to so many sides of a training crop at most."""
Scale = float | None
"""How many times larger than it is a picture is looked at; None: at several sizes."""


def scale_of(model: Trained, wanted: str | None) -> Scale:
    """Return the scale that "auto" or a number asks for; nothing is auto for house numbers, else 1.

    Raises UsageError where it is neither, and for auto where instances have but one size.
    """
    if wanted is None:
        return None if model.task.crop_side else 1.0
    if wanted == "auto":
        if model.task.crop_side:
            return None
        raise UsageError(f"--scale auto is for house numbers: {model.cell.task} has digits of one size; give a number")
    try:
        number = float(wanted)
    except ValueError:
        number = math.nan
    if not 1 / LARGEST <= number <= LARGEST:
        raise UsageError(
            f"--scale {wanted}: expected auto or a number from {1 / LARGEST:g} to {LARGEST:g}, such as 0.5"
        )
    return number


def sizes(model: Trained, size: tuple[int, int], scale: Scale) -> list[tuple[int, int]]:
    """Return the widths and heights at which a picture of that size is looked at, the smallest first.

    Where the scale is free, its longer side goes from that of a training crop up to its own, or to ENLARGED crops if it
    is smaller than that. Pictures are bounded first, see `milbench._utils.images.bounded`. Raises UsageError where
    all are too small for the network.
    """
    if scale is not None:
        wanted = [bounded(*_times(size, scale))]
    else:
        own = bounded(*size)
        side = model.task.crop_side or max(own)
        steps = [STEPS * math.log2(many * side / max(own)) for many in (1, ENLARGED)]
        first, last = math.ceil(steps[0] - 1e-9), max(math.floor(steps[1] + 1e-9), 0)
        wanted = [_times(own, 2 ** (n / STEPS)) for n in range(first, last + 1)]
    for n, (width, height) in enumerate(wanted):
        try:
            check_size(model, width, height)
        except UsageError:
            if n + 1 == len(wanted):
                raise
        else:
            return wanted[n:]
    return []


def look(
    model: Trained, picture: Image.Image, scale: Scale, decoder: Decoder | None = None
) -> tuple[Image.Image, Prediction]:
    """Return a picture of mode L or RGB as it was looked at, and what is read in it there.

    Of several looks the one that counts has the most probable label set, the empty one aside unless all are empty: a
    picture that is far too small or too large shows nothing, and that with certainty. Raises UsageError, see `sizes`.
    """
    seen = (
        picture if size == picture.size else picture.resize(size, Image.Resampling.BICUBIC)
        for size in sizes(model, picture.size, scale)
    )
    looks = ((one, predict(model, model.task.instances_from(one), decoder)) for one in seen)
    return max(looks, key=lambda one: (bool(one[1].labels.any()), one[1].log_prob))


def _times(size: tuple[int, int], factor: float) -> tuple[int, int]:
    return max(round(size[0] * factor), 1), max(round(size[1] * factor), 1)
