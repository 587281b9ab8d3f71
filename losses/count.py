"""The likelihood of counts: the label of a training bag says how often each class occurs in it."""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from milbench import Reduction, UsageError
from milbench.errors import one_of
from milbench.likelihood.columns import FLOOR

from ._positions import flatten_positions
from ._softmax import IndependentPositions

MOST_STATES = 4096
"""The largest number of states of the joint recursion for one bag, prod_c (n_c + 1)."""


class Count(IndependentPositions):
    """Minus the log-likelihood of the counts of a bag, in nats.

        loss = -log Prb(class c is shown at n_c positions, for all c).

    Positions are independent. p_{c,k} is the softmax over the channels of position k, background
    included. Let q_k(m) be the probability that the first k positions show the classes as often as
    the counts m say, L the set of classes with n_c > 0, and e_c one instance of class c. Then

        q_k(m) = q_{k-1}(m) p_{background,k} + sum_{c in L} q_{k-1}(m - e_c) p_{c,k}.

    This recursion over positions is computed in logarithms, for all bags of a batch at once. A bag
    has prod_c (n_c + 1) states m.

    Args:
        likelihood: `joint`: the likelihood above, which is exact, for bags of at most 4,096 states;
            a bag with eight classes that occur once each has 256. `marginal`: the product over
            classes of the probability of the class's count alone, which is Poisson-binomial and
            needs only n_c + 1 states, for larger counts. It treats the counts of different classes
            as independent, which they are not, as classes share the positions.

    Edge cases: a bag with more instances than positions is rejected, and so is a bag with more than
    4,096 states if the likelihood is joint. The loss expects that each instance is shown at exactly
    one position, even if it covers several. On a GPU, every step waits once for the counts, which
    give the size of the recursion.

    Source: V. Shukla, Z. Zeng, K. Ahmed and G. Van den Broeck, "A Unified Approach to Count-Based
    Weakly Supervised Learning", NeurIPS 2023, arXiv:2311.13718, for the exact probability that k of
    n outputs are true, which is `marginal`; `joint` extends it to several classes under a softmax.
    """

    name = "count"
    revision = 2
    supervision = "count"

    def __init__(
        self,
        likelihood: Literal["joint", "marginal"] = "joint",
        *,
        reduction: Reduction = "mean",
        validate: bool = True,
    ) -> None:
        super().__init__(reduction=reduction, validate=validate)
        self.likelihood = one_of("likelihood of count", likelihood, ("joint", "marginal"))

    def check_target(self, logits: Tensor, target: Tensor, mask: Tensor | None) -> None:
        flat, flat_mask = flatten_positions(logits, mask)
        positions = number_of_positions(flat, flat_mask)
        instances = target.sum(dim=1)
        is_impossible = instances > positions
        if bool(is_impossible.any()):
            bag = int(is_impossible.nonzero()[0])
            raise UsageError(
                f"bag {bag} has {int(instances[bag])} instances "
                f"and only {int(positions[bag])} positions"
            )

    def target_loss(self, logits: Tensor, target: Tensor, mask: Tensor | None) -> Tensor:
        flat, flat_mask = flatten_positions(logits, mask)
        if len(flat) == 0:
            return flat.sum(dim=(1, 2))
        if self.likelihood == "joint":
            _check_states(target)
            log_prob = joint_log_prob(flat, target, flat_mask)
        else:
            log_prob = marginal_log_prob(flat, target, flat_mask)
        is_impossible = target.sum(dim=1) > number_of_positions(flat, flat_mask)
        return -log_prob.masked_fill(is_impossible, -torch.inf)


def _check_states(counts: Tensor) -> None:
    """Raise UsageError where a bag has too many states for the joint recursion."""
    # In floating point, since the product may exceed the largest integer.
    states = int((counts + 1).double().prod(dim=1).max())
    if states > MOST_STATES:
        raise UsageError(
            f"counts of {states:,} states are too many for the joint likelihood, "
            f"expected at most {MOST_STATES:,}; or use loss.count.likelihood=marginal"
        )


