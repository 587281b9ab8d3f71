"""Small bags for tests of losses, and their likelihood in 600 digits, by enumeration of their label maps.

A label map has a class for every position.
"""

from __future__ import annotations

import itertools
from typing import Any

import mpmath
import torch
from torch import Tensor

from tests._helpers.likelihood_reference import every_label_set
from tests._helpers.losses import random_logits

C, K = 3, 4
ALL_LABELS = every_label_set(C)


def bag(seed: int, scale: float = 2.0) -> Tensor:
    """Return the (C+1, K) logits of one bag."""
    return random_logits(C + 1, K, seed=seed, scale=scale)


EXTREME = {
    "wide": bag(0, 100).clamp(-200, 200),
    "signs": 200 * bag(1).sign(),
    "all low": torch.full((C + 1, K), -200.0) + bag(2, 1.0).abs(),
    "all high": torch.full((C + 1, K), 200.0) - bag(3, 1.0).abs(),
    "sure background": torch.tensor([[-200.0] * K, [-190.0] * K, [-150.0] * K, [200.0] * K]),
    "moderately rare": bag(4) - torch.tensor([[20.0], [18.0], [25.0], [0.0]]),
}
"""Bags at the ends of the range, where probabilities in float32 are 0 or 1."""

exactly = mpmath.MPContext()
exactly.dps = 600
"""600 digits, enough for 1 - p where p is a softmax of logits 400 apart. A context of its own, since the precision of
mpmath is global otherwise."""


def numbers(logits: Tensor) -> list[list[Any]]:
    """Return the rows of a matrix as numbers of 600 digits."""
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
