"""The exact likelihood of the label set."""

from __future__ import annotations

from typing import Literal

from torch import Tensor
from torch.nn import functional as F

from milbench.api.loss import Loss, bag_sizes
from milbench.errors import UsageError
from milbench.likelihood import EXACT_LABEL_LIMIT, bag_log_prob, bag_log_prob_bounds, presence_log_odds

from ._positions import sum_positions


class Exact(Loss):
    """Negative log-likelihood of the label set, summed over every way to place its classes.

    -log Prb(L | P) with P the softmax over the channels of each position, positions independent given the network:
    every class of L occurs at one position at least, everything else is background. As published it is divided by the
    number of positions of the bag, which weighs small bags up; `per_position=False` is the log-likelihood itself.
    A label set that no placement gives (more classes than positions) costs +inf where it is not rejected.

    `rule` names the class of a bag that holds one: `sum` takes the largest sum_k p_{c,k}, `exact` the most likely
    label set of one class, the largest prod_k (p_{c,k} + p_{background,k}).

    `method` says what stands for log Prb: `exact`; `lower` or `upper`, its certified bounds, for label sets of any size
    (minimising the negative of the lower one is safe: the loss is then never below the true one); `auto`, the exact
    value where the sum is affordable and the lower bound for larger label sets.

    X.-L. Li, "A Multiclass Multiple Instance Learning Method with Exact Likelihood", arXiv:1811.12346, 2018. Exact
    maximum likelihood for such data goes back to A. T. Pham, R. Raich and X. Z. Fern, "Dynamic Programming for
    Instance Annotation in Multi-instance Multi-label Learning", arXiv:1411.4068, 2014, who use EM.
    """

    name = "exact"

    def __init__(
        self,
        per_position: bool = True,
        rule: Literal["sum", "exact"] = "sum",
        method: Literal["auto", "exact", "upper", "lower"] = "auto",
    ) -> None:
        super().__init__()
        self.per_position = per_position
        self.rule = rule
        self.method = method

    def bag_loss(self, logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        """Return (B,), -log Prb(L | P), its share of one position where `per_position`."""
        cost = -self._log_prob(logits.log_softmax(dim=1), labels, mask)
        return cost / bag_sizes(logits, mask) if self.per_position else cost

    def _log_prob(self, log_probs: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        # Checked by `forward` already, and a softmax sums to one.
        if self.method in ("upper", "lower"):
            bounds = bag_log_prob_bounds(log_probs, labels, mask, validate=False)
            return bounds.upper if self.method == "upper" else bounds.lower
        if labels.shape[1] <= EXACT_LABEL_LIMIT:
            return bag_log_prob(log_probs, labels, mask, validate=False)
        sizes = labels.sum(dim=1)
        large = sizes > EXACT_LABEL_LIMIT
        # The empty set stands in for a large one, whose value then comes from its bound.
        exact = bag_log_prob(log_probs, labels & ~large.unsqueeze(1), mask, validate=False)
        if not bool(large.any()):
            return exact
        if self.method == "exact":
            raise UsageError(
                f"exact: a label set of {int(sizes.max())} classes is beyond the exact sum, which ends at "
                f"{EXACT_LABEL_LIMIT}; method=lower or upper bounds it, method=auto does so where it must"
            )
        some = None if mask is None else mask[large]
        lower = bag_log_prob_bounds(log_probs[large], labels[large], some, validate=False).lower
        return exact.masked_scatter(large, lower.to(exact))

    def scores(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        """Return (B, C), how well one class alone explains the bag, by the `rule`."""
        if self.rule == "sum":
            evidence = logits.softmax(dim=1)[:, :-1]
        else:
            # log(p_c + p_background), less the log p_background that all classes share: where the background is all
            # but certain, log(p_c + p_background) rounds to 0 for every class and this does not.
            evidence = -F.logsigmoid(logits[:, -1:] - logits[:, :-1])
        return sum_positions(evidence, mask)

    def presence(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        """Return (B, C), the log-odds of the exact marginal: c occurs, whatever else does."""
        return presence_log_odds(logits.log_softmax(dim=1), mask)
