"""Bags that are sets of images, each of one thing."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from milbench._utils.devices import to_device
from milbench.api.bags import Bags, Truth, label_matrix, pad_bags
from milbench.data.labelled_images import LabelledImages


def filled(images: LabelledImages, bags: Sequence[Tensor], num_classes: int) -> Bags:
    """Return bags of the images with these numbers as one batch (B, K, channels * h * w), the smaller ones padded.

    Images are of the classes 0 to `num_classes` - 1, or of background, `num_classes`.
    """
    index, mask = pad_bags(bags)
    drawn, instance_mask = images[index], to_device(mask, images.classes.device)
    pixels = drawn.scaled().flatten(2) * instance_mask.unsqueeze(2)
    position_classes = drawn.classes.masked_fill(~instance_mask, num_classes)
    classes = position_classes.masked_fill(position_classes == num_classes, -1)
    full = bool(mask.all())  # on the host, which need not wait for it
    truth = Truth(classes, position_classes=position_classes)
    return Bags(pixels, label_matrix(classes, num_classes), None if full else instance_mask, truth)
