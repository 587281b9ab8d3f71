"""Labelled images in memory, and their split into images to train, to validate and to test on."""

from dataclasses import dataclass, replace
from typing import Literal, Self

import torch
from torch import Tensor

from milbench._utils.devices import to_device
from milbench.errors import UsageError


@dataclass(frozen=True, slots=True)
class LabelledImages:
    """Images of one size with the classes of what they show."""

    pixels: Tensor  # (N, channels, h, w) uint8
    classes: Tensor  # int64, (N,) where each image shows one thing, else (N, M) with -1 where one shows fewer than M
    white: int  # the value of a pixel that is scaled to 1
    boxes: Tensor | None = (
        None  # (N, M, 4) float32, (left, top, right, bottom) in pixels; None where things fill it
    )

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: slice | Tensor) -> Self:
        """Return the images of a slice, or those numbered by `index` (n,) int64, which may be on another device."""
        if isinstance(index, Tensor):
            index = to_device(index, self.pixels.device)
        boxes = None if self.boxes is None else self.boxes[index]
        return replace(self, pixels=self.pixels[index], classes=self.classes[index], boxes=boxes)

    def to(self, device: torch.device) -> Self:
        """Return the same images on `device`."""
        boxes = None if self.boxes is None else self.boxes.to(device)
        return replace(
            self, pixels=self.pixels.to(device), classes=self.classes.to(device), boxes=boxes
        )

    def scaled(self) -> Tensor:
        """Return the pixels as float32, (N, channels, h, w), divided by `white`."""
        return self.pixels / self.white


@dataclass(frozen=True, slots=True)
class ImageSplits:
    """Images to train on, to validate on (None: there are none) and to test on; no image is in two of them."""

    train: LabelledImages
    validation: LabelledImages | None
    test: LabelledImages

    @classmethod
    def with_last_for_validation(
        cls, train: LabelledImages, test: LabelledImages, *, count: int, task_name: str
    ) -> Self:
        """Split off the last `count` training images for validation; raise UsageError where none would be left."""
        trained = len(train) - count
        if trained < 1:
            raise UsageError(
                f"{task_name}: validation = {count} leaves none of {len(train)} training images"
            )
        return cls(train[:trained], train[trained:] if count else None, test)

    @property
    def evaluated(self) -> dict[Literal["validation", "test"], LabelledImages]:
        """The images to validate on, if there are any, and those to test on."""
        return (
            {"validation": self.validation, "test": self.test}
            if self.validation
            else {"test": self.test}
        )

    def to(self, device: torch.device) -> Self:
        """Return the same splits on `device`."""
        validation = None if self.validation is None else self.validation.to(device)
        return type(self)(self.train.to(device), validation, self.test.to(device))
