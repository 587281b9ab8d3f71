"""Cross-entropy for bags of one instance: ordinary classification."""

from torch import Tensor
from torch.nn import functional as F

from milbench import Loss, UsageError, bag_sizes

from ._positions import sum_positions


class CrossEntropy(Loss):
    """Cross-entropy of the class of a bag that contains one instance and nothing else.

        loss = -log softmax_c(mean_k z_{c,k}),

    where c is the class in the label set, z_{c,k} its logit at position k, and the softmax is over
    the C classes. The background channel is not used. Tasks train this loss with a network of one
    position (`Task.classifiers`). The mean over positions matters only for networks with several.

    Although the loss reads only the label set of a bag, its supervision is `position`: it presumes
    that the bag has one instance, which fills the image, so that the label set says the class of
    every position. The head `class` means that the classes of a whole bag compete.

    Edge cases: a bag whose label set is empty or has several classes is rejected.

    Source: the baseline of X.-L. Li, arXiv:1811.12346, 2018, Section 5.1.
    """

    name = "cross-entropy"
    supervision = "position"
    head = "class"

    def check_bags(
        self,
        logits: Tensor,  # noqa: ARG002
        labels: Tensor,
        mask: Tensor | None,  # noqa: ARG002
    ) -> None:
        class_counts = labels.sum(dim=1)
        has_not_one_class = class_counts != 1
        if bool(has_not_one_class.any()):
            bag = int(has_not_one_class.nonzero()[0])
            count = int(class_counts[bag])
            raise UsageError(
                "cross-entropy is for bags of one instance; "
                f"bag {bag} has {count} classes in its label set"
            )

    def bag_loss(self, logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        # The target is a distribution over classes: 1 for the class of the bag, 0 for the others.
        distribution = labels.to(logits)
        return F.cross_entropy(self.scores(logits, mask), distribution, reduction="none")

    def scores(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        position_counts = bag_sizes(logits, mask)
        return sum_positions(logits[:, :-1], mask) / position_counts.unsqueeze(1)

    def presence(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        return self.scores(logits, mask).log_softmax(dim=1)

    def posterior(self, logits: Tensor, mask: Tensor | None) -> Tensor:  # noqa: ARG002
        """Return (B, C+1, K), the softmax over the classes at each position.

        The background, which is last, has probability 0.
        """
        by_class = logits[:, :-1].softmax(dim=1)
        # `pad` begins with the last dimension. It adds no position, and one channel of zeros, for
        # the background.
        return F.pad(by_class, (0, 0, 0, 1))
