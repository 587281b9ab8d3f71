"""What all tasks with images share: how a picture is read and shown, and an image of one thing as a bag."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from milbench._utils.devices import to_device
from milbench._utils.images import colours, grey
from milbench.contracts.bags import Bags, Origin, Truth, label_matrix
from milbench.contracts.task import Task
from milbench.data.labelled_images import LabelledImages

if TYPE_CHECKING:
    from PIL.Image import Image

DIGITS = 10
"""Classes of the tasks whose things are digits."""
DIGIT_NAMES = tuple(str(digit) for digit in range(DIGITS))


def single_instance_bags(images: LabelledImages, num_classes: int) -> Bags:
    """Return every image as a bag of one instance (channels, h, w) in [0, 1] that fills it.

    Bags have the numbers of their images, where these are numbered.
    """
    height, width = images.pixels.shape[-2:]
    classes = images.classes.unsqueeze(1)
    box = to_device(torch.tensor([0.0, 0.0, width, height]), classes.device)
    truth = Truth(classes, box.expand(len(images), 1, 4))
    origin = None if images.numbers is None else Origin(images.numbers)
    return Bags(images.scaled(), label_matrix(classes, num_classes), truth=truth, origin=origin)


class ImageTask(Task):
    """Base class of tasks whose bags are images, which a network can read from pictures."""

    bag_kind = "images"
    white: ClassVar[int] = 255
    """The value of a pixel that is scaled to 1."""

    @property
    @abstractmethod
    def channels(self) -> int:
        """How many channels an image has: 1 for grey, 3 for colours."""

    def instances_from(self, picture: Image) -> Tensor:
        """Return a picture, in grey or in colours as the images are, (channels, H, W) in [0, 1]."""
        pixels = grey(picture) if self.channels == 1 else colours(picture)
        return torch.from_numpy(pixels) / self.white

    def picture_from(self, instances: Tensor) -> Image:
        from PIL.Image import fromarray

        pixels = (instances * self.white).round().clamp(0, 255).byte().cpu().numpy()
        if len(pixels) == 1:
            return fromarray(pixels[0])
        return fromarray(pixels.transpose(1, 2, 0))
