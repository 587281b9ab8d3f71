"""A plug-in with a loss that uses torch's global random generator, in training and evaluation."""

import torch
from torch import Tensor

from milbench import Loss


class DrawingLoss(Loss):
    """A logistic loss on the logits of one random position a bag."""

    name = "drawing"
    head = "sigmoid"

    def bag_loss(self, logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        scores = self.scores(logits, mask)
        by_class = torch.nn.functional.binary_cross_entropy_with_logits(
            scores, labels.float(), reduction="none"
        )
        return by_class.sum(dim=1)

    def scores(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        position = torch.randint(logits.shape[2], ())
        return logits[:, :-1, position]
