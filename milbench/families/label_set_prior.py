"""The prior of the label sets of synthetic bags whose instances need not be independent.

Label sets are numbered: set s contains class c where bit c of s is 1.
"""

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
"""The rules by which label sets may be made. `LabelSetPrior` and `_prior` say what they mean."""
MOSTLY = 0.9
"""In `mostly-together`, how often a pair of classes follows `together` rather than `exclusive`."""
MOST_CLASSES = 8
"""The most classes for which a rule works: tables have an entry for each of the 2^C label sets."""


@dataclass(frozen=True, slots=True)
class LabelSetRule:
    """The rule by which label sets are made.

    The fields are parameters of the task `synthetic-bags`, which describes them.
    """

    kind: LabelSetKind = "independent"
    labels_per_bag: int | None = None
    empty_share: float | None = None

    @property
    def is_of_independent_instances(self) -> bool:
        """Whether instances are independent, and the label set is what they happen to show."""
        return self.kind == "independent" and self.empty_share is None

    def check(self, presence: Tensor, smallest: int) -> None:
        """Raise UsageError unless bags can follow the rule.

        Args:
            presence: (C,), how often each class is to occur.
            smallest: the size of the smallest bag.
        """
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
                    f"label_sets = {self.kind}: the probabilities of two such classes add up to "
                    f"{both:.2f}, above 1; expected a smaller class_rate or smaller bags"
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
    """The prior pi_n(L): the probability that a bag of n instances has the label set L.

    q_n(L) is the same probability if instances are independent, and pi_n(L) is q_n(L) for the rule
    `independent`. Any other rule has one prior pi(L) for all sizes. Restricted to sets of at most n
    classes and normalised, it is pi_n(L). If `empty_share` is set, the empty set has this
    probability, and the probabilities of the other sets are scaled to the rest.

    For the rules `together`, `mostly-together`, `exclusive` and `constant`, pi(L) lets classes
    occur as often as `presence` says, with two exceptions: the two classes of a pair of `together`
    occur as often as their mean, and class 0 of `constant` always occurs. Different pairs are
    independent, and so are the other classes of `constant`.

    Args:
        rule: the rule by which label sets are made.
        rates: (C+1,) float64, the probability that an independent instance is of each class,
            background last.
        presence: (C,) float64, how often each class is to occur.
        largest: N, the size of the largest bag.

    Attributes:
        log_independent: (N+1, 2^C) float64, log q_n(L); row n is for bags of n instances.
        log_weight: (N+1, 2^C) float64, log pi_n(L) - log q_n(L). Added to what is computed for
            independent instances, it corrects the prior.
    """

    def __init__(self, rule: LabelSetRule, rates: Tensor, presence: Tensor, largest: int) -> None:
        self.log_independent = independent_log_prob(rates, largest)
        is_independent = rule.kind == "independent"
        prior = self.log_independent.exp() if is_independent else _prior(rule, presence)
        # (N+1, 2^C): whether a bag of n instances is large enough for all classes of a set.
        fits = torch.arange(largest + 1).unsqueeze(1) >= membership(len(presence)).sum(dim=1)
        table = _normalised(prior * fits)
        if rule.empty_share is not None:
            table[:, 0] = 0
            table = _normalised(table) * (1 - rule.empty_share)
            table[:, 0] = rule.empty_share
        self._rates = rates
        self._cumulative = table.cumsum(dim=1)
        self.log_weight = torch.where(table > 0, table.log() - self.log_independent, -torch.inf)

    def draw(self, sizes: Tensor, uniform: Tensor) -> Tensor:
        """Return the class (B, K) of each instance of random bags, C for background.

        A label set is chosen at random for each bag. Then the classes of its instances are chosen,
        one position after the other. Suppose that m instances are still to be chosen, which
        together must show the label set S. Let r be the rates, and q the probabilities of label
        sets of independent instances. The next instance

        - is background with a probability proportional to r_background q_{m-1}(S),
        - is of class c in S, and one of class c follows, proportional to r_c q_{m-1}(S),
        - is of class c in S, and none of class c follows, proportional to r_c q_{m-1}(S - c).

        Args:
            sizes: (B,), how many instances each bag has. Beyond its size all is background.
            uniform: (B, 1+K), random numbers from [0, 1). The first one is for the label set, the
                others are for the positions.
        """
        classes = torch.arange(len(self._rates) - 1)
        background = torch.tensor([len(classes)])
        # The outcomes of a choice are the background, then each class if it follows again, then
        # each class for the last time.
        class_of_outcome = torch.cat([background, classes, classes])
        # After the last instance of class c, the remaining set loses bit c.
        bit_of_outcome = torch.cat([torch.zeros(1 + len(classes), dtype=torch.int64), 2**classes])
        number_of_set, *numbers_of_positions = uniform.T.unsqueeze(2).contiguous()
        set_steps = self._cumulative[sizes]
        # Rounding may leave the last step below 1, so that a random number could be above it.
        set_steps = set_steps / set_steps[:, -1:]
        remaining = torch.searchsorted(set_steps, number_of_set, right=True).squeeze(1)
        chosen = []
        for k, number in enumerate(numbers_of_positions):
            # Beyond the size of a bag the remaining set is empty, which leaves only background.
            outcome_steps = self._outcomes[(sizes - k - 1).clamp(min=0), remaining]
            outcome = torch.searchsorted(outcome_steps, number, right=True).squeeze(1)
            chosen.append(class_of_outcome[outcome])
            remaining = remaining - bit_of_outcome[outcome]
        return torch.stack(chosen, dim=1)

    @cached_property
    def _outcomes(self) -> Tensor:
        """(N, 2^C, 2C+1), the cumulative probabilities of the outcomes of a choice in `draw`.

        The first index is m - 1, and the second is the number of S. Entries are NaN where m
        instances are too few to show S.
        """
        classes = len(self._rates) - 1
        log_rates = self._rates.log()
        is_outside = ~membership(classes)
        sets = torch.arange(2**classes).unsqueeze(1)
        without_class = sets & ~(2 ** torch.arange(classes))
        # log q_{m-1}(S), for the instances after the next one.
        others = self.log_independent[:-1]
        background = log_rates[-1] + others.unsqueeze(2)
        again = (log_rates[:-1] + others.unsqueeze(2)).masked_fill(is_outside, -torch.inf)
        last = (log_rates[:-1] + others[:, without_class]).masked_fill(is_outside, -torch.inf)
        outcomes = torch.cat([background, again, last], dim=2).softmax(dim=2)
        steps = outcomes.cumsum(dim=2)
        return steps / steps[..., -1:]


