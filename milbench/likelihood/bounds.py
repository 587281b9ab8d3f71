"""Certified bounds of the likelihood of a label set, for label sets too large for the exact sum."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

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

    Memory: 8 bytes * K * (n + C(n, order)) a bag with n = |L|, and one `bag_log_prob` of n - exact_labels + 1 bags of
    exact_labels classes.

    Args:
        log_probs: (B, C+1, *positions) floating point, natural logarithms of probabilities that sum to 1 over dim 1,
            background last.
        labels: (B, C), bool or 0/1, the label sets, of any size.
        mask: (B, *positions) bool, True where there is an instance; None: everywhere.
        method: one of the methods above.
        order: the largest |T| of "bonferroni" and "beta", at least 0.
        exact_labels: the number of classes that "hybrid" sums exactly, from 0 to EXACT_LABEL_LIMIT.
        validate: whether values are checked as well as shapes, as in `bag_log_prob`.

    Returns:
        `lower` and `upper`, both (B,), in nats and with rounding errors included. A method without a lower bound has
        -inf, one without an upper bound log alpha; both are -inf where |L| exceeds the number of positions.

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
    values = columns.flat(log_probs, mask)
    pairs = [_one_bag(values[i], labels[i], method, order, exact_labels) for i in range(len(values))]
    if not pairs:
        return Bounds(values.new_zeros(0), values.new_zeros(0))
    lower, upper = (torch.stack(side) for side in zip(*pairs, strict=True))
    return _outward(lower, upper, values.shape[-1], columns.result_dtype(log_probs))


class _Bag(NamedTuple):
    """One bag: its columns (a batch of one); log(1 - A_l) and log A_l, both (n,); and the settings of the methods."""

    parts: Columns
    present: Tensor
    absent: Tensor
    order: int
    exact_labels: int

    @property
    def slack(self) -> float:
        """Return a bound of the relative rounding error of a sum of probabilities, each a product over positions."""
        return torch.finfo(self.parts.required.dtype).eps * (4 * self.parts.required.shape[-1] + 256)


def _one_bag(values: Tensor, labels: Tensor, method: str, order: int, exact_labels: int) -> tuple[Tensor, Tensor]:
    """Return the lower and the upper bound, scalars, from log-probabilities (C+1, K) and labels (C,)."""
    chosen = torch.nonzero(labels)[:, 0]
    size = labels.sum().reshape(1)
    parts = columns.renormalised(values[-1:], values[chosen].unsqueeze(0), size)
    if len(chosen) > values.shape[-1]:
        impossible = torch.full_like(parts.log_scale[0], -torch.inf)
        return impossible, impossible
    own = torch.cat([parts.required, parts.background.unsqueeze(1)], dim=1)
    present = presence_log_prob(own, validate=False)[0].clamp(min=FLOOR)
    absent = (present - presence_log_odds(own, validate=False)[0].clamp(FLOOR, -FLOOR)).clamp(min=FLOOR)
    bag = _Bag(parts, present, absent, order, exact_labels)
    if method == "beta":
        pairs = [_beta(bag)]
    else:
        pairs = [rule(bag) for name, rule in _METHODS.items() if method in ("auto", name)]
    none = torch.full_like(parts.log_scale[0], FLOOR), torch.zeros_like(parts.log_scale[0])
    lower, upper = (torch.stack(side) for side in zip(none, *pairs, strict=True))
    return _total(parts, lower.amax(dim=0)), _total(parts, upper.amin(dim=0))


def _total(parts: Columns, ratio: Tensor) -> Tensor:
    """Return log Prb from log R."""
    return columns.floor_to_infinity(parts.log_scale[0] + ratio)


def _nothing_below(bag: _Bag) -> Tensor:
    """Return the lower bound of log R where a method has none."""
    return torch.full_like(bag.parts.log_scale[0], FLOOR)


def _noisy_or(bag: _Bag) -> tuple[Tensor, Tensor]:
    return _nothing_below(bag), bag.present.sum()


def _union(bag: _Bag) -> tuple[Tensor, Tensor]:
    least = bag.present.amin() if len(bag.present) else torch.zeros_like(bag.parts.log_scale[0])
    return _safe_log(1 - bag.absent.exp().sum() - bag.slack * max(1, len(bag.absent))), least


def _bonferroni(bag: _Bag) -> tuple[Tensor, Tensor]:
    """Bound R by the series cut after |T| = t, for every t up to `order`: from above for even t, below for odd t."""
    share, background = bag.parts.required[0].exp(), bag.parts.background[0].exp()
    slots = len(share)
    total, weight = torch.ones_like(bag.parts.log_scale[0]), 1.0
    lower, upper = [_nothing_below(bag)], [torch.zeros_like(total)]
    for t in range(1, min(bag.order, slots) + 1):
        absent = torch.tensor(list(itertools.combinations(range(slots), t)), device=share.device)
        keep = torch.ones(len(absent), slots, dtype=share.dtype, device=share.device).scatter(1, absent, 0.0)
        tiny = torch.finfo(share.dtype).tiny
        terms = (background + keep @ share).clamp(min=tiny).log().sum(dim=-1).exp()
        total = total + (-1) ** t * terms.sum()
        weight += float(terms.detach().sum())
        if t % 2 or t == slots:
            lower.append(_safe_log(total - bag.slack * weight))
        if t % 2 == 0 or t == slots:
            upper.append(_safe_log(total + bag.slack * weight))
    return torch.stack(lower).amax(dim=0), torch.stack(upper).amin(dim=0)


def _partition(bag: _Bag) -> tuple[Tensor, Tensor]:
    """Assign every position to one class: first its best free position to each class, rare classes first."""
    share = bag.parts.required[0]
    if len(share) == 0:
        return torch.zeros_like(bag.parts.log_scale[0]), torch.zeros_like(bag.parts.log_scale[0])
    with torch.no_grad():
        owner = (share - bag.present.unsqueeze(-1)).argmax(dim=0)
        taken = torch.zeros(share.shape[-1], dtype=torch.bool, device=share.device)
        for label in bag.present.argsort().tolist():
            best = int(share[label].masked_fill(taken, -torch.inf).argmax())
            owner[best], taken[best] = label, True
        mine = owner == torch.arange(len(share), device=share.device).unsqueeze(-1)
    own = torch.where(mine, share, torch.full_like(share, FLOOR))
    rest = torch.where(mine, _others(bag.parts), torch.zeros_like(share))
    occurs = presence_log_prob(torch.stack([own, rest], dim=1), validate=False)[:, 0]
    return occurs.clamp(min=FLOOR).sum(), torch.zeros_like(bag.parts.log_scale[0])


def _others(parts: Columns) -> Tensor:
    """Return (n, K), the log of one minus each class's share, summed from the other shares."""
    share, background = parts.required[0], parts.background[0]
    eye = torch.eye(len(share), dtype=torch.bool, device=share.device).unsqueeze(-1)
    every = share.unsqueeze(0).masked_fill(eye, FLOOR)
    return torch.logsumexp(torch.cat([every, background.expand(len(share), 1, -1)], dim=1), dim=1)


