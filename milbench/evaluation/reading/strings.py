"""How classes are written as strings."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from torch import Tensor

CHARACTERS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
"""The character of each class."""
CLASSES = 10
"""Of digits, for which decoders learn and error patterns are named."""


def strings(classes: Tensor) -> list[str]:
    """Return the strings of classes (B, M), in their order; -1 where a bag has fewer than M instances."""
    return ["".join(CHARACTERS[c] for c in row if c >= 0) for row in classes.tolist()]


def collapsed(string: Iterable[str]) -> str:
    """Return a string with every run of equal characters written once."""
    return "".join(character for character, _ in itertools.groupby(string))
