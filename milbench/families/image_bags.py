"""Bags that are images, and those made from labelled images."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from milbench._utils.devices import to_device
from milbench._utils.images import colours, grey
from milbench.api.bags import Bags, Truth, label_matrix
from milbench.data.labelled_images import LabelledImages
from milbench.families.fixed_bags import FixedBags

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


class ImageTask(FixedBags):
    """Base class of tasks whose bags are images, which a network can read from pictures."""

    bag_kind = "images"
    inputs: int = 1
    """Of an image: 1 for grey, 3 for colours."""
    white: ClassVar[int] = 255
    """The value of a pixel that is scaled to 1."""

    def instances_from(self, picture: Image) -> Tensor:
        """Return a picture, in grey or in colours as the images are, (channels, H, W) in [0, 1]."""
        return torch.from_numpy(grey(picture) if self.inputs == 1 else colours(picture)) / self.white

    def picture_from(self, instances: Tensor) -> Image:
        from PIL.Image import fromarray

        pixels = (instances * self.white).round().clamp(0, 255).byte().cpu().numpy()
        return fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))
