"""A loss that takes the name of a built-in one."""

from torch import Tensor

from milbench import Loss


class Twin(Loss):
    """Not the exact one."""

    name = "exact"

    def bag_loss(self, logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        return logits.sum(dim=(1, 2))

    def scores(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        return logits[:, :-1].sum(dim=2)
