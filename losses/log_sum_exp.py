"""Log-sum-exp: a smooth maximum of the logits of each class, whose sharpness may be learnt."""

import torch
from torch import Tensor

from milbench import Reduction
from milbench.errors import positive

from ._class_weights import ClassWeights, PositiveWeights
from ._pooling import PooledLoss, log_mean_exp


class LogSumExp(PooledLoss):
    """Binary cross-entropy of the log-sum-exp of the logits of each class, summed over classes.

        loss = -sum_{c in L} log sigmoid(s_c) - sum_{c not in L} log sigmoid(-s_c),
        s_c = (1 / r) log((1 / K) sum_k exp(r z_{c,k})),

    where L is the label set of the bag, K its number of positions, and z_{c,k} the logit of class c
    at position k. The background channel is not used.

    s_c lies between the mean of the logits (as r goes to 0) and their maximum (as r grows), at most
    log(K) / r below the maximum. So for a class at few positions it falls with the size of the bag.

    Args:
        sharpness: r at the start of training. Its default does not come from the sources.
        learn: whether r is learnt. If so, r = sharpness exp(d), with one weight d for all classes,
            which starts at 0. If the recipe has weight decay, it pulls r towards its start. In the
            first source r is fixed, in the second it starts at another value.
        weight, pos_weight: weights of the classes; `mean` describes them.

    Source: P. O. Pinheiro and R. Collobert, "From Image-level to Pixel-level Labeling with
    Convolutional Networks", CVPR 2015, arXiv:1411.6228, where r is fixed and a softmax over classes
    follows. To learn r: S. C. Lowe, T. Trappenberg and S. Oore, "LogAvgExp Provides a Principled
    and Performant Global Pooling Operator", arXiv:2111.01742, 2021.
    """

    name = "log-sum-exp"

    def __init__(
        self,
        sharpness: float = 5.0,
        learn: bool = True,
        *,
        weight: ClassWeights = None,
        pos_weight: PositiveWeights = None,
        reduction: Reduction = "mean",
        validate: bool = True,
    ) -> None:
        super().__init__(
            weight=weight, pos_weight=pos_weight, reduction=reduction, validate=validate
        )
        self.sharpness = positive("sharpness of log-sum-exp", sharpness)
        self.learn = learn
        self.log_factor = torch.nn.Parameter(torch.zeros(())) if learn else None

    def log_odds(self, detectors: Tensor, mask: Tensor | None) -> Tensor:
        factor = 1.0 if self.log_factor is None else self.log_factor.to(detectors).exp()
        r = self.sharpness * factor
        return log_mean_exp(r * detectors, mask) / r
