"""A loss as somebody outside the project would write it, in one file."""

from torch import Tensor
from torch.nn import functional as F

from milbench import Loss, bag_sizes


class MeanPooling(Loss):
    """Binary cross-entropy of each class's mean logit."""

    name = "mean-pooling"
    head = "sigmoid"

    def bag_loss(self, logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        signs = labels.to(logits.dtype) * 2 - 1
        return -F.logsigmoid(signs * self.scores(logits, mask)).sum(dim=1)

    def scores(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        return logits[:, :-1].sum(dim=2) / bag_sizes(logits, mask).unsqueeze(1)  # masked logits are zero
