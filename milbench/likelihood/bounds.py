"""Certified bounds of the likelihood of a label set, for label sets too large for the exact sum."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from milbench.contracts.autocast import tracing
from milbench.errors import UsageError
from milbench.likelihood import argument_checks, columns
from milbench.likelihood.columns import FLOOR, Columns
from milbench.likelihood.exact_likelihood import EXACT_LABEL_LIMIT, bag_log_prob
from milbench.likelihood.presence import presence_log_odds, presence_log_prob


class Bounds(NamedTuple):
    """Bounds of the log-likelihood of each bag's label set, both (B,), in nats.

    lower <= log Prb(L | P) <= upper.
    """

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
    """Return certified bounds of the log-likelihood of every bag's label set; differentiable.

    Label sets may have any size. P are the probabilities at the K positions of a bag, and L is its
    label set. Let alpha be the probability that nothing but classes of L and background occurs. All
    further probabilities are conditional on this event.

        V, U                the `exact_labels` least certain classes of L, and the others of L
        R                   the probability that all classes of L occur, Prb(L | P) / alpha
        R_V                 the probability that all classes of V occur
        R_{V, u absent}     the probability that all classes of V occur, and class u does not
        A_l                 the probability that class l does not occur

    R_V and R_{V, u absent} are summed exactly. They bound R:

        R_V - sum_{u in U} R_{V, u absent}  <=  R  <=  R_V prod_{u in U} (1 - A_u).

    The right side holds because occurrences are negatively associated. The left side may be
    negative where classes are rare. So there is a second lower bound of R. Assign each position to
    one class of L, and let S_l be the positions of class l: then prod_l Prb(l occurs in S_l) <= R.
    The larger of the two lower bounds is returned.

    Memory: 8 bytes * K * n^2 a bag, where n is the largest |L|, and the memory of one call of
    `bag_log_prob`. In this call each bag stands for n - exact_labels + 1 bags with exact_labels
    classes.

    Args:
        log_probs: (B, C+1, *positions).
        labels: (B, C), bool or 0/1, the label sets, of any size.
        mask: as in `bag_log_prob`.
        exact_labels: how many classes are summed exactly, from 0 to EXACT_LABEL_LIMIT.
        validate: as in `bag_log_prob`.
        max_labels: as in `bag_log_prob`.

    Returns:
        `lower` and `upper`, both (B,), in nats. They hold despite the rounding errors of this
        computation. Both are -inf where |L| exceeds the number of positions that can show a class
        of L.

    Raises:
        UsageError: `exact_labels` is out of range, or bad input as in `bag_log_prob`.

    Examples:
        Two positions, at which two classes and the background have probability 1/3 each. Both
        classes occur in two of the nine possible label maps, so that Prb(L | P) is 2/9 = 0.2222.
        The lower bound is 1/3 * 1/3, with one position for each class; the upper bound is
        (1 - 4/9)^2.

        >>> import torch
        >>> log_probs = torch.zeros(1, 3, 2).log_softmax(dim=1)
        >>> labels = torch.tensor([[True, True]])
        >>> lower, upper = bag_log_prob_bounds(log_probs, labels, exact_labels=0)
        >>> lower.exp(), upper.exp()
        (tensor([0.1111]), tensor([0.3086]))

    Source: X.-L. Li, arXiv:1811.12346, 2018, for alpha; K. Joag-Dev and F. Proschan, Annals of
    Statistics 11, 1983, for negative association; see docs/likelihood.md.
    """
    argument_checks.check_log_probs(log_probs, mask, validate)
    argument_checks.check_labels(log_probs, labels, validate)
    if not 0 <= exact_labels <= EXACT_LABEL_LIMIT:
        raise UsageError(f"exact_labels must be from 0 to {EXACT_LABEL_LIMIT}, got {exact_labels}")
    labels = labels.bool()
    if len(labels) == 0:
        nothing = log_probs.new_zeros(0, dtype=columns.result_dtype(log_probs))
        return Bounds(nothing, nothing)
    # Every bag gets this many slots for classes. A bag with fewer classes leaves slots unused. On
    # the CPU, `largest_size` raises UsageError for a bag with more than `max_labels` classes. On a
    # GPU with `max_labels` it does not read the labels; such a bag then gets NaN from `_bounds`.
    slots = argument_checks.largest_size(labels, max_labels)
    # Grouping bags by |L| reads values. On a GPU that would wait for the device, and traced tensors
    # have no values: there all bags are computed together, with the same number of slots.
    reads_values = log_probs.device.type == "cpu" and not tracing()
    if reads_values:
        lower, upper = _bounds_by_size(log_probs, labels, mask, exact_labels)
    else:
        lower, upper = _bounds(log_probs, labels, mask, slots, exact_labels)
    positions = log_probs.shape[2:].numel()
    dtype = columns.result_dtype(log_probs)
    return Bounds(
        lower=_moved(lower, -1, positions, dtype),
        upper=_moved(upper, 1, positions, dtype),
    )


def _bounds_by_size(
    log_probs: Tensor, labels: Tensor, mask: Tensor | None, exact_labels: int
) -> tuple[Tensor, Tensor]:
    """Return both bounds, computed for one |L| at a time, so that no bag has unused slots."""
    order = []
    lower = []
    upper = []
    for bags, size in columns.by_size(labels):
        group_mask = None if mask is None else mask[bags]
        group_lower, group_upper = _bounds(
            log_probs[bags], labels[bags], group_mask, size, exact_labels
        )
        order.append(bags)
        lower.append(group_lower)
        upper.append(group_upper)
    in_order_of_bags = torch.cat(order).argsort()
    return torch.cat(lower)[in_order_of_bags], torch.cat(upper)[in_order_of_bags]


def _bounds(
    log_probs: Tensor, labels: Tensor, mask: Tensor | None, slots: int, exact_labels: int
) -> tuple[Tensor, Tensor]:
    """Return both bounds, (B,) each, without an operation that looks at a value.

    A bag with more classes than `slots` gets NaN.
    """
    # The second result is for posteriors, which are not computed here.
    selected, _ = columns.required_columns(log_probs, mask, labels, slots)
    bags = _Bags.from_columns(selected)
    lower, upper = _ratio_bounds(bags, exact_labels)
    upper = upper.clamp(max=0.0)
    # `required_columns` has made the shares of unused slots and of masked positions impossible. The
    # condition is written with `~` so that a NaN counts as possible. The bound is then NaN.
    may_show = ~(bags.share <= columns.IMPOSSIBLE)
    able_positions = may_show.any(dim=1).sum(dim=-1)
    is_impossible = bags.size > able_positions
    is_too_large = bags.size > slots

    sides = []
    for side in (lower, upper):
        log_prob = columns.floor_to_infinity(bags.log_scale + side)
        log_prob = log_prob.masked_fill(is_impossible, -torch.inf)
        sides.append(log_prob.masked_fill(is_too_large, torch.nan))
    return sides[0], sides[1]


class _Bags(NamedTuple):
    """Bags with n slots for classes, of which the first |L| are used.

    A share of a class or of the background is its probability at a position, given that the
    position shows a class of L or background.
    """

    log_scale: Tensor
    """(B,), log alpha."""
    size: Tensor
    """(B,), |L|."""
    background: Tensor
    """(B, K), log of the share of the background."""
    share: Tensor
    """(B, n, K), log of the share of each class."""
    used: Tensor
    """(B, n), True for slots with a class."""
    present: Tensor
    """(B, n), log(1 - A_l), that class l occurs somewhere; 0 in unused slots."""
    absent: Tensor
    """(B, n), log A_l, that class l occurs nowhere; -inf in unused slots."""

    @classmethod
    def from_columns(cls, selected: Columns) -> _Bags:
        """Return bags made of the columns of their label sets."""
        shares = selected.shares.transpose(0, 1)
        slot = torch.arange(shares.shape[1] - 1, device=shares.device)
        used = slot < selected.size.unsqueeze(1)
        present = presence_log_prob(shares, validate=False).clamp(min=FLOOR)
        # Finite, so that the difference below is no NaN.
        log_odds = presence_log_odds(shares, validate=False).clamp(FLOOR, -FLOOR)
        absent = (present - log_odds).clamp(min=FLOOR)
        return cls(
            log_scale=selected.log_scale,
            size=selected.size,
            background=shares[:, -1],
            share=shares[:, :-1],
            used=used,
            present=present.masked_fill(~used, 0.0),
            absent=absent.masked_fill(~used, -torch.inf),
        )

    def shares_of(self, slots: Tensor) -> Tensor:
        """Return (B, m, K), the shares of the classes in some slots (B, m)."""
        positions = self.share.shape[-1]
        return self.share.gather(1, slots.unsqueeze(-1).expand(-1, -1, positions))


def _ratio_bounds(bags: _Bags, exact_labels: int) -> tuple[Tensor, Tensor]:
    """Return a lower and an upper bound (B,) of log R.

    `bag_log_prob_bounds` defines R and the other symbols.
    """
    # `exact` are the slots of V, and `others` are the slots of U.
    least_certain_first = bags.absent.argsort(dim=1, descending=True)
    exact = least_certain_first[:, :exact_labels]
    others = least_certain_first[:, exact_labels:]
    log_sums = _exact_sums(bags, exact, others)
    # log R_V, and for each u in U log R_{V, u absent}.
    log_all = log_sums[:, 0]
    log_without = log_sums[:, 1:]

    is_unused = ~bags.used.gather(1, others)
    all_present = log_all.exp()
    some_absent = log_without.exp().masked_fill(is_unused, 0.0).sum(dim=1)
    # A difference of nearly equal sums may be all rounding error. So the largest possible error of
    # both sums is subtracted too. It is not a part of the bound's formula, and gets no gradient.
    relative_error = torch.finfo(bags.share.dtype).eps * _rounding_steps(bags.share.shape[-1])
    least = all_present - some_absent - relative_error * (all_present + some_absent).detach()
    is_positive = least > 0
    # In bags that take FLOOR, the second `where` makes autograd multiply the gradient of the
    # logarithm by 0. The logarithm of 0 would give infinity * 0, a NaN. So the first `where`
    # replaces values that are not positive by 1.
    log_least = torch.where(is_positive, least, 1.0).log()
    lower = torch.where(is_positive, log_least, FLOOR)
    # Where U has no class, the exact sum is R itself.
    lower = torch.where(bags.size <= exact_labels, log_all, lower)
    lower = torch.maximum(lower, _log_prob_at_own_positions(bags))

    upper = log_all + bags.present.gather(1, others).sum(dim=1)
    return lower, upper


def _exact_sums(bags: _Bags, exact: Tensor, others: Tensor) -> Tensor:
    """Return (B, 1 + m): log R_V, then log R_{V, u absent} for each of the m classes u in U.

    V are the classes in the slots `exact` (B, e), U those in the slots `others` (B, m). A class of
    U that may occur counts as background here; the absent class does not.
    """
    num_others = others.shape[1]
    # Each bag becomes 1 + m rows. Row 0 leaves out no class of U, and row i + 1 the i-th class.
    rows = num_others + 1
    left_out = torch.eye(rows, dtype=torch.bool, device=bags.share.device)[:, 1:]
    background = _background_with(bags.shares_of(others), bags.background, left_out)
    shares = bags.shares_of(exact).unsqueeze(1).expand(-1, rows, -1, -1)
    # From here on every row of every bag counts as a bag.
    log_probs = torch.cat([shares, background.unsqueeze(2)], dim=2).flatten(0, 1)
    labels = bags.used.gather(1, exact).unsqueeze(1).expand(-1, rows, -1).flatten(0, 1)
    value = bag_log_prob(log_probs, labels, validate=False, max_labels=exact.shape[1])
    return value.clamp(min=FLOOR).view(len(bags.size), -1)


def _log_prob_at_own_positions(bags: _Bags) -> Tensor:
    """Return a lower bound (B,) of log R: the log of prod_l Prb(l occurs in S_l).

    S_l are the positions that are assigned to class l.
    """
    slots, positions = bags.share.shape[1:]
    if slots == 0 or positions == 0:
        return torch.where(bags.size == 0, 0.0, FLOOR).to(bags.share)
    with torch.no_grad():
        owner = _owners_of_positions(bags)
        slot = torch.arange(slots, device=owner.device).unsqueeze(-1)
        is_owned = (owner.unsqueeze(1) == slot) & bags.used.unsqueeze(-1)
    # The rest of a class is the background and all other classes of L.
    each_left_out = torch.eye(slots, dtype=torch.bool, device=owner.device)
    rest = _background_with(bags.share, bags.background, each_left_out)
    # At the positions of other classes, the class cannot occur and the rest is certain.
    share = bags.share.masked_fill(~is_owned, FLOOR)
    rest = rest.masked_fill(~is_owned, 0.0)
    class_and_rest = torch.stack([share, rest], dim=2).flatten(0, 1)
    occurs = presence_log_prob(class_and_rest, validate=False).view(-1, slots)
    return occurs.clamp(min=FLOOR).masked_fill(~bags.used, 0.0).sum(dim=1)


def _owners_of_positions(bags: _Bags) -> Tensor:
    """Return (B, K), the slot of the class that each position is assigned to.

    First each class, beginning with the class that is least likely to occur, gets the free position
    at which its share is largest. Each remaining position goes to the class whose share there is
    largest in proportion to the probability that the class occurs in the bag.
    """
    positions = bags.share.shape[-1]
    relative_share = bags.share - bags.present.unsqueeze(-1)
    owner = relative_share.masked_fill(~bags.used.unsqueeze(-1), -torch.inf).argmax(dim=1)
    is_free = torch.ones_like(owner, dtype=torch.bool)
    position = torch.arange(positions, device=owner.device)
    rare_first = bags.present.masked_fill(~bags.used, torch.inf).argsort(dim=1)
    # With more classes than positions, the last classes find no free position and take position 0.
    # That does no harm: the likelihood is then 0, and `_bounds` returns -inf for both bounds.
    for slot in rare_first.split(1, dim=1):
        shares = bags.shares_of(slot).squeeze(1).masked_fill(~is_free, -torch.inf)
        is_best = position == shares.argmax(dim=1, keepdim=True)
        is_best &= bags.used.gather(1, slot)
        owner = torch.where(is_best, slot, owner)
        is_free = is_free & ~is_best
    return owner


def _background_with(share: Tensor, background: Tensor, left_out: Tensor) -> Tensor:
    """Return (B, m, K), log of the background plus all shares that a row does not leave out.

    `share` (B, n, K) and `background` (B, K) are logarithms. `left_out` (m, n) bool says which of
    the n shares each of the m rows leaves out.
    """
    rows, slots = left_out.shape
    shares = share.unsqueeze(1).expand(-1, rows, slots, -1)
    kept = shares.masked_fill(left_out.unsqueeze(-1), FLOOR)
    backgrounds = background[:, None, None].expand(-1, rows, -1, -1)
    return torch.logsumexp(torch.cat([kept, backgrounds], dim=2), dim=2)


def _rounding_steps(positions: int) -> int:
    """Return an upper limit of the relative error of a sum of probabilities, in units of eps.

    Each probability is a product over positions. The limit is not derived, but wide: it allows for
    four roundings at each position, and for 256 in all steps whose number does not grow with the
    positions. The bounds are certified as far as this limit holds.
    """
    return 4 * positions + 256


_STEPS_OF_LOGARITHM = 64
"""An upper limit of the relative error of a logarithm that is computed here, in units of eps.

This limit is wide as well.
"""


def _moved(bound: Tensor, sign: int, positions: int, dtype: torch.dtype) -> Tensor:
    """Return a bound in a type, moved outwards by its rounding error.

    With the sign -1 a lower bound moves down, and with the sign 1 an upper bound moves up. Where
    the type changes, the bound moves once more, by the error of rounding to the new type.
    """
    # A relative error of a sum is an absolute error of the logarithm of the sum.
    steps = _rounding_steps(positions)
    # An infinite bound does not move.
    size = bound.detach().abs().nan_to_num(posinf=0.0)
    bound = bound + sign * torch.finfo(bound.dtype).eps * (steps + _STEPS_OF_LOGARITHM * size)
    if dtype != bound.dtype:
        size = bound.detach().abs().nan_to_num(posinf=0.0)
        bound = bound + sign * torch.finfo(dtype).eps * size
    return bound.to(dtype)
