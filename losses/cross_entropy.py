"""Cross-entropy for bags of one instance: ordinary classification."""

from torch import Tensor
from torch.nn import functional as F

from milbench import Loss, UsageError, bag_sizes

from ._positions import sum_positions


class CrossEntropy(Loss):
    """Cross-entropy of the class of a bag that contains one instance and nothing else.

        loss = -log softmax_c(mean_k z_{c,k}),

    with the softmax over the C classes of the bag and c the class in its label set; the background channel is not used.
    Its supervision is `position`, since the loss presumes that there is one instance and that it fills the image. Tasks
    train it with a network of one position (`Task.classifiers`).

    Edge cases: a bag whose label set is empty or has several classes is rejected.

    Source: the baseline of X.-L. Li, arXiv:1811.12346, 2018, Section 5.1.
    """

    name = "cross-entropy"
    supervision = "position"
    head = "class"

    def check_bags(self, logits: Tensor, labels: Tensor, mask: Tensor | None) -> None:  # noqa: ARG002
        sizes = labels.sum(dim=1)
        is_other = sizes != 1
        if bool(is_other.any()):
            bag = int(is_other.nonzero()[0])
            raise UsageError(
                f"cross-entropy is for bags of one instance; bag {bag} has {int(sizes[bag])} classes in its label set"
            )

    def bag_loss(self, logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        return F.cross_entropy(self.scores(logits, mask), labels.to(logits), reduction="none")

    def scores(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        return sum_positions(logits[:, :-1], mask) / bag_sizes(logits, mask).unsqueeze(1)

    def presence(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        return self.scores(logits, mask).log_softmax(dim=1)

    def posterior(self, logits: Tensor, mask: Tensor | None) -> Tensor:  # noqa: ARG002
        """Return (B, C+1, K), the softmax over the classes at each position; background has probability 0."""
        return F.pad(logits[:, :-1].softmax(dim=1), (0, 0, 0, 1))
