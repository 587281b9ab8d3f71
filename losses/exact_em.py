"""Expectation maximisation: cross-entropy of every position against its exact posterior given the label set."""

from torch import Tensor

from milbench import Reduction, UsageError
from milbench.errors import positive
from milbench.likelihood import EXACT_LABEL_LIMIT, instance_posterior

from ._positions import complete_data_cost
from ._softmax import DivideBy, PerPosition


class ExactEM(PerPosition):
    """Expected negative log-likelihood of the classes of all positions, given the label set.

        loss = -sum_k sum_c q_{c,k} log p_{c,k} / D,    q_{c,k} = Prb(position k shows c | L, P^s),

    where P is the softmax over the channels of each of the K positions, c runs over classes and
    background, and q is the exact posterior under the current network, taken as a constant:
    computing q is the E step, a step along the gradient a partial M step. P^s is P to the power of
    the sharpness s, normalised at every position.

    With s = 1 the gradient is that of `exact` (Fisher's identity): trained by an optimiser that
    sees gradients alone, the two losses are the same method, and their results differ by rounding,
    which training can amplify. The values differ, and so do second derivatives, those of a
    cross-entropy with fixed targets: psgd makes other steps.

    Args:
        divide_by: the divisor D, as in `exact`. `none`: 1. `bag`: the positions of the bag.
            `batch`: their mean number over the batch, with which the loss of a bag depends on the
            other bags of its batch.
        sharpness: s, above 0, the inverse temperature of deterministic annealing. 1: EM. Larger:
            towards `hard-em`, as q concentrates on the most probable ways to place all of L.
            Smaller: towards all ways being alike. With another s than 1 the gradient is not that of
            the likelihood.

    Edge cases: as `exact`: +inf for a label set of more classes than positions where it is not
    rejected. Label sets of more than 16 classes are refused; `hard-em` takes any.

    Source: A. T. Pham, R. Raich and X. Z. Fern, "Dynamic Programming for Instance Annotation in
    Multi-Instance Multi-Label Learning", arXiv:1411.4068, 2014, and IEEE TPAMI 39(12), 2017; for
    the sharpness N. Ueda and R. Nakano, "Deterministic Annealing Variant of the EM Algorithm", NIPS
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

    def check_bags(self, logits: Tensor, labels: Tensor, mask: Tensor | None) -> None:  # noqa: ARG002
        sizes = labels.sum(dim=1)
        if bool((sizes > EXACT_LABEL_LIMIT).any()):
            raise UsageError(
                f"exact-em: a label set of {int(sizes.max())} classes exceeds the limit of the exact posterior, "
                f"{EXACT_LABEL_LIMIT} classes; hard-em and exact have no limit"
            )

    def bag_loss(self, logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        # The posterior is a constant. `detach` says so in every mode; `no_grad` would let tangents
        # through.
        sharpened = (self.sharpness * logits.detach()).log_softmax(dim=1)
        posterior = instance_posterior(
            sharpened, labels, mask, validate=False, max_labels=self.max_labels
        )
        cost = complete_data_cost(logits, posterior, labels, mask)
        return self.divided(cost, logits, mask)
