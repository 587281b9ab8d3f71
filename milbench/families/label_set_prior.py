"""The prior of label sets where instances are not independent; set s contains class c where bit c of s is 1."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from milbench.errors import UsageError
from milbench.likelihood.columns import membership

LabelSetKind = Literal[
    "independent", "together", "mostly-together", "exclusive", "constant", "uniform"
]
MOSTLY = 0.9
"""In `mostly-together`, the share of pairs that are drawn as in `together`; the others are as in `exclusive`."""
MOST_CLASSES = 8
"""Tables have an entry for every label set, bag size and class."""


@dataclass(frozen=True, slots=True)
class LabelSetRule:
    """Which label sets bags have, by parameters of the task `synthetic-bags`, which describes them."""

    kind: LabelSetKind = "independent"
    labels_per_bag: int | None = None
    empty_share: float | None = None

    @property
    def is_of_independent_instances(self) -> bool:
        """Whether label sets are those of independent instances."""
        return self.kind == "independent" and self.empty_share is None

    def check(self, presence: Tensor, smallest: int) -> None:
        """Raise UsageError unless the rule suits how often classes are to occur (C,) and the smallest bag."""
        classes = len(presence)
        most = self.labels_per_bag
        if self.kind == "uniform" and most is None:
            raise UsageError(
                "label_sets = uniform needs labels_per_bag, the largest number of classes in a bag"
            )
        if self.is_of_independent_instances:
            return
        if classes > MOST_CLASSES:
            condition = "empty_share" if self.kind == "independent" else f"label_sets = {self.kind}"
            raise UsageError(
                f"{condition} is for at most {MOST_CLASSES} classes, num_classes = {classes}"
            )
        if self.kind in ("together", "mostly-together", "exclusive") and classes % 2:
            raise UsageError(
                f"label_sets = {self.kind} needs pairs of classes, num_classes = {classes} is odd"
            )
        if self.kind in ("together", "mostly-together") and smallest < 2:
            raise UsageError(
                f"label_sets = {self.kind} needs two instances a bag, the smallest bag has 1"
            )
        if self.kind in ("mostly-together", "exclusive"):
            both = float(presence.view(-1, 2).sum(dim=1).max())
            if both > 1:
                raise UsageError(
                    f"label_sets = {self.kind}: the probabilities of two such classes add up to {both:.2f}, above 1; "
                    "expected a smaller class_rate or smaller bags"
                )
        if self.kind == "constant" and self.empty_share:
            raise UsageError(
                f"empty_share = {self.empty_share:g}: with label_sets = constant no bag is empty"
            )
        limit = min(classes, smallest)
        if most is not None and most > limit:
            condition = f"num_classes = {classes}, and the smallest bag has {smallest} instances"
            raise UsageError(f"labels_per_bag = {most} is more than {limit}: {condition}")


class LabelSetPrior:
    """The prior pi_n(L) of the label set of a bag with n instances, beside that of independent instances, q_n(L).

    A rule has one prior pi(L) for all sizes. Restricted to sets of at most n classes and
    normalised, it is pi_n; for `independent`, pi_n is q_n. Then the empty set gets its
    `empty_share`, and the others are scaled to the rest.

    In `together`, `mostly-together`, `exclusive` and `constant` classes occur as often as among
    independent instances in a bag of the mean size, the two classes of `together` as often as their
    mean, and class 0 of `constant` always; pairs, and the other classes of `constant`, are
    independent.

    `rates` (C+1,) float64 are the probabilities that an independent instance is of each class,
    background last; `presence` (C,) float64 is how often each class is to occur; `largest`, N, is
    the size of the largest bag. All attributes are (N+1, 2^C) float64, row n for bags of n.
    """

    def __init__(self, rule: LabelSetRule, rates: Tensor, presence: Tensor, largest: int) -> None:
        # log q_n(L)
        self.log_independent = independent_log_prob(rates, largest)
        is_independent = rule.kind == "independent"
        prior = self.log_independent.exp() if is_independent else _prior(rule, presence)
        # (N+1, 2^C): whether a bag of n instances can show all classes of a set.
        fits = torch.arange(largest + 1).unsqueeze(1) >= membership(len(presence)).sum(dim=1)
        table = _normalised(prior * fits)
        if rule.empty_share is not None:
            table[:, 0] = 0
            table = _normalised(table) * (1 - rule.empty_share)
            table[:, 0] = rule.empty_share
        self._rates = rates
        self._cumulative = table.cumsum(dim=1)
        # log pi_n(L) - log q_n(L), the correction of what is computed for independent instances.
        self.log_weight = torch.where(table > 0, table.log() - self.log_independent, -torch.inf)

    def draw(self, sizes: Tensor, uniform: Tensor) -> Tensor:
        """Return classes (B, K), C beyond the size of a bag, from `sizes` (B,) and draws (B, 1+K) from [0, 1).

        The first draw is for the label set, the others for one position after the other. Where m
        instances, with the label set S, are still to be drawn, the next one, by rates r and
        probabilities q of independent ones,

        - is background with a probability proportional to r_background q_{m-1}(S),
        - is of class c in S, and another one of c follows, to r_c q_{m-1}(S),
        - is of class c in S, and no other one of c follows, to r_c q_{m-1}(S - c).
        """
        classes = torch.arange(len(self._rates) - 1)
        background = torch.tensor([len(classes)])
        # Outcomes: background, then each class of which another one follows, then each class for
        # the last time.
        class_of_outcome = torch.cat([background, classes, classes])
        # With the last instance of class c, the set of what is still to be drawn loses bit c.
        bit_of_outcome = torch.cat([torch.zeros(1 + len(classes), dtype=torch.int64), 2**classes])
        draw_of_set, *draws_of_positions = uniform.T.unsqueeze(2).contiguous()
        set_steps = self._cumulative[sizes]
        # The last step is 1 but for rounding, and a draw must not lie above it.
        set_steps = set_steps / set_steps[:, -1:]
        remaining = torch.searchsorted(set_steps, draw_of_set, right=True).squeeze(1)
        drawn = []
        for k, draw_of_position in enumerate(draws_of_positions):
            # Beyond its size a bag has to have the empty set, so that what is drawn is background.
            outcome_steps = self._outcomes[(sizes - k - 1).clamp(min=0), remaining]
            outcome = torch.searchsorted(outcome_steps, draw_of_position, right=True).squeeze(1)
            drawn.append(class_of_outcome[outcome])
            remaining = remaining - bit_of_outcome[outcome]
        return torch.stack(drawn, dim=1)

    @cached_property
    def _outcomes(self) -> Tensor:
        """(N, 2^C, 2C+1), the cumulative probabilities of outcomes in `draw` by m - 1 and S; NaN where S cannot be."""
        classes = len(self._rates) - 1
        log_rates = self._rates.log()
        is_outside = ~membership(classes)
        sets = torch.arange(2**classes).unsqueeze(1)
        without_class = sets & ~(2 ** torch.arange(classes))
        # log q_{m-1}, of the instances after the next one.
        others = self.log_independent[:-1]
        background = log_rates[-1] + others.unsqueeze(2)
        again = (log_rates[:-1] + others.unsqueeze(2)).masked_fill(is_outside, -torch.inf)
        last = (log_rates[:-1] + others[:, without_class]).masked_fill(is_outside, -torch.inf)
        outcomes = torch.cat([background, again, last], dim=2).softmax(dim=2)
        steps = outcomes.cumsum(dim=2)
        return steps / steps[..., -1:]


def independent_log_prob(rates: Tensor, largest: int) -> Tensor:
    """Return log q_n(L): (N+1, 2^C), the log-probability that n independent instances have the label set L.

    The closed form, the sum over S in L of (-1)^|L - S| (r_background + sum of r_c over S)^n, loses
    all digits where q is small. Here instances join the bag one by one, and positive terms are
    added: the next one shows background or a class that is in L already, or the last class of L.
    The rates r (C+1,) have the background last.
    """
    sets = membership(len(rates) - 1)
    numbers = torch.arange(len(sets)).unsqueeze(1)
    # (2^C, C): the number of L without each of its classes.
    before = numbers - sets * 2 ** torch.arange(sets.shape[1])
    joins = torch.where(sets, rates[:-1].log(), -torch.inf)
    stays = (rates[-1] + sets.double() @ rates[:-1]).log()
    table = torch.full((largest + 1, len(sets)), -torch.inf, dtype=torch.float64)
    table[0, 0] = 0
    for n in range(largest):
        terms = torch.cat([(table[n] + stays).unsqueeze(1), table[n][before] + joins], dim=1)
        table[n + 1] = terms.logsumexp(dim=1)
    return table


def _prior(rule: LabelSetRule, presence: Tensor) -> Tensor:
    """Return pi(L) (2^C,) of a rule that has one prior for all sizes."""
    sets = membership(len(presence))
    if rule.kind == "uniform":
        return _uniform_prior(sets, rule.labels_per_bag or 0)
    if rule.kind == "constant":
        certain = presence.clone()
        certain[0] = 1
        return torch.where(sets, certain, 1 - certain).prod(dim=1)
    if rule.kind == "together":
        of_pair = _together(sets, presence)
    elif rule.kind == "exclusive":
        of_pair = _exclusive(sets, presence)
    else:
        together = _together(sets, presence)
        of_pair = MOSTLY * together + (1 - MOSTLY) * _exclusive(sets, presence)
    return of_pair.prod(dim=1)


def _uniform_prior(sets: Tensor, most: int) -> Tensor:
    """Return pi(L) (2^C,): the number of classes is uniform on 1..most, and then the set is uniform."""
    sizes = sets.sum(dim=1)
    sets_of_size = sizes.bincount()[sizes]
    is_allowed = (sizes >= 1) & (sizes <= most)
    return torch.where(is_allowed, 1 / sets_of_size.double(), 0.0) / most


def _together(sets: Tensor, presence: Tensor) -> Tensor:
    """Return how probable each set is for each pair of classes (2^C, C/2): both occur, or none."""
    first, second = presence.view(-1, 2).unbind(dim=1)
    has_first, has_second = sets.view(len(sets), -1, 2).unbind(dim=2)
    both = (first + second) / 2
    return torch.where(has_first, both, 1 - both).masked_fill(has_first != has_second, 0.0)


def _exclusive(sets: Tensor, presence: Tensor) -> Tensor:
    """Return how probable each set is for each pair of classes (2^C, C/2): one occurs, or none."""
    first, second = presence.view(-1, 2).unbind(dim=1)
    has_first, has_second = sets.view(len(sets), -1, 2).unbind(dim=2)
    neither = (1 - first - second).clamp(min=0)
    without_first = torch.where(has_second, second, neither)
    at_most_one = torch.where(has_first, first, without_first)
    return at_most_one.masked_fill(has_first & has_second, 0.0)


def _normalised(table: Tensor) -> Tensor:
    """Return rows that add up to 1."""
    return table / table.sum(dim=1, keepdim=True).clamp(min=torch.finfo(table.dtype).tiny)
