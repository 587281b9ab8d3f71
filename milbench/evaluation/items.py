"""The contribution of every test item to a metric, and a digest by which equal items are recognised."""

from __future__ import annotations

import hashlib
from typing import Self

from torch import Tensor

from milbench.api.bags import Bags
from milbench.api.outcomes import Outcomes


class ItemsDigest:
    """A digest of bags in their order, the same on every device.

    It depends on the shapes of the instances, the label sets, the masks and the truth, but not on the instances
    themselves, and on how the bags are batched.
    """

    def __init__(self) -> None:
        self._digest = hashlib.sha256()

    def add(self, bags: Bags) -> Self:
        """Add the next batch of bags and return this digest."""
        truth = bags.truth
        truth_parts = (truth.classes, truth.boxes, truth.position_classes) if truth else ()
        self._digest.update(repr(tuple(bags.instances.shape)).encode())
        for values in (bags.labels.bool(), bags.mask, *truth_parts):
            self._digest.update(b"none" if values is None else _content(values))
        return self

    def __str__(self) -> str:
        return self._digest.hexdigest()[:32]


def outcomes_of(sums: Tensor, weights: Tensor, items: str) -> Outcomes | None:
    """Return one metric's outcomes from what each of n items adds to its two sums; None where no item has a weight."""
    if not bool((weights > 0).any()):
        return None
    return Outcomes(sums.float().numpy(), weights.float().numpy(), items)


def _content(values: Tensor) -> bytes:
    exact = values.detach().cpu().contiguous()
    return f"{exact.dtype} {tuple(exact.shape)} ".encode() + exact.numpy().tobytes()
