"""Pages for one picture: what a trained network detects in it, and below what it reads."""

from __future__ import annotations

import numpy as np
from PIL import Image

from milbench._utils.palette import INK, MUTED
from milbench.inference.load import Trained
from milbench.inference.overlay import CaptionLine, captioned, class_overlay, enlargement, sensitivity_overlay
from milbench.inference.predict import Prediction, label_set_text, reading_text, sensitivities

RIGHT, WRONG = "#0f7b5c", "#c23a4b"
"""The colours of what is read rightly and wrongly."""


def prediction_page(model: Trained, image: Image.Image, found: Prediction) -> Image.Image:
    """Return a picture in which every position has the colour of its class, with its caption."""
    overlay = class_overlay(image, found, model.task.class_names, enlargement(*image.size))
    return captioned(overlay, caption_lines(model, found))


def sensitivity_page(model: Trained, image: Image.Image, found: Prediction) -> Image.Image:
    """Return a picture in which every pixel shows how much the classes depend on it, with its caption."""
    factor = enlargement(*image.size)
    heat = sensitivity_overlay(image, found, sensitivities(model, image, found), model.task.class_names, factor)
    meaning = CaptionLine("colour: the class that depends most on a pixel; strength: how much it depends", 13)
    return captioned(heat, [*caption_lines(model, found), meaning])


def caption_lines(model: Trained, found: Prediction, truth: str | None = None, also: str = "") -> list[CaptionLine]:
    """Return the caption of a picture: what is read, the label set, and the decoder.

    Args:
        model: the trained network.
        found: what is read in the picture.
        truth: the true string; None where it is not known.
        also: what else the last line states.

    Returns:
        Three lines, from top to bottom.
    """
    read = reading_text(model, found)
    verdict, colour = "", INK
    if truth is not None:
        right = read == truth
        verdict, colour = ("  ✓", RIGHT) if right else (f"  ✗ {truth}", WRONG)
    sets = f"label set {label_set_text(model, found.labels)}, probability {np.exp(found.log_prob):.2g}"
    how = "  ·  ".join([*([also] if also else []), f"read by {found.decoder}"])
    head = CaptionLine(f"{read or 'nothing'}{verdict}", 24, colour, bold=True)
    return [head, CaptionLine(sets, 13, MUTED), CaptionLine(how, 13, MUTED)]
