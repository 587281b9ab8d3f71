"""A plug-in with a loss that breaks the contract of losses in a way that a parameter chooses."""

from typing import Any

import torch
from torch import Tensor

from milbench import Loss


class FaultyLoss(Loss):
    """A logistic loss on the mean logit of each class, with one fault; "" for none.

    The name of a fault says what a method returns in place of the right value.
    """

    name = "faulty"
    head = "sigmoid"

    def __init__(self, fault: str = "") -> None:
        super().__init__()
        self.fault = fault

    def bag_loss(self, logits: Tensor, labels: Tensor, mask: Tensor | None) -> Any:
        # Padding counts, too: the bags that this loss is tested with have none.
        means = logits[:, :-1].mean(dim=2)
        by_class = torch.nn.functional.binary_cross_entropy_with_logits(
            means, labels.float(), reduction="none"
        )
        value = by_class.sum(dim=1)
        return self._spoiled_value(value, by_class, logits)

    def _spoiled_value(self, value: Tensor, by_class: Tensor, logits: Tensor) -> Any:
        """Return the losses of bags (B,), spoiled if the fault is about them.

        `value` has the losses, and `by_class` their terms for each class, (B, C).
        """
        match self.fault:
            case "scalar":
                return by_class.sum()
            case "a value a class":
                return by_class
            case "number":
                return 1.5
            case "detached":
                return value.detach()
            case "other":
                # The gradient reaches a weight, but not the logits.
                return value.detach() * torch.nn.Parameter(torch.ones(()))
            case "infinite":
                # The loss of the first bag is divided by 0.
                return value / torch.arange(len(value))
            case "infinite gradient":
                # The root of a zero is added. The root is 0 too, so that the value is right, but
                # its derivative is infinite.
                zero = logits - logits.detach()
                return value + zero.sqrt().sum(dim=(1, 2))
        return value

    def scores(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        means = logits[:, :-1].mean(dim=2)
        match self.fault:
            case "scores with background":
                return logits.mean(dim=2)
            case "nan scores":
                # The logarithm of a negative number is NaN.
                return means.log()
        return means

    def evidence(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        if self.fault == "nan evidence":
            return logits[:, :-1].log()
        return super().evidence(logits, mask)

    def posterior(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        probs = super().posterior(logits, mask)
        match self.fault:
            case "posterior of a bag":
                # The dimension of positions is missing.
                return probs.mean(dim=2)
            case "log posterior":
                return probs.log()
            case "posterior over positions":
                # It sums to 1 over the positions instead of the channels.
                return logits.softmax(dim=2)
        return probs