def independent_log_prob(rates: Tensor, largest: int) -> Tensor:
    """Return (N+1, 2^C), the log-probability q_n(L) that n independent instances show the set L.

    There is a closed form: the sum over the subsets S of L of (-1)^|L - S| (r_background + sum of
    r_c over S)^n. It loses all digits where q is small. This function adds only positive terms, by
    a recursion over n: a further instance either shows background or a class that the others show
    too, or it shows the only class of L that the others lack.

    Args:
        rates: (C+1,), r, the probability of each class, background last.
        largest: N.
    """
    sets = membership(len(rates) - 1)
    numbers = torch.arange(len(sets)).unsqueeze(1)
    # (2^C, C): the number of the set L - c.
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
    """Return pi(L) (2^C,) of any rule but `independent`."""
    sets = membership(len(presence))
    if rule.kind == "uniform":
        return _uniform_prior(sets, rule.labels_per_bag or 0)
    if rule.kind == "constant":
        with_certain_0 = presence.clone()
        with_certain_0[0] = 1
        return torch.where(sets, with_certain_0, 1 - with_certain_0).prod(dim=1)
    if rule.kind == "together":
        by_pair = _together(sets, presence)
    elif rule.kind == "exclusive":
        by_pair = _exclusive(sets, presence)
    else:
        together = _together(sets, presence)
        by_pair = MOSTLY * together + (1 - MOSTLY) * _exclusive(sets, presence)
    # Pairs are independent.
    return by_pair.prod(dim=1)


def _uniform_prior(sets: Tensor, most: int) -> Tensor:
    """Return pi(L) (2^C,) of the rule `uniform`.

    The number of classes is uniform on 1..most, and all sets with the same number of classes have
    the same probability.
    """
    sizes = sets.sum(dim=1)
    sets_of_size = sizes.bincount()[sizes]
    is_allowed = (sizes >= 1) & (sizes <= most)
    return torch.where(is_allowed, 1 / sets_of_size.double(), 0.0) / most


def _together(sets: Tensor, presence: Tensor) -> Tensor:
    """Return (2^C, C/2), how probable it is that each pair of classes occurs as in each set.

    Classes 0 and 1 are a pair, 2 and 3, and so on. Both classes of a pair occur, or none.
    """
    first, second = presence.view(-1, 2).unbind(dim=1)
    has_first, has_second = sets.view(len(sets), -1, 2).unbind(dim=2)
    both = (first + second) / 2
    return torch.where(has_first, both, 1 - both).masked_fill(has_first != has_second, 0.0)


def _exclusive(sets: Tensor, presence: Tensor) -> Tensor:
    """Return what `_together` returns for pairs of which at most one class occurs."""
    first, second = presence.view(-1, 2).unbind(dim=1)
    has_first, has_second = sets.view(len(sets), -1, 2).unbind(dim=2)
    neither = (1 - first - second).clamp(min=0)
    without_first = torch.where(has_second, second, neither)
    at_most_one = torch.where(has_first, first, without_first)
    return at_most_one.masked_fill(has_first & has_second, 0.0)


def _normalised(table: Tensor) -> Tensor:
    """Return the table with each row scaled to the sum 1; a row of zeros stays as it is."""
    return table / table.sum(dim=1, keepdim=True).clamp(min=torch.finfo(table.dtype).tiny)
