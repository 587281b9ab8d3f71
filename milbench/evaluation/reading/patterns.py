"""Strings of digits, and names for the ways in which one may be read wrongly.

The names are the error patterns of X.-L. Li, arXiv:1811.12346, Section 5.4.
"""

import itertools
from collections.abc import Iterable

import torch

from milbench.contracts.bags import Truth
from milbench.contracts.decoder import Pattern

String = tuple[int, ...]
"""Classes in the order of reading."""
CLASSES = 10
"""How many digits there are; no string holds any other class."""


def collapsed(string: Iterable[int]) -> list[int]:
    """Return a string with every run of equal classes written once."""
    return [cls for cls, _ in itertools.groupby(string)]


def error_pattern(
    read: String, truth: String, vertical: bool = False, winning: Iterable[int] = ()
) -> Pattern | None:
    """Return the pattern of the error in a string that was read, None where the string is right.

    These are the patterns. Where several apply, the first one is returned.

    - no_detection: nothing was read.
    - orientation: the digits are right but not their order, or the number is written from top to
      bottom and its digits are exactly the winning classes.
    - clustering: right but for how often a digit is repeated ("1" or "111" for "11").
    - edge_or_one: right but for ones too many or too few ("17" for "7"), as edges look like ones.
    - substitution: the number of digits is right, and some digits are wrong.
    - other: digits are missing, or there are too many, or several errors occur at once.

    Args:
        read: the string that was read.
        truth: the true string.
        vertical: whether the number is written from top to bottom.
        winning: the classes that are the most probable one at some position of the image.
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
    """Return for every bag whether its string is written from top to bottom.

    It is where the middles of its boxes are spread farther down than across. Raises ValueError
    where the truth has no boxes.
    """
    if truth.boxes is None:
        raise ValueError("the direction of a string is not known without boxes")
    is_padding = (truth.classes < 0).unsqueeze(-1)
    # (B, M, 2), x and y.
    middles = (truth.boxes[..., :2] + truth.boxes[..., 2:]).double() / 2
    largest = middles.masked_fill(is_padding, -torch.inf).amax(dim=1)
    smallest = middles.masked_fill(is_padding, torch.inf).amin(dim=1)
    spread = largest - smallest
    across = spread[:, 0]
    down = spread[:, 1]
    return (down > across).tolist()
