"""A loss that returns what a loss must not."""

from typing import Any

import torch
from torch import Tensor

from milbench import Loss


class FaultyLoss(Loss):
    """A logistic loss on the mean logit with one fault."""

    name = "faulty"
    head = "sigmoid"

    def __init__(self, fault: str = "") -> None:
        super().__init__()
        self.fault = fault

    def bag_loss(self, logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        scores = logits[:, :-1].mean(dim=2)
        each = torch.nn.functional.binary_cross_entropy_with_logits(
            scores, labels.float(), reduction="none"
        )
        value = each.sum(dim=1)
        faults: dict[str, Any] = {
            "scalar": each.sum(),
            "a value a class": each,
            "number": 1.5,
            "detached": value.detach(),
            "other": value.detach() * torch.nn.Parameter(torch.ones(())),
            "infinite": value / torch.arange(len(value)),
            "nan gradient": value + (logits - logits.detach()).sqrt().sum(dim=(1, 2)),
        }
        returned: Tensor = faults.get(self.fault, value)
        return returned

    def scores(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        means = logits[:, :-1].mean(dim=2)
        return {"scores with background": logits.mean(dim=2), "nan scores": means.log()}.get(
            self.fault, means
        )

    def evidence(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        return (
            logits[:, :-1].log() if self.fault == "nan evidence" else super().evidence(logits, mask)
        )

    def posterior(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        probs = super().posterior(logits, mask)
        return {
            "posterior of a bag": probs.mean(dim=2),
            "log posterior": probs.log(),
            "posterior over positions": logits.softmax(dim=2),
        }.get(self.fault, probs)
