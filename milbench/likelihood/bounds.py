"""Certified bounds of the likelihood of a label set, for label sets too large for the exact sum."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from milbench.errors import UsageError
from milbench.likelihood import argument_checks, columns
from milbench.likelihood.columns import FLOOR, Columns
from milbench.likelihood.exact_likelihood import EXACT_LABEL_LIMIT, bag_log_prob
from milbench.likelihood.presence import presence_log_odds, presence_log_prob


class Bounds(NamedTuple):
    """Bounds of the log-likelihood of each bag: lower <= log Prb(L | P) <= upper, both (B,), in nats."""

    lower: Tensor
    upper: Tensor


def bag_log_prob_bounds(
    log_probs: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    *,
    exact_labels: int = 6,
    validate: bool = True,
    max_labels: int | None = None,
) -> Bounds:
    """Return certified bounds of the log-likelihood of every bag's label set, for any |L|; differentiable.

    Let alpha be the probability that nothing but L and background occurs, R = Prb(L | P) / alpha, and A_l the
    probability, given that, that class l is absent. The `exact_labels` least certain classes V are summed exactly with
    the others U as background, and R_V - sum_{u in U} R_{V, u absent} <= R <= R_V prod_{u in U} (1 - A_u), because
    occurrences are negatively associated. For rare classes, where the left side is not positive, the lower bound is
    prod_l Prb(l occurs at positions K_l) <= R for disjoint K_l.

    Memory: 8 bytes * K * n^2 a bag with n the largest |L|, and one `bag_log_prob` of n - exact_labels + 1 bags of
    exact_labels classes for each bag.

    Args:
        log_probs: (B, C+1, *positions); like it, `mask`, `validate` and `max_labels` are as in `bag_log_prob`.
        labels: (B, C), bool or 0/1, the label sets, of any size.
        exact_labels: how many classes are summed exactly, from 0 to EXACT_LABEL_LIMIT.

    Returns:
        `lower` and `upper`, both (B,), in nats and with rounding errors included; both are -inf where |L| exceeds the
        number of positions that can show a class of L.

    Raises:
        UsageError: `exact_labels` is out of range, or bad input as in `bag_log_prob`.

    Examples:
        >>> import torch
        >>> log_probs = torch.zeros(1, 3, 2).log_softmax(dim=1)  # two positions; two classes and background, 1/3 each
        >>> labels = torch.tensor([[True, True]])  # two of nine label maps: Prb = 2/9 = 0.2222
        >>> lower, upper = bag_log_prob_bounds(log_probs, labels, exact_labels=0)
        >>> lower.exp(), upper.exp()  # 1/3 * 1/3 at one position each, and (1 - 4/9)^2
        (tensor([0.1111]), tensor([0.3086]))

    Source: X.-L. Li, arXiv:1811.12346, 2018, for alpha; K. Joag-Dev and F. Proschan, Annals of Statistics 11, 1983, for
    negative association; see docs/likelihood.md.
    """
    argument_checks.check_log_probs(log_probs, mask, validate)
    argument_checks.check_labels(log_probs, labels, validate)
    if not 0 <= exact_labels <= EXACT_LABEL_LIMIT:
        raise UsageError(f"exact_labels must be from 0 to {EXACT_LABEL_LIMIT}, got {exact_labels}")
    labels = labels.bool()
    if len(labels) == 0:
        return Bounds(*log_probs.new_zeros(2, 0, dtype=columns.result_dtype(log_probs)))
    slots = argument_checks.largest_set(labels, max_labels)
    if log_probs.device.type == "cpu" and not argument_checks.tracing():
        lower, upper = _bounds_by_size(log_probs, labels, mask, exact_labels)
    else:
        lower, upper = _bounds(log_probs, labels, mask, slots, exact_labels)
    return _widen(lower, upper, log_probs.shape[2:].numel(), columns.result_dtype(log_probs))


def _bounds_by_size(
    log_probs: Tensor, labels: Tensor, mask: Tensor | None, exact_labels: int
) -> tuple[Tensor, Tensor]:
    """Return both bounds, one |L| at a time: no work is done for slots that a bag does not use."""
    groups = columns.by_size(labels)
    bounds = [
        torch.stack(
            _bounds(
                log_probs[bags],
                labels[bags],
                None if mask is None else mask[bags],
                size,
                exact_labels,
            )
        )
        for bags, size in groups
    ]
    lower, upper = torch.cat(bounds, dim=1)[:, torch.cat([bags for bags, _ in groups]).argsort()]
    return lower, upper


def _bounds(
    log_probs: Tensor, labels: Tensor, mask: Tensor | None, slots: int, exact_labels: int
) -> tuple[Tensor, Tensor]:
    """Return both bounds, (B,) each; NaN for bags of more classes than `slots`. No operation looks at a value."""
    bags = _Bags.from_columns(columns.select(log_probs, mask, labels, slots)[0])
    lower, upper = _sides(bags, exact_labels)
    shows_class = (~(bags.share <= columns.IMPOSSIBLE)).any(
        dim=1
    )  # which positions may, (B, K); NaN may
    impossible, too_many = bags.size > shows_class.sum(dim=-1), bags.size > slots

    def restored(side: Tensor) -> Tensor:
        side = columns.floor_to_infinity(bags.log_scale + side).masked_fill(impossible, -torch.inf)
        return side.masked_fill(too_many, torch.nan)

    return restored(lower), restored(upper.clamp(max=0.0))


class _Bags(NamedTuple):
    """Bags with n slots for classes, the first |L| of which are used."""

    log_scale: Tensor  # (B,), log alpha
    size: Tensor  # (B,), |L|
    background: Tensor  # (B, K), log of its share
    share: Tensor  # (B, n, K), log of the share of each class
    used: Tensor  # (B, n), True for slots with a class
    present: Tensor  # (B, n), log(1 - A_l); 0 in unused slots
    absent: Tensor  # (B, n), log A_l; -inf in unused slots

    @classmethod
    def from_columns(cls, parts: Columns) -> _Bags:
        shares = parts.shares.transpose(0, 1)
        used = torch.arange(shares.shape[1] - 1, device=shares.device) < parts.size.unsqueeze(1)
        present = presence_log_prob(shares, validate=False).clamp(min=FLOOR)
        absent = (present - presence_log_odds(shares, validate=False).clamp(FLOOR, -FLOOR)).clamp(
            min=FLOOR
        )
        present, absent = present.masked_fill(~used, 0.0), absent.masked_fill(~used, -torch.inf)
        return cls(
            parts.log_scale, parts.size, shares[:, -1], shares[:, :-1], used, present, absent
        )


def _sides(bags: _Bags, exact_labels: int) -> tuple[Tensor, Tensor]:
    """Sum the least certain classes exactly: one bag with all others as background, one more without each of them."""
    slots = bags.used.shape[1]
    exact, remaining = bags.absent.argsort(dim=1, descending=True).tensor_split(
        [min(exact_labels, slots)], dim=1
    )

    def shares_of(classes: Tensor) -> Tensor:
        return bags.share.gather(1, classes.unsqueeze(-1).expand(-1, -1, bags.share.shape[-1]))

    left_out = torch.eye(remaining.shape[1] + 1, dtype=torch.bool, device=bags.share.device)[:, 1:]
    joint = _without(shares_of(remaining), bags.background, left_out)
    alone = shares_of(exact).unsqueeze(1).expand(-1, len(left_out), -1, -1)
    virtual = torch.cat([alone, joint.unsqueeze(2)], dim=2).flatten(0, 1)
    required = bags.used.gather(1, exact).unsqueeze(1).expand(-1, len(left_out), -1).flatten(0, 1)
    value = bag_log_prob(virtual, required, validate=False, max_labels=exact.shape[1]).clamp(
        min=FLOOR
    )
    value = value.view(len(bags.size), -1)
    first, correction = (
        value[:, 0],
        value[:, 1:].exp().masked_fill(~bags.used.gather(1, remaining), 0.0).sum(dim=1),
    )
    # A bound of the relative rounding error of a sum of probabilities, each a product over positions.
    slack = torch.finfo(bags.share.dtype).eps * (4 * bags.share.shape[-1] + 256)
    mass = first.exp() - correction - slack * (first.exp() + correction).detach()
    lower = torch.where(
        mass > 0, torch.where(mass > 0, mass, 1.0).log(), FLOOR
    )  # at FLOOR without a gradient
    lower = torch.where(bags.size <= exact_labels, first, lower)
    return torch.maximum(lower, _disjoint(bags)), first + bags.present.gather(1, remaining).sum(
        dim=1
    )


def _disjoint(bags: _Bags) -> Tensor:
    """Assign every position to one class: first its best free position to each class, rare classes first."""
    slots, positions = bags.share.shape[1:]
    if slots == 0 or positions == 0:
        return torch.where(bags.size == 0, 0.0, FLOOR).to(bags.share)
    with torch.no_grad():
        unused = ~bags.used.unsqueeze(-1)
        owner = (
            (bags.share - bags.present.unsqueeze(-1)).masked_fill(unused, -torch.inf).argmax(dim=1)
        )
        free = torch.ones_like(owner, dtype=torch.bool)
        places = torch.arange(positions, device=owner.device)
        for slot in bags.present.masked_fill(~bags.used, torch.inf).argsort(dim=1).split(1, dim=1):
            shares = bags.share.gather(1, slot.unsqueeze(-1).expand(-1, -1, positions)).squeeze(1)
            best = places == shares.masked_fill(~free, -torch.inf).argmax(dim=1, keepdim=True)
            best &= bags.used.gather(1, slot)
            owner, free = torch.where(best, slot, owner), free & ~best
        is_owned = (
            owner.unsqueeze(1) == torch.arange(slots, device=owner.device).unsqueeze(-1)
        ) & ~unused
    identity = torch.eye(slots, dtype=torch.bool, device=owner.device)
    others = _without(bags.share, bags.background, identity).masked_fill(~is_owned, 0.0)
    owned = torch.stack([bags.share.masked_fill(~is_owned, FLOOR), others], dim=2).flatten(0, 1)
    occurs = presence_log_prob(owned, validate=False).view(-1, slots)
    return occurs.clamp(min=FLOOR).masked_fill(~bags.used, 0.0).sum(dim=1)


def _without(share: Tensor, background: Tensor, left_out: Tensor) -> Tensor:
    """Return (B, m, K), the log of background (B, K) plus the shares (B, n, K) that are not in `left_out` (m, n)."""
    shape = len(share), *left_out.shape, share.shape[-1]
    every = share.unsqueeze(1).expand(shape).masked_fill(left_out.unsqueeze(-1), FLOOR)
    return torch.logsumexp(
        torch.cat([every, background[:, None, None].expand(-1, shape[1], -1, -1)], dim=2), dim=2
    )


def _widen(lower: Tensor, upper: Tensor, positions: int, dtype: torch.dtype) -> Bounds:
    """Move both bounds outwards by a bound of their rounding error, and once more for the type of the result."""
    eps, steps = torch.finfo(lower.dtype).eps, 4 * positions + 256

    def widened(bound: Tensor, sign: int) -> Tensor:
        bound = bound + sign * eps * (steps + 64 * bound.detach().abs().nan_to_num(posinf=0.0))
        if dtype != bound.dtype:
            bound = bound + sign * torch.finfo(dtype).eps * bound.detach().abs().nan_to_num(
                posinf=0.0
            )
        return bound.to(dtype)

    return Bounds(widened(lower, -1), widened(upper, 1))
