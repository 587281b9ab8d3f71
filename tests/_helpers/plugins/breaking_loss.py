"""A loss that computes nothing: it fails in training, or takes its process down."""

from __future__ import annotations

import os
from typing import Literal

import torch
from torch import Tensor

from milbench import Loss


class BreakingLoss(Loss):
    """Raises, diverges, or dies."""

    name = "breaking"

    def __init__(self, how: Literal["raise", "nan", "die"] = "raise", after: int = 3) -> None:
        super().__init__()
        self.how, self.after, self.calls = how, after, 0

    def bag_loss(self, logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        self.calls += 1
        value = logits.square().mean(dim=(1, 2))
        if self.calls < self.after:
            return value
        if self.how == "die":
            os._exit(9)
        if self.how == "raise":
            raise RuntimeError("the loss | broke\nin two lines <b>")
        return value * float("nan")

    def scores(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        return torch.zeros_like(logits[:, :-1, 0])
