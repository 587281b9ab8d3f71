"""Certified bounds of the likelihood of a label set, for label sets too large for the exact sum."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from milbench._utils.devices import to_device
from milbench.errors import UsageError
from milbench.likelihood import checks, columns
from milbench.likelihood.columns import FLOOR, Columns
from milbench.likelihood.exact import EXACT_LABEL_LIMIT, bag_log_prob
from milbench.likelihood.presence import presence_log_odds, presence_log_prob


class Bounds(NamedTuple):
    """Bounds of the log-likelihood of each bag: lower <= log Prb(L | P) <= upper, both (B,), in nats."""

    lower: Tensor
    upper: Tensor

    @property
    def gap(self) -> Tensor:
        """Return (B,), upper - lower in nats; 0 where both are -inf."""
        return torch.where(self.upper == self.lower, torch.zeros_like(self.upper), self.upper - self.lower)


def bag_log_prob_bounds(
    log_probs: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    *,
    method: str = "auto",
    order: int = 2,
    exact_labels: int = 6,
    validate: bool | None = None,
    max_labels: int | None = None,
) -> Bounds:
    """Return certified bounds of the log-likelihood of every bag's label set, for any |L|; differentiable.

    Let alpha be the probability that nothing but L and background occurs, R = Prb(L | P) / alpha, and A_T the
    probability, given that, that all classes of T are absent. The methods are:

    - "noisy-or": R <= prod_l (1 - A_l), because occurrences are negatively associated; no lower bound.
    - "union": 1 - sum_l A_l <= R <= min_l (1 - A_l).
    - "bonferroni": R = sum over T in L of (-1)^|T| A_T, cut after every |T| up to `order`: an upper bound where |T| is
      even, a lower one where it is odd.
    - "partition": prod_l Prb(l occurs at positions K_l) <= R for disjoint K_l, useful for rare classes; no upper bound.
    - "hybrid": the `exact_labels` least certain classes V are summed exactly with the others U as background:
      R_V - sum_{u in U} R_{V, u absent} <= R <= R_V prod_{u in U} (1 - A_u).
    - "beta": Li's series in beta terms, truncated: Prb(L) <= alpha - sum over T in L, |T| <= `order`, of Prb(T), where
      |T| < |L|; no lower bound.
    - "auto": the best of all but "beta".

    Memory: 8 bytes * K * (n^2 + C(n, order)) a bag with n the largest |L|, and one `bag_log_prob` of
    n - exact_labels + 1 bags of exact_labels classes for each bag.

    Args:
        log_probs: (B, C+1, *positions) floating point, natural logarithms of probabilities that sum to 1 over dim 1,
            background last.
        labels: (B, C), bool or 0/1, the label sets, of any size.
        mask: (B, *positions) bool, True where there is an instance; None: everywhere.
        method: one of the methods above.
        order: the largest |T| of "bonferroni" and "beta", at least 0.
        exact_labels: the number of classes that "hybrid" sums exactly, from 0 to EXACT_LABEL_LIMIT.
        validate: whether values are checked as well as shapes, as in `bag_log_prob`.
        max_labels: an upper bound of |L|. With it, and without validation, an accelerator needs no synchronisation to
            find the largest |L|; a larger label set then gives NaN.

    Returns:
        `lower` and `upper`, both (B,), in nats and with rounding errors included. A method without a lower bound has
        -inf, one without an upper bound log alpha; both are -inf where |L| exceeds the number of positions that can
        show a class of L.

    Raises:
        UsageError: the method is unknown, `order` or `exact_labels` is out of range, or bad input as in `bag_log_prob`.

    Examples:
        >>> import torch
        >>> log_probs = torch.zeros(1, 3, 2).log_softmax(dim=1)  # two positions; two classes and background, 1/3 each
        >>> labels = torch.tensor([[True, True]])  # two of nine label maps: Prb = 2/9 = 0.2222
        >>> lower, upper = bag_log_prob_bounds(log_probs, labels, method="union")  # A_l = 4/9
        >>> lower.exp(), upper.exp()  # 1/9 and 5/9
        (tensor([0.1111]), tensor([0.5556]))
        >>> bag_log_prob_bounds(log_probs, labels, method="noisy-or").upper.exp()  # (5/9)^2
        tensor([0.3086])
        >>> bool(bag_log_prob_bounds(log_probs, labels).gap < 1e-5)  # two classes are few enough for the exact sum
        True

    Source: X.-L. Li, arXiv:1811.12346, 2018, for alpha and beta; K. Joag-Dev and F. Proschan, Annals of Statistics 11,
    1983, for negative association; see docs/likelihood.md.
    """
    checks.check_log_probs(log_probs, mask, validate)
    checks.check_labels(log_probs, labels, validate)
    if method not in ("auto", "beta", *_METHODS):
        raise UsageError(f"unknown method {method!r} (there are: auto, beta, {', '.join(_METHODS)})")
    if order < 0 or not 0 <= exact_labels <= EXACT_LABEL_LIMIT:
        raise UsageError(f"order must be >= 0 and exact_labels 0 to {EXACT_LABEL_LIMIT}, got {order}, {exact_labels}")
    labels = labels.bool()
    if len(labels) == 0:
        return Bounds(*log_probs.new_zeros(2, 0, dtype=columns.result_dtype(log_probs)))
    values = columns.flat(log_probs, mask)
    slots, settings = _slots(labels, validate, max_labels), (method, order, exact_labels)
    if values.device.type == "cpu" and not checks.tracing():
        lower, upper = _by_size(values, labels, settings)
    else:
        lower, upper = _bounds(values, labels, slots, settings)
    return _outward(lower, upper, values.shape[-1], columns.result_dtype(log_probs))


def _by_size(values: Tensor, labels: Tensor, settings: tuple[str, int, int]) -> tuple[Tensor, Tensor]:
    """Return both bounds, one |L| at a time: no work is done for slots that a bag does not use."""
    sizes = labels.sum(dim=1)
    lower, upper = values.new_zeros(2, len(values)).unbind()
    for size in sizes.unique().tolist():
        rows = torch.nonzero(sizes == size).squeeze(1)
        below, above = _bounds(values[rows], labels[rows], size, settings)
        lower, upper = lower.index_put((rows,), below), upper.index_put((rows,), above)
    return lower, upper


def _bounds(values: Tensor, labels: Tensor, slots: int, settings: tuple[str, int, int]) -> tuple[Tensor, Tensor]:
    """Return both bounds, (B,) each; NaN for bags of more classes than `slots`. No operation looks at a value."""
    method, order, exact_labels = settings
    bags = _Bags.of(columns.select(values, labels, slots), order, exact_labels)
    rules = [_beta] if method == "beta" else [rule for name, rule in _METHODS.items() if method in ("auto", name)]
    pairs = [(bags.nothing_below, bags.nothing_above), *(rule(bags) for rule in rules)]
    below, above = (torch.stack(side) for side in zip(*pairs, strict=True))
    lower, upper = (columns.floor_to_infinity(bags.parts.log_scale + r) for r in (below.amax(dim=0), above.amin(dim=0)))
    never = bags.parts.required <= columns.IMPOSSIBLE
    able = (~never).any(dim=1).sum(dim=-1)  # positions that may show a class of L
    impossible, too_many = bags.size > able, bags.size > slots
    lower, upper = (side.masked_fill(impossible, -torch.inf) for side in (lower, upper))
    return lower.masked_fill(too_many, torch.nan), upper.masked_fill(too_many, torch.nan)


def _slots(labels: Tensor, validate: bool | None, max_labels: int | None) -> int:
    """Return the number of slots for classes; only without `max_labels`, or to check it, are the labels looked at."""
    most = labels.shape[1] if max_labels is None else min(max_labels, labels.shape[1])
    looks = max_labels is None or validate is None or validate
    if checks.tracing() or not looks:
        return most
    largest = int(labels.sum(dim=1).max())
    if largest > most:
        raise UsageError(
            f"labels {tuple(labels.shape)} have a bag with |L| = {largest}, above max_labels = {max_labels}"
        )
    return largest


class _Bags(NamedTuple):
    """Bags whose classes are in n slots, the first |L| of which are used; and the settings of the methods.

    Attributes:
        parts: the shares of classes and background.
        used: (B, n), True for slots with a class.
        present: (B, n), log(1 - A_l); 0 in unused slots.
        absent: (B, n), log A_l; -inf in unused slots.
    """

    parts: Columns
    used: Tensor
    present: Tensor
    absent: Tensor
    order: int
    exact_labels: int

    @classmethod
    def of(cls, parts: Columns, order: int, exact_labels: int) -> _Bags:
        own = torch.cat([parts.required, parts.background.unsqueeze(1)], dim=1)
        used = torch.arange(parts.required.shape[1], device=own.device) < parts.size.unsqueeze(1)
        present = presence_log_prob(own, validate=False).clamp(min=FLOOR)
        absent = (present - presence_log_odds(own, validate=False).clamp(FLOOR, -FLOOR)).clamp(min=FLOOR)
        present, absent = present.masked_fill(~used, 0.0), absent.masked_fill(~used, -torch.inf)
        return cls(parts, used, present, absent, order, exact_labels)

    @property
    def size(self) -> Tensor:
        """Return (B,), |L|."""
        return self.parts.size

    @property
    def slack(self) -> float:
        """Return a bound of the relative rounding error of a sum of probabilities, each a product over positions."""
        return torch.finfo(self.parts.required.dtype).eps * (4 * self.parts.required.shape[-1] + 256)

    @property
    def nothing_below(self) -> Tensor:
        """Return (B,), the lower bound of log R where a method has none."""
        return torch.full_like(self.parts.log_scale, FLOOR)

    @property
    def nothing_above(self) -> Tensor:
        """Return (B,), the upper bound of log R where a method has none."""
        return torch.zeros_like(self.parts.log_scale)

    @property
    def empty_set(self) -> Tensor:
        """Return (B,), a lower bound of log R: 0, which it is, for a bag without classes."""
        return torch.where(self.size == 0, self.nothing_above, self.nothing_below)


def _noisy_or(bags: _Bags) -> tuple[Tensor, Tensor]:
    return bags.nothing_below, bags.present.sum(dim=1)


def _union(bags: _Bags) -> tuple[Tensor, Tensor]:
    least = functional.pad(bags.present, (0, 1)).amin(dim=1)  # 0 for a bag without classes
    return _safe_log(1 - bags.absent.exp().sum(dim=1) - bags.slack * bags.size.clamp(min=1)), least


def _bonferroni(bags: _Bags) -> tuple[Tensor, Tensor]:
    """Bound R by the series cut after |T| = t, for every t up to `order`: from above for even t, below for odd t."""
    share, background = bags.parts.required.exp(), bags.parts.background.exp().unsqueeze(1)
    slots = share.shape[1]
    total = torch.ones_like(bags.parts.log_scale)
    weight = torch.ones_like(total)
    lower, upper = [bags.empty_set], [bags.nothing_above]
    for t in range(1, min(bags.order, slots) + 1):
        sets, used = _sets(bags, [t])
        kept = background + (~sets).to(share) @ share
        terms = kept.clamp(min=torch.finfo(share.dtype).tiny).log().sum(dim=-1).exp().masked_fill(~used, 0.0)
        total = total + (-1) ** t * terms.sum(dim=1)
        weight = weight + terms.detach().sum(dim=1)
        complete = bags.size <= t  # the whole series is R, up to rounding
        below, above = (_safe_log(total + sign * bags.slack * weight) for sign in (-1, 1))
        lower.append(below if t % 2 else torch.where(complete, below, bags.nothing_below))
        upper.append(torch.where(complete, above, bags.nothing_above) if t % 2 else above)
    return torch.stack(lower).amax(dim=0), torch.stack(upper).amin(dim=0)


def _sets(bags: _Bags, sizes: Iterable[int]) -> tuple[Tensor, Tensor]:
    """Return (T, n) all sets of so many slots, and (B, T), True for a bag that uses all slots of the set."""
    slots = bags.used.shape[1]
    all_sets = [set(chosen) for size in sizes for chosen in itertools.combinations(range(slots), size)]
    sets = torch.tensor([[slot in chosen for slot in range(slots)] for chosen in all_sets], dtype=torch.bool)
    sets = sets.view(len(all_sets), slots)
    sets = to_device(sets, bags.used.device)
    return sets, ~(sets & ~bags.used.unsqueeze(1)).any(dim=2)


def _partition(bags: _Bags) -> tuple[Tensor, Tensor]:
    """Assign every position to one class: first its best free position to each class, rare classes first."""
    share = bags.parts.required
    slots, positions = share.shape[1:]
    if slots == 0 or positions == 0:
        return bags.empty_set, bags.nothing_above
    with torch.no_grad():
        unused = ~bags.used.unsqueeze(-1)
        owner = (share - bags.present.unsqueeze(-1)).masked_fill(unused, -torch.inf).argmax(dim=1)
        free = torch.ones_like(owner, dtype=torch.bool)
        at = torch.arange(positions, device=share.device)
        for slot in bags.present.masked_fill(~bags.used, torch.inf).argsort(dim=1).split(1, dim=1):
            shares = share.gather(1, slot.unsqueeze(-1).expand(-1, -1, positions)).squeeze(1)
            best = at == shares.masked_fill(~free, -torch.inf).argmax(dim=1, keepdim=True)
            best &= bags.used.gather(1, slot)
            owner, free = torch.where(best, slot, owner), free & ~best
        mine = (owner.unsqueeze(1) == torch.arange(slots, device=share.device).unsqueeze(-1)) & ~unused
    own, rest = share.masked_fill(~mine, FLOOR), _others(bags.parts).masked_fill(~mine, 0.0)
    occurs = presence_log_prob(torch.stack([own, rest], dim=2).flatten(0, 1), validate=False).view(-1, slots)
    return occurs.clamp(min=FLOOR).masked_fill(~bags.used, 0.0).sum(dim=1), bags.nothing_above


def _others(parts: Columns) -> Tensor:
    """Return (B, n, K), the log of one minus each class's share, summed from the other shares."""
    slots = parts.required.shape[1]
    return _left_out(parts.required, parts.background, torch.eye(slots, dtype=torch.bool, device=parts.size.device))


