"""The likelihood of small bags in 400 digits, by enumeration of their label maps (a class for every position)."""

from __future__ import annotations

import itertools
from typing import Any

import mpmath
from torch import Tensor

exactly = mpmath.MPContext()
exactly.dps = 400
"""400 digits, enough for 1 - p where p is a softmax of logits 400 apart. A context of its own, since the precision of
mpmath is global otherwise."""


def numbers(logits: Tensor) -> list[list[Any]]:
    """Return the rows of a matrix as numbers of 400 digits."""
    return [[exactly.mpf(value) for value in row] for row in logits.tolist()]


def softmax(logits: Tensor) -> list[list[Any]]:
    """Return p[c][k] of a bag's (C+1, K) logits."""
    odds = [[exactly.exp(value) for value in row] for row in numbers(logits)]
    return [[value / sum(column) for value, column in zip(row, zip(*odds, strict=True), strict=True)] for row in odds]


class LabelMaps:
    """All (C+1)^K label maps of one bag, from its (C+1, K) logits.

    Attributes:
        set_prob: label set -> its probability, the sum over the maps that contain these classes and no other.
        emits: (label set, channel, position) -> the probability of the set's maps with that channel at that position.
    """

    def __init__(self, logits: Tensor) -> None:
        p = softmax(logits)
        channels, positions = logits.shape
        background = channels - 1
        self.set_prob: dict[frozenset[int], Any] = {}
        self.emits: dict[tuple[frozenset[int], int, int], Any] = {}
        for label_map in itertools.product(range(channels), repeat=positions):
            prob = exactly.mpf(1)
            for k, c in enumerate(label_map):
                prob *= p[c][k]
            label_set = frozenset(label_map) - {background}
            self.set_prob[label_set] = self.set_prob.get(label_set, 0) + prob
            for k, c in enumerate(label_map):
                self.emits[label_set, c, k] = self.emits.get((label_set, c, k), 0) + prob

    def posterior(self, label_set: frozenset[int], channel: int, position: int) -> Any:
        """Return Prb(position emits channel | label set)."""
        return self.emits.get((label_set, channel, position), 0) / self.set_prob[label_set]

    def log_odds(self, c: int) -> Any:
        """Return log Prb(c occurs) - log Prb(c does not occur)."""
        present = sum(prob for label_set, prob in self.set_prob.items() if c in label_set)
        absent = sum(prob for label_set, prob in self.set_prob.items() if c not in label_set)
        return exactly.log(present) - exactly.log(absent)
