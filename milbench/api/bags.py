"""Bags: instances, the set of classes among them, and (for evaluation alone) where they are."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Self, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Truth:
    """Instance-level facts about a batch of bags, never shown to a loss under set supervision.

    Image bags give `boxes`, bags of unordered instances give `position_classes`.

    classes: (B, M) int64, the class of every true instance, -1 where a bag has fewer than M.
    boxes: (B, M, 4) float, (left, top, right, bottom) in pixels, right and bottom exclusive.
    position_classes: (B, K) int64, the class of the instance at each position, C for background.
    """

    classes: Tensor
    boxes: Tensor | None = None
    position_classes: Tensor | None = None

    def to(self, device: torch.device) -> Truth:
        """Return the same facts on `device`."""
        return _moved(self, device)


@dataclass(frozen=True, slots=True)
class Bags:
    """A batch of bags.

    instances: (B, *bag_shape), images (B, N, H, W) or sets of unordered instances (B, K, D).
    labels: (B, C) bool, which classes occur in the bag and nothing else.
    mask: (B, *positions) bool, True where there is an instance; None means everywhere.
    truth: instance-level facts, for evaluation and for training targets beyond label sets alone.
    """

    instances: Tensor
    labels: Tensor
    mask: Tensor | None = None
    truth: Truth | None = None

    def __len__(self) -> int:
        return self.instances.shape[0]

    def to(self, device: torch.device) -> Self:
        """Return the same bags on `device`."""
        return _moved(self, device)

    def without_truth(self) -> Self:
        """Return what a loss under set supervision may see."""
        return replace(self, truth=None)


def label_matrix(classes: Tensor, num_classes: int) -> Tensor:
    """Turn (B, M) int64 classes (-1: no instance) into (B, C) bool label sets."""
    one_hot = torch.nn.functional.one_hot(classes.clamp(min=0), num_classes).bool()
    return (one_hot & (classes >= 0).unsqueeze(-1)).any(dim=1)


def _moved(value: T, device: torch.device) -> T:
    moved = {f.name: getattr(value, f.name) for f in fields(value)}  # type: ignore[arg-type]
    return type(value)(**{k: v.to(device) if v is not None else None for k, v in moved.items()})