def _hybrid(bag: _Bag) -> tuple[Tensor, Tensor]:
    """Sum the least certain classes exactly: one bag with all others as background, one more without each of them."""
    order = bag.absent.argsort(descending=True)
    exact, others = order[: bag.exact_labels], order[bag.exact_labels :]
    share, background = bag.parts.required[0], bag.parts.background[0]
    left_out = torch.eye(len(others) + 1, dtype=torch.bool, device=share.device)[:, 1:]
    joint = share[others].expand(len(left_out), -1, -1).masked_fill(left_out.unsqueeze(-1), FLOOR)
    joint = torch.logsumexp(torch.cat([joint, background.expand(len(left_out), 1, -1)], dim=1), dim=1)
    virtual = torch.cat([share[exact].expand(len(left_out), -1, -1), joint.unsqueeze(1)], dim=1)
    required = torch.ones(len(left_out), len(exact), dtype=torch.bool, device=share.device)
    value = bag_log_prob(virtual, required, validate=False).clamp(min=FLOOR)
    rest = value[1:].exp().sum()
    lower = _safe_log(value[0].exp() - rest - bag.slack * (value[0].exp() + rest).detach())
    if len(others) == 0:
        return value[0], value[0]
    return lower, value[0] + bag.present[others].sum()


def _beta(bag: _Bag) -> tuple[Tensor, Tensor]:
    """Bound R by one minus the probabilities of smaller label sets."""
    slots = len(bag.present)
    sets = [t for size in range(min(bag.order, slots - 1) + 1) for t in itertools.combinations(range(slots), size)]
    required = torch.zeros(len(sets), slots, dtype=torch.bool, device=bag.present.device)
    for row, chosen in enumerate(sets):
        required[row, list(chosen)] = True
    own = torch.cat([bag.parts.required, bag.parts.background.unsqueeze(1)], dim=1)
    smaller = bag_log_prob(own.expand(len(sets), -1, -1), required, validate=False).exp().sum()
    return _nothing_below(bag), _safe_log(1 - smaller + bag.slack)


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


_METHODS: dict[str, Callable[[_Bag], tuple[Tensor, Tensor]]] = {
    "noisy-or": _noisy_or,
    "union": _union,
    "bonferroni": _bonferroni,
    "partition": _partition,
    "hybrid": _hybrid,
}
