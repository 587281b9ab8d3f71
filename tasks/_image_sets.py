"""Bags that are sets of images, each image of one thing: their batches, and a network for them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

import torch
from torch import Tensor, nn

from milbench import (
    Bags,
    EvalSplit,
    LabelledImages,
    Network,
    Origin,
    Truth,
    label_matrix,
    pad_bags,
)
from milbench._utils.devices import to_device
from milbench.families.fixed_bags import Lazy
from milbench.networks.initialisation import initialise


class EveryImage(Network):
    """A network that sees every image of a set by itself: convolutions, then a linear layer.

    The input is (B, K, h * w), with K images of h rows and w columns. The output is logits
    (B, C+1, K).
    """

    head: nn.Linear

    def __init__(
        self,
        body: nn.Sequential,
        shape: tuple[int, int],
        features: int,
        num_classes: int,
        seed: int,
    ) -> None:
        super().__init__()
        self.body = body
        self.shape = shape
        self.head = nn.Linear(features, num_classes + 1)
        initialise(self, seed)

    def forward(self, instances: Tensor) -> Tensor:
        images = instances.reshape(-1, 1, *self.shape).contiguous(memory_format=torch.channels_last)
        logits: Tensor = self.head(self.body(images))
        return logits.view(*instances.shape[:2], -1).transpose(1, 2)


@dataclass(frozen=True, slots=True)
class ChosenBags:
    """Bags to evaluate on: the numbers of the images of each bag, and where the bags come from.

    The origin lacks the items, which tell what bags share. `ImageBatches` adds the images as items,
    if the images have numbers.
    """

    images: Sequence[Tensor]
    origin: Origin

    @classmethod
    def in_order(cls, images: Sequence[Tensor]) -> Self:
        """Return these bags, numbered from 0 on."""
        return cls(images, Origin(torch.arange(len(images))))

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, part: slice) -> Self:
        return type(self)(self.images[part], self.origin.selected(part))


@dataclass(frozen=True)
class ImageBatches:
    """Makes batches of sets of images. Each image shows one class, or background."""

    num_classes: int
    single_at_once: int
    """The number of single images that are scored at once."""
    bags_at_once: int
    """The number of bags that are scored at once."""

    def split(self, images: LabelledImages, single: ChosenBags, bags: ChosenBags) -> EvalSplit:
        """Return the bags of a split, to evaluate on: those of one image, and those of several."""
        fill = partial(self.evaluated, images)
        single_batches = Lazy.of(single, self.single_at_once, fill)
        bag_batches = Lazy.of(bags, self.bags_at_once, fill)
        return EvalSplit(single_batches, bag_batches)

    def evaluated(self, images: LabelledImages, chosen: ChosenBags) -> Bags:
        """Return bags to evaluate on as one batch, with their origin."""
        bags = self.filled(images, chosen.images)
        origin = chosen.origin.to(images.classes.device)
        if images.numbers is not None:
            device = images.numbers.device
            index, mask = pad_bags(chosen.images)
            numbers = images.numbers[to_device(index, device)]
            # Where a bag is padded, as it is smaller than others of its batch, it has no item.
            items = numbers.masked_fill(~to_device(mask, device), -1)
            origin = replace(origin, items=items)
        return replace(bags, origin=origin)

    def filled(self, images: LabelledImages, bags: Sequence[Tensor]) -> Bags:
        """Return one batch (B, K, h * w) of bags, given by the numbers of their images.

        Bags that are smaller than the largest are padded and masked.
        """
        index, mask = pad_bags(bags)
        selected = images[index]
        instance_mask = to_device(mask, images.classes.device)
        background = self.num_classes
        pixels = selected.scaled().flatten(2) * instance_mask.unsqueeze(2)
        position_classes = selected.classes.masked_fill(~instance_mask, background)
        classes = position_classes.masked_fill(position_classes == background, -1)
        labels = label_matrix(classes, self.num_classes)
        truth = Truth(classes, position_classes=position_classes)
        # `mask` is on the CPU. To ask `instance_mask` would wait for the device.
        if bool(mask.all()):
            return Bags(pixels, labels, truth=truth)
        return Bags(pixels, labels, instance_mask, truth)

    def most_labels(self, images: LabelledImages, bags: Sequence[Tensor]) -> int:
        """Return the largest number of different classes in a bag, background not counted."""
        most = 0
        for bag in bags:
            different = images.classes[bag].unique()
            is_class = different < self.num_classes
            most = max(most, int(is_class.sum()))
        return most
