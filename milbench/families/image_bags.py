"""Bags from labelled images: one bag an image."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from milbench._utils.devices import to_device
from milbench.api.bags import Bags, Truth, label_matrix
from milbench.data.labelled_images import LabelledImages

if TYPE_CHECKING:
    from PIL.Image import Image

DIGITS = 10
"""How many classes a task has whose classes are the digits."""


def single_instance_bags(images: LabelledImages, num_classes: int) -> Bags:
    """Return every image as a bag of one instance (channels, h, w) in [0, 1] that fills it."""
    height, width = images.pixels.shape[-2:]
    classes = images.classes.unsqueeze(1)
    box = to_device(torch.tensor([0.0, 0.0, width, height]), classes.device)
    return Bags(
        images.scaled(), label_matrix(classes, num_classes), truth=Truth(classes, box.expand(len(images), 1, 4))
    )


def to_picture(instances: Tensor, white: int) -> Image:
    """Return pixels (N, H, W) divided by `white` as a picture, grey for N = 1 and in colours for N = 3."""
    from PIL.Image import fromarray

    pixels = (instances * white).round().clamp(0, 255).byte().cpu().numpy()
    return fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))
