"""A loss with a weight of its own, drawn from the global generator."""

from __future__ import annotations

import torch
from torch import Tensor

from milbench import Loss


class LearningLoss(Loss):
    """A logistic loss on the largest logit, at a temperature that is learnt."""

    name = "learning"
    head = "sigmoid"

    def __init__(self) -> None:
        super().__init__()
        self.temperature = torch.nn.Parameter(1 + 0.1 * torch.rand(()))

    def bag_loss(self, logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        scores = self.temperature * self.scores(logits, mask)
        return torch.nn.functional.binary_cross_entropy_with_logits(scores, labels.float(), reduction="none").sum(dim=1)

    def scores(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        return logits[:, :-1].amax(dim=2)