def _left_out(share: Tensor, background: Tensor, left_out: Tensor) -> Tensor:
    """Return (B, m, K), the log of background (B, K) plus the shares (B, n, K) that are not in `left_out` (m, n)."""
    shape = len(share), *left_out.shape, share.shape[-1]
    every = share.unsqueeze(1).expand(shape).masked_fill(left_out.unsqueeze(-1), FLOOR)
    return torch.logsumexp(torch.cat([every, background[:, None, None].expand(-1, shape[1], -1, -1)], dim=2), dim=2)


def _hybrid(bags: _Bags) -> tuple[Tensor, Tensor]:
    """Sum the least certain classes exactly: one bag with all others as background, one more without each of them."""
    share, slots = bags.parts.required, bags.used.shape[1]
    exact, others = bags.absent.argsort(dim=1, descending=True).tensor_split([min(bags.exact_labels, slots)], dim=1)

    def shares_of(which: Tensor) -> Tensor:
        return share.gather(1, which.unsqueeze(-1).expand(-1, -1, share.shape[-1]))

    left_out = torch.eye(others.shape[1] + 1, dtype=torch.bool, device=share.device)[:, 1:]
    joint = _left_out(shares_of(others), bags.parts.background, left_out)
    alone = shares_of(exact).unsqueeze(1).expand(-1, len(left_out), -1, -1)
    virtual = torch.cat([alone, joint.unsqueeze(2)], dim=2).flatten(0, 1)
    required = bags.used.gather(1, exact).unsqueeze(1).expand(-1, len(left_out), -1).flatten(0, 1)
    value = bag_log_prob(virtual, required, validate=False, max_labels=exact.shape[1]).clamp(min=FLOOR)
    value = value.view(len(share), -1)
    first, rest = value[:, 0], value[:, 1:].exp().masked_fill(~bags.used.gather(1, others), 0.0).sum(dim=1)
    lower = _safe_log(first.exp() - rest - bags.slack * (first.exp() + rest).detach())
    lower = torch.where(bags.size <= bags.exact_labels, first, lower)
    return lower, first + bags.present.gather(1, others).sum(dim=1)


