"""Ordinary classification: one instance a bag, one class an image."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from milbench.api.loss import Head, Loss, bag_sizes
from milbench.errors import UsageError

from ._positions import sum_positions


class CrossEntropy(Loss):
    """Cross-entropy of a bag that holds one instance and nothing else.

    -log softmax_c(mean_k z_{c,k}) over the C classes; the background channel is not used. It is given what a loss under
    set supervision must find out: that there is exactly one instance and that it fills the image. Tasks give it a
    network of one position (`Task.classifier`), as the baseline of X.-L. Li, arXiv:1811.12346, Section 5.1, has it. A
    bag whose label set has not exactly one class is rejected.
    """

    name = "cross-entropy"
    supervision = "position"
    head: Head = "class"

    def bag_loss(self, logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        """Return (B,), -log of the probability of the one class."""
        if self.validate and bool((labels.sum(dim=1) != 1).any()):
            bag = int((labels.sum(dim=1) != 1).nonzero()[0])
            raise UsageError(
                f"cross-entropy is for bags of one instance; bag {bag} has {int(labels[bag].sum())} classes in its "
                "label set"
            )
        return F.cross_entropy(self.scores(logits, mask), labels.to(logits), reduction="none")

    def scores(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        """Return (B, C), the mean logit of each class."""
        return sum_positions(logits[:, :-1], mask) / bag_sizes(logits, mask).unsqueeze(1)

    def presence(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        """Return (B, C), the log-probability of each class."""
        return self.scores(logits, mask).log_softmax(dim=1)

    def posterior(self, logits: Tensor, mask: Tensor | None) -> Tensor:  # noqa: ARG002
        """Return (B, C+1, K), the softmax over the classes in each position; nothing is background."""
        return F.pad(logits[:, :-1].softmax(dim=1), (0, 0, 0, 1))
