"""The comparison of losses in words: better, worse, unresolved, and equivalent within a margin given in advance."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, Literal, TypeVar

import numpy as np
import pandas as pd

from milbench.api.outcomes import Outcomes
from milbench.report.statistics.differences import LEVEL, Difference, compare_all
from milbench.report.statistics.sampling import sampling_noise

Key = TypeVar("Key", bound=Hashable)
Verdict = Literal["better", "worse", "unresolved"]


@dataclass(frozen=True, slots=True)
class PairwiseComparison(Generic[Key]):
    """The differences between groups, one a loss, with intervals that hold together.

    Args:
        best: the group with the best mean, None for no values.
        differences: (a, b) -> a less b, for every a that comes before b among the groups with values, or for the pairs
            that were asked for.
        lower_is_better: whether a smaller value is a better one.
        margin: the largest difference that counts as none, given in advance; None where none was given.
        unranked: the groups of which no two are told apart, since the metric says nothing where both are.
    """

    best: Key | None
    differences: dict[tuple[Key, Key], Difference] = field(default_factory=dict)
    lower_is_better: bool = True
    margin: float | None = None
    unranked: frozenset[Key] = frozenset()

    @property
    def keys(self) -> list[Key]:
        """The groups with values, in their order."""
        found = dict.fromkeys(key for pair in self.differences for key in pair)
        return list(found) or ([] if self.best is None else [self.best])

    def difference(self, a: Key, b: Key) -> Difference:
        """Return a less b."""
        if (a, b) in self.differences:
            return self.differences[a, b]
        found = self.differences[b, a]
        low, high = found.interval
        return replace(found, difference=-found.difference, interval=(-high, -low))

    def verdict(self, a: Key, b: Key) -> Verdict:
        """Return what a is beside b: better or worse where zero lies outside the interval of their difference."""
        low, high = self.difference(a, b).interval
        if not (low > 0 or high < 0) or not self.tells_apart(a, b):
            return "unresolved"
        return "better" if (high < 0) == self.lower_is_better else "worse"

    def equivalent(self, a: Key, b: Key) -> bool:
        """Return whether the interval of the difference lies within the margin: two one-sided tests at once."""
        low, high = self.difference(a, b).interval
        return self.margin is not None and -self.margin < low and high < self.margin and self.tells_apart(a, b)

    def tells_apart(self, a: Key, b: Key) -> bool:
        """Return whether the metric can tell two groups apart at all."""
        return not {a, b} <= self.unranked

    def better_than(self, a: Key) -> list[Key]:
        """Return the groups that are better than a. Where there is one, a is not the best of all.

        The groups for which there is none hold the best one with the probability of the intervals: multiple comparisons
        with the best (Hsu, "Multiple Comparisons", Chapman & Hall 1996), drawn from all pairs so that no two statements
        contradict each other.
        """
        return [key for key in self.keys if key != a and self.verdict(key, a) == "better"]


def compare(
    groups: Mapping[Key, pd.Series[float]],
    outcomes: Mapping[Key, Mapping[int, Outcomes]] | None = None,
    lower_is_better: bool = True,
    margin: float | None = None,
    level: float = LEVEL,
    overlap: float = 0.0,
    pairs: Sequence[tuple[Key, Key]] | None = None,
    unranked: Iterable[Key] = (),
) -> PairwiseComparison[Key]:
    """Compare every two groups, or some pairs of them, on their common seeds.

    The group with the best mean is sought among those with the most seeds, so that a lucky seed of a group whose others
    failed does not win.

    Args:
        groups: the finite values of each group, indexed by seed.
        outcomes: group -> seed -> the outcomes of its test items, as far as they are known.
        lower_is_better: whether the smallest mean is the best.
        margin: the largest difference that counts as none, None where none was given.
        level: the probability with which all intervals hold together.
        overlap: how many bags are tested on for each that is trained on where seeds split the same bags, else 0.
        pairs: those that are compared, whose intervals alone hold together; None: all.
        unranked: the groups of which no two are told apart, since the metric says nothing where both are.

    Examples:
        >>> near, far = pd.Series([0.012, 0.009, 0.011, 0.010]), pd.Series([0.080, 0.082, 0.079, 0.081])
        >>> found = compare({"a": pd.Series([0.010, 0.011, 0.009, 0.011]), "b": near, "c": far}, margin=0.05)
        >>> found.best, found.verdict("b", "a"), found.equivalent("b", "a"), found.verdict("c", "a")
        ('a', 'unresolved', True, 'worse')
    """
    keys = [key for key, values in groups.items() if len(values)]
    if not keys:
        return PairwiseComparison(None, {}, lower_is_better, margin, frozenset(unranked))
    most = max(len(groups[key]) for key in keys)
    sign = 1 if lower_is_better else -1
    best = min((key for key in keys if len(groups[key]) == most), key=lambda key: sign * groups[key].mean())
    seeds = sorted({int(seed) for key in keys for seed in groups[key].index})
    values = np.array([groups[key].reindex(seeds).to_numpy(dtype=float) for key in keys])
    noise = sampling_noise(_items(keys, seeds, outcomes)) if outcomes else None
    numbers = {key: number for number, key in enumerate(keys)}
    chosen = None if pairs is None else [(numbers[a], numbers[b]) for a, b in pairs if a in numbers and b in numbers]
    found = compare_all(values, noise, level, overlap, chosen)
    differences = {(keys[i], keys[j]): difference for (i, j), difference in found.items()}
    return PairwiseComparison(best, differences, lower_is_better, margin, frozenset(unranked))


def _items(
    keys: Sequence[Key], seeds: Sequence[int], outcomes: Mapping[Key, Mapping[int, Outcomes]]
) -> list[list[Outcomes | None]]:
    return [[outcomes.get(key, {}).get(seed) for seed in seeds] for key in keys]
