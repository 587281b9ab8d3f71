"""Labelled images in memory, and their split into training, validation and test images."""

from dataclasses import dataclass, replace
from typing import Literal, Self

import torch
from torch import Tensor

from milbench._utils.devices import to_device
from milbench.errors import UsageError


@dataclass(frozen=True, slots=True)
class LabelledImages:
    """Images of one size with the classes of what they show."""

    pixels: Tensor
    """(N, channels, h, w) uint8"""
    classes: Tensor
    """The classes, int64: (N,) where each image shows one thing, else (N, M).

    In (N, M) an image that shows fewer than M things has -1 after its classes.
    """
    white: int
    """The value of a white pixel: pixels are scaled so that it becomes 1."""
    boxes: Tensor | None = None
    """(N, M, 4) float32: left, top, right, bottom in pixels. None where a thing fills its image."""
    numbers: Tensor | None = None
    """(N,) int64, the number of each image in its data set, for `Bags.origin`; None in training."""

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: slice | Tensor) -> Self:
        """Return some of the images: a slice, or those at the positions `index` (n,) int64.

        `index` may be on another device than the images.
        """
        if isinstance(index, Tensor):
            index = to_device(index, self.pixels.device)
        boxes = None if self.boxes is None else self.boxes[index]
        numbers = None if self.numbers is None else self.numbers[index]
        return replace(
            self,
            pixels=self.pixels[index],
            classes=self.classes[index],
            boxes=boxes,
            numbers=numbers,
        )

    def to(self, device: torch.device) -> Self:
        """Return the same images on `device`."""
        boxes = None if self.boxes is None else self.boxes.to(device)
        numbers = None if self.numbers is None else self.numbers.to(device)
        return replace(
            self,
            pixels=self.pixels.to(device),
            classes=self.classes.to(device),
            boxes=boxes,
            numbers=numbers,
        )

    def numbered(self, first: int = 0) -> Self:
        """Return the same images, numbered from `first` on."""
        last = first + len(self)
        return replace(self, numbers=torch.arange(first, last, device=self.pixels.device))

    def scaled(self) -> Tensor:
        """Return the pixels as float32, (N, channels, h, w), divided by `white`."""
        return self.pixels / self.white


@dataclass(frozen=True, slots=True)
class ImageSplits:
    """Images to train on, to validate on and to test on. No image is in two of these parts."""

    train: LabelledImages
    validation: LabelledImages | None
    """None if there are no images to validate on."""
    test: LabelledImages

    @classmethod
    def with_last_for_validation(
        cls, train: LabelledImages, test: LabelledImages, *, count: int, task_name: str
    ) -> Self:
        """Return splits in which the last `count` training images are for validation.

        Images to validate on and to test on are numbered. The numbers count all images that were
        given as `train` from 0 on, and then those of `test`. Raises UsageError where no image would
        be left to train on.
        """
        trained = len(train) - count
        if trained < 1:
            raise UsageError(
                f"{task_name}: validation = {count} leaves none of {len(train)} training images"
            )
        validation = train[trained:].numbered(trained) if count else None
        return cls(train[:trained], validation, test.numbered(len(train)))

    @property
    def evaluated(self) -> dict[Literal["validation", "test"], LabelledImages]:
        """The images to validate on, if there are any, and those to test on."""
        if self.validation is None:
            return {"test": self.test}
        return {"validation": self.validation, "test": self.test}

    def to(self, device: torch.device) -> Self:
        """Return the same splits on `device`."""
        validation = None if self.validation is None else self.validation.to(device)
        return type(self)(self.train.to(device), validation, self.test.to(device))