def _beta(bags: _Bags) -> tuple[Tensor, Tensor]:
    """Bound R by one minus the probabilities of smaller label sets."""
    slots = bags.used.shape[1]
    largest = min(bags.order, slots - 1)
    sets, used = _sets(bags, range(largest + 1))
    used = used & (sets.sum(dim=1) < bags.size.unsqueeze(1))
    own = torch.cat([bags.parts.required, bags.parts.background.unsqueeze(1)], dim=1)
    own = own.unsqueeze(1).expand(-1, len(sets), -1, -1).flatten(0, 1)
    required = sets.expand(len(used), -1, -1).flatten(0, 1)
    smaller = bag_log_prob(own, required, validate=False, max_labels=max(largest, 0)).view(used.shape).exp()
    return bags.nothing_below, _safe_log(1 - smaller.masked_fill(~used, 0.0).sum(dim=1) + bags.slack)


def _safe_log(x: Tensor) -> Tensor:
    """Return log x; where x is not positive, FLOOR with a gradient of zero."""
    positive = x > 0
    return torch.where(positive, torch.log(torch.where(positive, x, torch.ones_like(x))), torch.full_like(x, FLOOR))


def _outward(lower: Tensor, upper: Tensor, positions: int, dtype: torch.dtype) -> Bounds:
    """Move both bounds outwards by a bound of their rounding error, and once more for the type of the result."""
    eps = torch.finfo(lower.dtype).eps
    lower = lower - eps * (4 * positions + 256 + 64 * lower.detach().abs().nan_to_num(posinf=0.0))
    upper = upper + eps * (4 * positions + 256 + 64 * upper.detach().abs().nan_to_num(posinf=0.0))
    if dtype != lower.dtype:
        step = torch.finfo(dtype).eps
        lower = lower - step * lower.detach().abs().nan_to_num(posinf=0.0)
        upper = upper + step * upper.detach().abs().nan_to_num(posinf=0.0)
    return Bounds(lower.to(dtype), upper.to(dtype))


_METHODS: dict[str, Callable[[_Bags], tuple[Tensor, Tensor]]] = {
    "noisy-or": _noisy_or,
    "union": _union,
    "bonferroni": _bonferroni,
    "partition": _partition,
    "hybrid": _hybrid,
}
