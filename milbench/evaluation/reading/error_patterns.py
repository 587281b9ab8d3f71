"""Why a string was read wrongly: the error patterns of X.-L. Li, arXiv:1811.12346, Section 5.4, as rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

from milbench.evaluation.reading.strings import collapsed

Pattern = Literal["no_detection", "orientation", "clustering", "edge_or_one", "substitution", "other"]
PATTERNS: tuple[Pattern, ...] = get_args(Pattern)


def error_pattern(read: str, truth: str, vertical: bool = False, winning: str = "") -> Pattern | None:
    """Return the first of these patterns that applies to a wrong string; None for a right one.

    no_detection: nothing was read.
    orientation: the digits are right and their order is not, or the number is written from top to bottom and the
        classes that win a position of the image are those of the number.
    clustering: right but for how often a digit is repeated ("1" or "111" for "11").
    edge_or_one: right but for digits 1 too many or too few ("17" for "7"), as edges look like ones.
    substitution: as many digits as there are, some of them others.
    other: digits missing, or too many, or several of these at once.

    Args:
        read: the string that a decoder read.
        truth: the true string.
        vertical: whether the number is written from top to bottom.
        winning: the classes that win a position, in any order.

    Returns:
        The name of the pattern; None where `read` equals `truth`.

    Examples:
        >>> error_pattern("17", truth="7")
        'edge_or_one'
        >>> error_pattern("7", truth="7") is None
        True
    """
    if read == truth:
        return None
    if not read:
        return "no_detection"
    if sorted(read) == sorted(truth) or (vertical and set(winning) == set(truth)):
        return "orientation"
    if collapsed(read) == collapsed(truth):
        return "clustering"
    if read.replace("1", "") == truth.replace("1", ""):
        return "edge_or_one"
    return "substitution" if len(read) == len(truth) else "other"


def error_patterns(
    read: Sequence[str],
    truth: Sequence[str],
    vertical: Sequence[bool] | None = None,
    winning: Sequence[str] | None = None,
) -> list[Pattern | None]:
    """Return the error pattern of every string, see `error_pattern`.

    Args:
        read: B strings that a decoder read.
        truth: B true strings.
        vertical: B, whether the number is written from top to bottom; None: no number is.
        winning: B strings, the classes that win a position of each image; None: unknown, taken as empty.

    Returns:
        B patterns, None for each string that is right.
    """
    vertical = [False] * len(read) if vertical is None else vertical
    winning = [""] * len(read) if winning is None else winning
    return [error_pattern(*case) for case in zip(read, truth, vertical, winning, strict=True)]


def pattern_shares(patterns: Sequence[Pattern | None]) -> dict[Pattern, float]:
    """Return the share of each pattern among all strings, right ones included: the shares sum to the error."""
    counts = Counter(patterns)
    return {name: counts[name] / len(patterns) for name in PATTERNS} if patterns else {}


def is_vertical(classes: Tensor, boxes: Tensor) -> list[bool]:
    """Return for every bag whether the middles of its boxes are spread further down than across.

    Args:
        classes: (B, M) int64, -1 where a bag has fewer than M instances. A bag of one instance is not vertical.
        boxes: (B, M, 4), (left, top, right, bottom) in pixels.
    """
    there = (classes >= 0).unsqueeze(-1)
    middles = (boxes[..., :2] + boxes[..., 2:]).double() / 2
    highest = middles.masked_fill(~there, -torch.inf).amax(dim=1)
    spread = highest - middles.masked_fill(~there, torch.inf).amin(dim=1)
    return (spread[:, 1] > spread[:, 0]).tolist()
