"""The loss my-loss."""

from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from milbench import Loss, Reduction, bag_sizes


class MyLoss(Loss):
    """A class occurs in a bag if the mean of its logits is above a margin."""

    name = "my-loss"
    head = "sigmoid"

    def __init__(
        self, margin: float = 0.0, *, reduction: Reduction = "mean", validate: bool = True
    ) -> None:
        super().__init__(reduction=reduction, validate=validate)
        self.margin = margin

    def bag_loss(self, logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        scores = self.scores(logits, mask)
        by_class = binary_cross_entropy_with_logits(scores, labels.to(scores), reduction="none")
        return by_class.sum(dim=1)

    def scores(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        means = logits[:, :-1].sum(dim=2) / bag_sizes(logits, mask).unsqueeze(1)
        return means - self.margin
