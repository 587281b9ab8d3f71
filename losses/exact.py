"""The exact likelihood of the label set."""

from __future__ import annotations

from typing import Literal

from torch import Tensor
from torch.nn import functional as F

from milbench.likelihood import bag_log_prob, presence_log_odds
from milbench.loss import Loss, bag_sizes


class Exact(Loss):
    """Negative log-likelihood of the label set, summed over every way to place its classes.

    -log Prb(L | P) with P the softmax over the channels of each position, positions independent given the network:
    every class of L occurs at one position at least, everything else is background. As published it is divided by the
    number of positions of the bag, which weighs small bags up; `per_position=False` is the log-likelihood itself.
    A label set that no placement gives (more classes than positions) costs +inf where it is not rejected.

    `rule` names the class of a bag that holds one: `sum` takes the largest sum_k p_{c,k}, `exact` the most likely
    label set of one class, the largest prod_k (p_{c,k} + p_{background,k}).

    X.-L. Li, "A Multiclass Multiple Instance Learning Method with Exact Likelihood", arXiv:1811.12346, 2018. Exact
    maximum likelihood for such data goes back to A. T. Pham, R. Raich and X. Z. Fern, "Dynamic Programming for
    Instance Annotation in Multi-instance Multi-label Learning", arXiv:1411.4068, 2014, who use EM.
    """

    name = "exact"

    def __init__(self, per_position: bool = True, rule: Literal["sum", "exact"] = "sum") -> None:
        super().__init__()
        self.per_position = per_position
        self.rule = rule

    def bag_loss(self, logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        """Return (B,), -log Prb(L | P), its share of one position where `per_position`."""
        cost = -bag_log_prob(logits.log_softmax(dim=1), labels, mask)
        return cost / bag_sizes(logits, mask) if self.per_position else cost

    def scores(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        """Return (B, C), how well one class alone explains the bag, by the `rule`."""
        if self.rule == "sum":
            evidence = logits.softmax(dim=1)[:, :-1]
        else:
            # log(p_c + p_background), less the log p_background that all classes share: where the background is all
            # but certain, log(p_c + p_background) rounds to 0 for every class and this does not.
            evidence = -F.logsigmoid(logits[:, -1:] - logits[:, :-1])
        return (evidence if mask is None else evidence * mask.unsqueeze(1)).sum(dim=2)

    def presence(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        """Return (B, C), the log-odds of the exact marginal: c occurs, whatever else does."""
        return presence_log_odds(logits.log_softmax(dim=1), mask)
