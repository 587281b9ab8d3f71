"""The generator of synthetic bags as sums over all assignments of kinds to instances, in plain Python."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence

Assignment = tuple[int, ...]
"""The kind of every instance: a class 0 to C-1, C for background, C+1 for its context."""


def label_set(kinds: Assignment, classes: int) -> frozenset[int]:
    return frozenset(kind for kind in kinds if kind < classes)


def independent(size: int, rates: Sequence[float]) -> dict[Assignment, float]:
    """The probability of every assignment of classes and background to independent instances."""
    everything = itertools.product(range(len(rates)), repeat=size)
    return {kinds: math.prod(rates[kind] for kind in kinds) for kinds in everything}


def of_sets(assignments: dict[Assignment, float], classes: int) -> dict[frozenset[int], float]:
    """The probability of every label set."""
    total: defaultdict[frozenset[int], float] = defaultdict(float)
    for kinds, probability in assignments.items():
        total[label_set(kinds, classes)] += probability
    return dict(total)


def rule_of_sets(
    kind: str, presence: Sequence[float], labels_per_bag: int | None = None
) -> dict[frozenset[int], float]:
    """The probability of every label set before it is made to fit a size, from the words of the docstring."""
    classes, found = range(len(presence)), {}
    for members in itertools.chain.from_iterable(itertools.combinations(classes, n) for n in range(len(presence) + 1)):
        value = 1.0
        if kind == "uniform":
            assert labels_per_bag is not None
            allowed = 1 <= len(members) <= labels_per_bag
            value = 1 / labels_per_bag / math.comb(len(presence), len(members)) if allowed else 0.0
        elif kind == "constant":
            for c in classes:
                p = 1.0 if c == 0 else presence[c]
                value *= p if c in members else 1 - p
        else:
            for a, b in zip(classes[::2], classes[1::2], strict=True):
                both = (presence[a] + presence[b]) / 2
                cases = {
                    "together": {(True, True): both, (False, False): 1 - both},
                    "exclusive": {
                        (True, False): presence[a],
                        (False, True): presence[b],
                        (False, False): 1 - presence[a] - presence[b],
                    },
                    "mostly-together": {
                        (True, True): 0.9 * both,
                        (True, False): 0.1 * presence[a],
                        (False, True): 0.1 * presence[b],
                        (False, False): 0.9 * (1 - both) + 0.1 * (1 - presence[a] - presence[b]),
                    },
                }[kind]
                value *= cases.get((a in members, b in members), 0.0)
        found[frozenset(members)] = value
    return found


def bags_of(
    size: int,
    rates: Sequence[float],
    kind: str = "independent",
    mean_size: float = 0.0,
    labels_per_bag: int | None = None,
    empty_share: float | None = None,
    context: float = 0.0,
    context_without: float = 0.0,
) -> dict[Assignment, float]:
    """The probability of every assignment of kinds to the instances of a bag of `size`."""
    classes = len(rates) - 1
    drawn = independent(size, rates)
    q = of_sets(drawn, classes)
    presence = [1 - (1 - rate) ** mean_size for rate in rates[:-1]]
    rule = dict(q) if kind == "independent" else rule_of_sets(kind, presence, labels_per_bag)
    rule = {members: p for members, p in rule.items() if len(members) <= size}
    if empty_share is not None:
        rest = sum(p for members, p in rule.items() if members)
        rule = {members: p / rest * (1 - empty_share) if members else empty_share for members, p in rule.items()}
    total = sum(rule.values())
    found: dict[Assignment, float] = {}
    for kinds, probability in drawn.items():
        members = label_set(kinds, classes)
        value = rule[members] / total * probability / q[members]
        share = context if 0 in members else context_without
        ways = [[(k, 1.0)] if k < classes else [(k, 1 - share), (k + 1, share)] for k in kinds]
        for way in itertools.product(*ways):
            weight = value * math.prod(p for _, p in way)
            if weight > 0:
                found[tuple(k for k, _ in way)] = weight
    return found
