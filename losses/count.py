"""The likelihood of counts, a reference with count supervision: how often each class occurs is known."""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from milbench import UsageError
from milbench.errors import one_of
from milbench.likelihood.columns import FLOOR

from ._positions import flatten_positions
from ._softmax import IndependentPositions

MOST_STATES = 4096
"""Most states of the joint recursion for one bag, prod_c (n_c + 1)."""


class Count(IndependentPositions):
    """Minus the log-likelihood of the counts of a bag, in nats.

        loss = -log Prb(class c is shown at n_c positions, for all c).

    Positions are independent, and P is the softmax over the channels of each, background included. With q_k(m) the
    probability of counts m among the first k positions,

        q_k(m) = q_{k-1}(m) p_{background,k} + sum_{c in L} q_{k-1}(m - e_c) p_{c,k},

    a recursion over positions in logarithms, of all bags of a batch at once, with S = prod_c (n_c + 1) states each.

    Args:
        likelihood: `joint`: as above, exact for all classes together, for counts of at most 4,096 states; eight
            classes once each have 256. `marginal`: the product over classes of the probability of each count alone,
            which is Poisson-binomial with n_c + 1 states: for larger counts. It takes the counts of different classes
            for independent, which they are not, as they share positions.

    Edge cases: a bag with more instances than positions, or with more states, is rejected. Of an instance that covers
    several positions the loss asks for one. The counts give the size of the recursion: a GPU is waited for once a step.

    Source: V. Shukla, Z. Zeng, K. Ahmed and G. Van den Broeck, "A Unified Approach to Count-Based Weakly Supervised
    Learning", NeurIPS 2023, arXiv:2311.13718: the exact probability of k of n outputs, which is `marginal`; `joint` is
    the same for several classes under a softmax.
    """

    name = "count"
    revision = 2
    supervision = "count"

    def __init__(self, likelihood: Literal["joint", "marginal"] = "joint") -> None:
        super().__init__()
        self.likelihood = one_of("likelihood of count", likelihood, ("joint", "marginal"))

    def target_loss(self, logits: Tensor, target: Tensor, mask: Tensor | None) -> Tensor:
        flat, flat_mask = flatten_positions(logits, mask)
        if len(flat) == 0:
            return flat.sum(dim=(1, 2))
        sizes = (
            target.new_full((len(flat),), flat.shape[2])
            if flat_mask is None
            else flat_mask.sum(dim=1)
        )
        impossible = target.sum(dim=1) > sizes
        if self.checks_values and bool(impossible.any()):
            bag = int(impossible.nonzero()[0])
            raise UsageError(
                f"bag {bag} has {int(target[bag].sum())} instances and only {int(sizes[bag])} positions"
            )
        if self.likelihood == "marginal":
            return -marginal_log_prob(flat, target, flat_mask).masked_fill(impossible, -torch.inf)
        if (states := int((target + 1).double().prod(dim=1).max())) > MOST_STATES:
            expected = f"expected at most {MOST_STATES:,}; or use loss.count.likelihood=marginal"
            raise UsageError(
                f"counts of {states:,} states are too many for the joint likelihood, {expected}"
            )
        return -joint_log_prob(flat, target, flat_mask).masked_fill(impossible, -torch.inf)


def joint_log_prob(logits: Tensor, counts: Tensor, mask: Tensor | None) -> Tensor:
    """Return (B,), log Prb that each class c is at counts[:, c] positions, the background at all others."""
    width = max(1, int((counts > 0).sum(dim=1).max()))
    numbers, classes = counts.topk(width, dim=1)  # those that occur; others never
    stride = F.pad((numbers + 1).cumprod(dim=1), (1, 0), value=1)
    state = torch.arange(int(stride[:, -1].max()), device=logits.device)
    # State s has (s // stride) % (n + 1) instances of a class so far: one less of it is the state s - stride.
    so_far = state // stride[:, :-1, None] % (numbers + 1)[:, :, None]
    predecessor = (state - stride[:, :-1, None]).clamp(min=0)
    log_p = logits.log_softmax(dim=1)
    shown = log_p.gather(1, classes.unsqueeze(2).expand(-1, -1, log_p.shape[2]))
    background = log_p[:, -1]
    if mask is not None:
        shown = shown.masked_fill(~mask.unsqueeze(1), FLOOR)
        background = background.masked_fill(~mask, 0)
    q = torch.full_like(log_p[:, :1, 0], FLOOR).expand(-1, len(state)).masked_fill(state == 0, 0)
    for log_shown, log_none in zip(shown.unbind(dim=2), background.unbind(dim=1), strict=True):
        previous = (
            q.unsqueeze(1)
            .expand(-1, width, -1)
            .gather(2, predecessor)
            .masked_fill(so_far == 0, FLOOR)
        )
        following = [previous + log_shown.unsqueeze(2), (q + log_none.unsqueeze(1)).unsqueeze(1)]
        q = torch.cat(following, dim=1).logsumexp(dim=1)
    return q.gather(1, stride[:, -1:] - 1).squeeze(1)


def marginal_log_prob(logits: Tensor, counts: Tensor, mask: Tensor | None) -> Tensor:
    """Return (B,), the sum over all classes of the log-probability of each count by itself."""
    log_p = logits.log_softmax(dim=1)
    is_own = torch.eye(log_p.shape[1], dtype=torch.bool, device=logits.device)[:-1, :, None]
    # Of all other channels, where 1 - p would round to 0.
    shown, absent = log_p[:, :-1], log_p.unsqueeze(1).masked_fill(is_own, FLOOR).logsumexp(dim=2)
    if mask is not None:
        shown, absent = (
            values.masked_fill(~mask.unsqueeze(1), low)
            for values, low in ((shown, FLOOR), (absent, 0.0))
        )
    number = torch.arange(int(counts.max()) + 1, device=logits.device)
    q = (
        torch.full_like(shown[:, :, :1], FLOOR)
        .expand(-1, -1, len(number))
        .masked_fill(number == 0, 0)
    )
    for log_shown, log_absent in zip(shown.unbind(dim=2), absent.unbind(dim=2), strict=True):
        previous = F.pad(q[:, :, :-1], (1, 0), value=FLOOR)
        # logaddexp has no second derivative here.
        q = torch.stack([previous + log_shown.unsqueeze(2), q + log_absent.unsqueeze(2)]).logsumexp(
            dim=0
        )
    return q.gather(2, counts.unsqueeze(2)).squeeze(2).sum(dim=1)
