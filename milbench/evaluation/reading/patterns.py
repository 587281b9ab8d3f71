"""Strings of classes, and why one was read wrongly: the error patterns of X.-L. Li, arXiv:1811.12346, Section 5.4."""

import itertools
from collections.abc import Iterable

import torch

from milbench.contracts.bags import Truth
from milbench.contracts.decoder import Pattern

String = tuple[int, ...]
"""Classes in the order of reading."""
CLASSES = 10
"""The digits, for which decoders learn and error patterns are named."""


def collapsed(string: Iterable[int]) -> list[int]:
    """Return a string with every run of equal classes written once."""
    return [cls for cls, _ in itertools.groupby(string)]


def error_pattern(
    read: String, truth: String, vertical: bool = False, winning: Iterable[int] = ()
) -> Pattern | None:
    """Return the first of these patterns that applies to a wrong string that was read; None for a right one.

    `vertical` is a number written from top to bottom, and `winning` holds the classes that win a
    position.

    no_detection: nothing was read.
    orientation: the digits are right and their order is not, or the number is written from top to
    bottom and the
        classes that win a position of the image are those of the number.
    clustering: right but for how often a digit is repeated ("1" or "111" for "11").
    edge_or_one: right but for digits 1 too many or too few ("17" for "7"), as edges look like ones.
    substitution: as many digits as there are, some of them others.
    other: digits missing, or too many, or several of these at once.
    """
    if read == truth:
        return None
    if not read:
        return "no_detection"
    if sorted(read) == sorted(truth):
        return "orientation"
    if vertical and set(winning) == set(truth):
        return "orientation"
    if collapsed(read) == collapsed(truth):
        return "clustering"
    if _without_ones(read) == _without_ones(truth):
        return "edge_or_one"
    if len(read) == len(truth):
        return "substitution"
    return "other"


def _without_ones(string: String) -> list[int]:
    return [cls for cls in string if cls != 1]


def is_vertical(truth: Truth) -> list[bool]:
    """Return for every bag whether the middles of its boxes are spread further down than across.

    Raises ValueError where there are no boxes.
    """
    if truth.boxes is None:
        raise ValueError("the direction of a string is that of its boxes")
    is_padding = (truth.classes < 0).unsqueeze(-1)
    # (B, M, 2), x and y.
    middles = (truth.boxes[..., :2] + truth.boxes[..., 2:]).double() / 2
    largest = middles.masked_fill(is_padding, -torch.inf).amax(dim=1)
    smallest = middles.masked_fill(is_padding, torch.inf).amin(dim=1)
    spread = largest - smallest
    across = spread[:, 0]
    down = spread[:, 1]
    return (down > across).tolist()
