"""What tasks with images share: reading and showing pictures, and bags of one instance."""

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
"""The number of classes of tasks whose instances are digits."""
DIGIT_NAMES = tuple(str(digit) for digit in range(DIGITS))


def single_instance_bags(images: LabelledImages, num_classes: int) -> Bags:
    """Return every image (channels, h, w) in [0, 1] as a bag of one instance.

    The box of the instance is the whole image. Where images are numbered, the origin of a bag is
    the number of its image.
    """
    height, width = images.pixels.shape[-2:]
    classes = images.classes.unsqueeze(1)
    box = to_device(torch.tensor([0.0, 0.0, width, height]), classes.device)
    truth = Truth(classes, box.expand(len(images), 1, 4))
    origin = None if images.numbers is None else Origin(images.numbers)
    return Bags(images.scaled(), label_matrix(classes, num_classes), truth=truth, origin=origin)


class ImageTask(Task):
    """Base class of tasks whose bags are images, so that a trained network can read pictures."""

    bag_kind = "images"
    white: ClassVar[int] = 255
    """The value of a pixel that is scaled to 1."""

    @property
    @abstractmethod
    def channels(self) -> int:
        """How many channels an image has: 1 for grey, 3 for colours."""

    def instances_from(self, picture: Image) -> Tensor:
        """Return a picture as an image (channels, H, W) in [0, 1], in grey or in colours."""
        pixels = grey(picture) if self.channels == 1 else colours(picture)
        return torch.from_numpy(pixels) / self.white

    def picture_from(self, instances: Tensor) -> Image:
        """Return an image (channels, H, W) in [0, 1] as a picture that can be shown."""
        from PIL.Image import fromarray

        pixels = (instances * self.white).round().clamp(0, 255).byte().cpu().numpy()
        if len(pixels) == 1:
            return fromarray(pixels[0])
        return fromarray(pixels.transpose(1, 2, 0))
