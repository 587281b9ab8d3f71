"""Images of one digit each, split into those to train, to validate and to test on."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

CLASSES = 10


@dataclass(frozen=True, slots=True)
class Digits:
    """Images of one digit each.

    images: (N, h, w) uint8.
    classes: (N,) int64.
    white: the value of a fully lit pixel.
    """

    images: Tensor
    classes: Tensor
    white: int

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: slice | Tensor) -> Digits:
        return replace(self, images=self.images[index], classes=self.classes[index])

    def to(self, device: torch.device) -> Digits:
        """Return the same digits on `device`."""
        return replace(self, images=self.images.to(device), classes=self.classes.to(device))


@dataclass(frozen=True, slots=True)
class DigitSplits:
    """Digits to train on, to validate on (None: there are none) and to test on; no image is in two of them."""

    train: Digits
    validation: Digits | None
    test: Digits

    def to(self, device: torch.device) -> DigitSplits:
        """Return the same splits on `device`."""
        validation = self.validation.to(device) if self.validation else None
        return DigitSplits(self.train.to(device), validation, self.test.to(device))