def joint_log_prob(logits: Tensor, counts: Tensor, mask: Tensor | None) -> Tensor:
    """Return (B,), the log-probability of the counts of all classes together.

    Each class c is shown at counts[:, c] positions, and the background at all other positions.

    A state says how often each class was shown at the positions so far. It is stored as one number
    s. If the bag has n_1, n_2, ... instances of its classes, the digits of s are these counts so
    far, in a number system whose bases are n_1 + 1, n_2 + 1, ...
    """
    # Columns for the classes of a bag, as many as the bag with most classes needs. In the other
    # bags, columns that are left over stand for classes with a count of 0.
    width = max(1, int((counts > 0).sum(dim=1).max()))
    numbers, classes = counts.topk(width, dim=1)
    # One more instance of a class adds the stride of the class to the state. The product of all
    # bases, which comes last, is the number of states.
    strides = F.pad((numbers + 1).cumprod(dim=1), (1, 0), value=1)
    num_states = strides[:, -1:]
    stride = strides[:, :-1, None]
    state = torch.arange(int(num_states.max()), device=logits.device)
    so_far = state // stride % (numbers + 1)[:, :, None]
    predecessor = (state - stride).clamp(min=0)

    log_p = logits.log_softmax(dim=1)
    shown = log_p.gather(1, classes.unsqueeze(2).expand(-1, -1, log_p.shape[2]))
    background = log_p[:, -1]
    if mask is not None:
        # A masked position shows the background for certain.
        shown = shown.masked_fill(~mask.unsqueeze(1), FLOOR)
        background = background.masked_fill(~mask, 0)

    # Before the first position no class was shown.
    q = torch.full_like(log_p[:, :1, 0], FLOOR).expand(-1, len(state)).masked_fill(state == 0, 0)
    for log_shown, log_none in zip(shown.unbind(dim=2), background.unbind(dim=1), strict=True):
        before = q.unsqueeze(1).expand(-1, width, -1).gather(2, predecessor)
        # A state without an instance of the class is not reached by showing the class.
        before = before.masked_fill(so_far == 0, FLOOR)
        by_class = before + log_shown.unsqueeze(2)
        by_background = (q + log_none.unsqueeze(1)).unsqueeze(1)
        q = torch.cat([by_class, by_background], dim=1).logsumexp(dim=1)
    # In the last state of a bag every class was shown as often as the counts say.
    return q.gather(1, num_states - 1).squeeze(1)


def marginal_log_prob(logits: Tensor, counts: Tensor, mask: Tensor | None) -> Tensor:
    """Return (B,), the sum over classes of the log-probability of the count of each class alone."""
    log_p = logits.log_softmax(dim=1)
    shown = log_p[:, :-1]
    # 1 - p is the sum of all other channels: as a difference it could round to 0.
    is_own = torch.eye(log_p.shape[1], dtype=torch.bool, device=logits.device)[:-1, :, None]
    absent = log_p.unsqueeze(1).masked_fill(is_own, FLOOR).logsumexp(dim=2)
    if mask is not None:
        # At a masked position the class is certainly absent.
        is_masked = ~mask.unsqueeze(1)
        shown = shown.masked_fill(is_masked, FLOOR)
        absent = absent.masked_fill(is_masked, 0.0)

    # q[:, c, n] is the log-probability that class c was shown at n positions so far. Before the
    # first position n is 0 for certain.
    number = torch.arange(int(counts.max()) + 1, device=logits.device)
    q = torch.full_like(shown[:, :, :1], FLOOR).expand(-1, -1, len(number))
    q = q.masked_fill(number == 0, 0)
    for log_shown, log_absent in zip(shown.unbind(dim=2), absent.unbind(dim=2), strict=True):
        one_less = F.pad(q[:, :, :-1], (1, 0), value=FLOOR)
        shows = one_less + log_shown.unsqueeze(2)
        shows_not = q + log_absent.unsqueeze(2)
        # `logaddexp` would do, but its second derivative is NaN where a term stands for log 0.
        q = torch.stack([shows, shows_not]).logsumexp(dim=0)
    return q.gather(2, counts.unsqueeze(2)).squeeze(2).sum(dim=1)


def number_of_positions(logits: Tensor, mask: Tensor | None) -> Tensor:
    """Return (B,) int64, how many positions of each bag are not masked.

    Args:
        logits: (B, C+1, K).
        mask: (B, K), True where there is an instance; None if nothing is masked.
    """
    if mask is not None:
        return mask.sum(dim=1)
    return torch.full((len(logits),), logits.shape[2], device=logits.device)
