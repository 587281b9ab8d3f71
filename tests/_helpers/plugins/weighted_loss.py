"""A loss with weights of its own for a number of classes, drawn from the generator that it is given."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from milbench import Loss


class WeightedLoss(Loss):
    """A logistic loss on the largest logit of each class, times a weight that is learnt, then mixed by a matrix."""

    name = "weighted"
    head = "sigmoid"

    def make_weights(self, num_classes: int, rng: torch.Generator) -> None:
        self.scale = torch.nn.Parameter(1 + 0.1 * torch.rand(num_classes, generator=rng))
        self.mixing = torch.nn.Parameter(torch.eye(num_classes))

    def bag_loss(self, logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        scores = self.scores(logits, mask)
        return F.binary_cross_entropy_with_logits(scores, labels.to(scores), reduction="none").sum(dim=1)

    def scores(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        highest = logits[:, :-1].amax(dim=2)
        return (self.scale.to(logits) * highest) @ self.mixing.to(logits)
