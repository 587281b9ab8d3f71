"""Strings of classes, and why one was read wrongly: the error patterns of X.-L. Li, arXiv:1811.12346, Section 5.4."""

import itertools
from collections.abc import Iterable

import torch

from milbench.contracts.bags import Truth
from milbench.contracts.decoder import Pattern

String = tuple[int, ...]
"""Classes in the order of reading."""
CLASSES = 10  # of digits, for which decoders learn and error patterns are named


def collapsed(string: Iterable[int]) -> list[int]:
    """Return a string with every run of equal classes written once."""
    return [cls for cls, _ in itertools.groupby(string)]


def error_pattern(
    read: String, truth: String, vertical: bool = False, winning: Iterable[int] = ()
) -> Pattern | None:
    """Return the first of these patterns that applies to a wrong string that was read; None for a right one.

    `vertical` is a number written from top to bottom, and `winning` holds the classes that win a position.

    no_detection: nothing was read.
    orientation: the digits are right and their order is not, or the number is written from top to bottom and the
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
    if sorted(read) == sorted(truth) or (vertical and {*winning} == {*truth}):
        return "orientation"
    if collapsed(read) == collapsed(truth):
        return "clustering"
    if [cls for cls in read if cls != 1] == [cls for cls in truth if cls != 1]:
        return "edge_or_one"
    return "substitution" if len(read) == len(truth) else "other"


def is_vertical(truth: Truth) -> list[bool]:
    """Return for every bag whether the middles of its boxes are spread further down than across.

    Raises ValueError where there are no boxes.
    """
    if truth.boxes is None:
        raise ValueError("the direction of a string is that of its boxes")
    is_instance = (truth.classes >= 0).unsqueeze(-1)
    middles = (truth.boxes[..., :2] + truth.boxes[..., 2:]).double() / 2
    highest = middles.masked_fill(~is_instance, -torch.inf).amax(dim=1)
    spread = highest - middles.masked_fill(~is_instance, torch.inf).amin(dim=1)
    return (spread[:, 1] > spread[:, 0]).tolist()
