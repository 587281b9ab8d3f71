"""Small bags for tests of losses, and their likelihood in 600 digits by enumeration.

A label map has a class, or the background, for every position; all label maps are enumerated. Maps
may also be drawn by hand, as text.
"""

import itertools
import math
from typing import Any

import mpmath
import torch
from torch import Tensor

from tests._helpers.likelihood_reference import every_label_set
from tests._helpers.losses import random_logits

C = 3
"""The number of classes."""
K = 4
"""The number of positions."""
ALL_LABELS = every_label_set(C)


def bag(seed: int, scale: float = 2.0) -> Tensor:
    """Return random logits of one bag, (C+1, K), with the standard deviation `scale`."""
    return random_logits(C + 1, K, seed=seed, scale=scale)


EXTREME = {
    "wide": bag(0, 100).clamp(-200, 200),
    "signs": 200 * bag(1).sign(),
    "all low": torch.full((C + 1, K), -200.0) + bag(2, 1.0).abs(),
    "all high": torch.full((C + 1, K), 200.0) - bag(3, 1.0).abs(),
    "sure background": torch.tensor([[-200.0] * K, [-190.0] * K, [-150.0] * K, [200.0] * K]),
    "moderately rare": bag(4) - torch.tensor([[20.0], [18.0], [25.0], [0.0]]),
}
"""Name -> logits of a bag at the ends of the range, where probabilities in float32 are 0 or 1."""

exactly = mpmath.MPContext()
exactly.dps = 600
"""Computes with 600 digits, enough for 1 - p where p is a softmax of logits 400 apart."""


def numbers(logits: Tensor) -> list[list[Any]]:
    """Return the rows of a matrix as numbers of 600 digits."""
    return [[exactly.mpf(value) for value in row] for row in logits.tolist()]


def softmax(logits: Tensor) -> list[list[Any]]:
    """Return the probabilities p[c][k] of class c at position k, from logits (C+1, K)."""
    odds = [[exactly.exp(value) for value in row] for row in numbers(logits)]
    sums = [sum(column) for column in zip(*odds, strict=True)]
    return [_divided(row, sums) for row in odds]


def _divided(values: list[Any], divisors: list[Any]) -> list[Any]:
    return [value / divisor for value, divisor in zip(values, divisors, strict=True)]


class LabelMaps:
    """The probabilities of all (C+1)^K label maps of one bag, from its logits (C+1, K)."""

    def __init__(self, logits: Tensor) -> None:
        p = softmax(logits)
        channels, positions = logits.shape
        background = channels - 1
        # Label set -> the probability of the maps that contain its classes and no other class.
        self.set_prob: dict[frozenset[int], Any] = {}
        # Label set, channel and position -> the probability of the maps that have this label set,
        # and this channel at this position.
        self.emits: dict[tuple[frozenset[int], int, int], Any] = {}
        for label_map in itertools.product(range(channels), repeat=positions):
            shown = [p[c][k] for k, c in enumerate(label_map)]
            prob = math.prod(shown, start=exactly.mpf(1))
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


def draw(*pictures: str, sure: float = 0.9, classes: int = 10) -> Tensor:
    """Return probabilities (B, C+1, h, w) of label maps that are drawn as text.

    Args:
        pictures: label maps. A digit is a class and a dot the background; blanks end lines.
        sure: the probability of the drawn class at each position.
        classes: the number of classes C.
    """
    # "." is the background, the last channel.
    class_maps = torch.tensor([_class_map(picture, background=classes) for picture in pictures])
    one_hot = torch.nn.functional.one_hot(class_maps, classes + 1)
    shown = one_hot.movedim(-1, 1).double()
    # The other channels share the rest of the probability.
    return shown * sure + (1 - shown) * (1 - sure) / classes


def _class_map(picture: str, background: int) -> list[list[int]]:
    """Return the classes of a drawn map, line by line."""
    numbers_of_characters = {".": background} | {str(digit): digit for digit in range(10)}
    return [[numbers_of_characters[character] for character in line] for line in picture.split()]
