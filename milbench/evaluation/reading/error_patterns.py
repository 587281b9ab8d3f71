"""Why a string was read wrongly: the error patterns of the paper's Section 5.4, told apart by rules."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

Pattern = Literal["no_detection", "orientation", "clustering", "edge_or_one", "substitution", "other"]
PATTERNS: tuple[Pattern, ...] = get_args(Pattern)


def pattern(read: str, truth: str, vertical: bool = False, seen: str = "") -> Pattern | None:
    """Return the first pattern of these that a wrong string has; None for a right one.

    no_detection: nothing was read.
    orientation: the digits are right and their order is not, or the number is written from top to bottom and the
        classes that win a position of the image are those of the number.
    clustering: right but for how often a digit is repeated ("1" or "111" for "11").
    edge_or_one: right but for digits 1 too many or too few ("17" for "7"), as edges look like ones.
    substitution: as many digits as there are, some of them others.
    other: digits missing, or too many, or several of these at once.

    vertical: the number is written from top to bottom. seen: the classes that win a position, in any order.
    """
    if read == truth:
        return None
    if not read:
        return "no_detection"
    if sorted(read) == sorted(truth) or (vertical and set(seen) == set(truth)):
        return "orientation"
    if _collapsed(read) == _collapsed(truth):
        return "clustering"
    if read.replace("1", "") == truth.replace("1", ""):
        return "edge_or_one"
    return "substitution" if len(read) == len(truth) else "other"


def patterns(
    read: Sequence[str], truth: Sequence[str], vertical: Sequence[bool] | None = None, seen: Sequence[str] | None = None
) -> list[Pattern | None]:
    """Return the pattern of every string, see `pattern`."""
    vertical = [False] * len(read) if vertical is None else vertical
    seen = [""] * len(read) if seen is None else seen
    return [pattern(*case) for case in zip(read, truth, vertical, seen, strict=True)]


def shares(found: Sequence[Pattern | None]) -> dict[Pattern, float]:
    """Return the share of each pattern among all strings, right ones included: they sum to the error."""
    counts = Counter(found)
    return {name: counts[name] / len(found) for name in PATTERNS} if found else {}


def examples(found: Sequence[Pattern | None], count: int = 8) -> dict[Pattern, list[int]]:
    """Return the indices of the first few strings of each pattern, for a gallery."""
    return {name: list(itertools.islice((i for i, p in enumerate(found) if p == name), count)) for name in PATTERNS}


def is_vertical(classes: Tensor, boxes: Tensor) -> list[bool]:
    """Return for every bag whether the middles of its boxes (B, M, 4) are spread further down than across.

    classes: (B, M), -1 where a bag has fewer than M. A bag of one instance is not vertical.
    """
    there = (classes >= 0).unsqueeze(-1)
    middles = (boxes[..., :2] + boxes[..., 2:]).double() / 2
    highest = middles.masked_fill(~there, -torch.inf).amax(dim=1)
    spread = highest - middles.masked_fill(~there, torch.inf).amin(dim=1)
    return (spread[:, 1] > spread[:, 0]).tolist()


def _collapsed(string: str) -> str:
    return "".join(character for character, _ in itertools.groupby(string))
