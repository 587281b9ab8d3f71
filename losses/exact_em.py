"""Expectation maximisation: cross-entropy against the exact posterior given the label set."""

from torch import Tensor

from milbench import Reduction, UsageError
from milbench.errors import positive
from milbench.likelihood import EXACT_LABEL_LIMIT, instance_posterior

from ._positions import complete_data_cost
from ._softmax import DivideBy, PerPosition


class ExactEM(PerPosition):
    """Expected negative log-likelihood of the classes of all positions, given the label set.

        loss = -sum_k sum_c q_{c,k} log p_{c,k} / D,    q_{c,k} = Prb(position k shows c | L, P^s),

    where L is the label set, P is the softmax over the channels of each of the K positions, and c
    runs over classes and background. q is the exact posterior given the label set, by the current
    network, and is taken as a constant: computing q is the E step, and a step along the gradient is
    a partial M step. P^s is P to the power of the sharpness s, normalised at every position.

    With s = 1 the gradient equals the gradient of `exact` (Fisher's identity). So with an optimiser
    that uses only gradients, the two losses are the same method; their results differ by rounding,
    which training can amplify. The values of the two losses differ. Their second derivatives differ
    too, as q is fixed: an optimiser that uses second derivatives, such as psgd, makes other steps.

    Args:
        divide_by: the divisor D, as in `exact`. `none`: 1. `bag`: the number of positions of the
            bag. `batch`: the mean number of positions of the bags of the batch; the loss of a bag
            then depends on the other bags of its batch.
        sharpness: s, above 0 and at most 1000, the inverse temperature of deterministic annealing.
            s = 1 is EM. With a larger s the loss is closer to `hard-em`, as q concentrates on the
            most probable ways to place all classes of L. With a smaller s all ways are more nearly
            alike. Only with s = 1 is the gradient the gradient of the likelihood.

    Edge cases: a label set of more classes than positions is rejected, and has a loss of +inf if
    the check of values is off. A label set of more than 16 classes is rejected; `hard-em` accepts
    label sets of any size.

    Source: A. T. Pham, R. Raich and X. Z. Fern, "Dynamic Programming for Instance Annotation in
    Multi-Instance Multi-Label Learning", arXiv:1411.4068, 2014, and IEEE TPAMI 39(12), 2017. The
    sharpness: N. Ueda and R. Nakano, "Deterministic Annealing Variant of the EM Algorithm", NIPS
    1994.
    """

    name = "exact-em"

    def __init__(
        self,
        divide_by: DivideBy = "none",
        sharpness: float = 1.0,
        *,
        reduction: Reduction = "mean",
        validate: bool = True,
    ) -> None:
        super().__init__(divide_by, reduction=reduction, validate=validate)
        self.sharpness = positive("sharpness of exact-em", sharpness)
        if sharpness > 1000:
            raise UsageError(f"sharpness of exact-em must be at most 1000, got {sharpness:g}")

    def check_bags(
        self,
        logits: Tensor,  # noqa: ARG002
        labels: Tensor,
        mask: Tensor | None,  # noqa: ARG002
    ) -> None:
        sizes = labels.sum(dim=1)
        if bool((sizes > EXACT_LABEL_LIMIT).any()):
            raise UsageError(
                f"exact-em: a label set of {int(sizes.max())} classes exceeds the limit of the "
                f"exact posterior, {EXACT_LABEL_LIMIT} classes; hard-em and exact have no limit"
            )

    def bag_loss(self, logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        # The posterior is a constant. `detach` stops derivatives in every mode; `no_grad` would let
        # through those of forward mode.
        sharpened = (self.sharpness * logits.detach()).log_softmax(dim=1)
        posterior = instance_posterior(
            sharpened, labels, mask, validate=False, max_labels=self.max_labels
        )
        cost = complete_data_cost(logits, posterior, labels, mask)
        return self.divided(cost, logits, mask)
