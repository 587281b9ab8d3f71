"""Test bags whose string a network reads wrongly, by what went wrong: numpy alone, stored with a gallery."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_PREFIX = "misread_"


@dataclass(frozen=True, slots=True)
class Misread:
    """How many test bags are read wrongly in which way, and E examples.

    bags: how many test bags were read; counts: in how many of them each pattern occurs (see
        `milbench.evaluation.reading.error_patterns`), in the order to show them, without those that occur in none.
    patterns: E names, each of them one of `counts`; truth, read: E strings.
    images: (E, N, H, W) uint8.
    winners: (E, h, w) uint8, the most probable class of every position, C for background; strengths: (E, h, w) float16,
        its probability.
    """

    bags: int
    counts: dict[str, int]
    patterns: tuple[str, ...]
    truth: tuple[str, ...]
    read: tuple[str, ...]
    images: NDArray[np.uint8]
    winners: NDArray[np.uint8]
    strengths: NDArray[np.float16]

    def __post_init__(self) -> None:
        examples = len(self.patterns)
        fits = {
            "counts": min(self.counts.values(), default=1) > 0 and sum(self.counts.values()) <= self.bags,
            "patterns": set(self.patterns) <= set(self.counts),
            "truth": len(self.truth) == examples,
            "read": len(self.read) == examples,
            "images": self.images.ndim == 4 and len(self.images) == examples,
            "winners": self.winners.ndim == 3 and len(self.winners) == examples,
            "strengths": self.strengths.shape == self.winners.shape,
        }
        wrong = [name for name, good in fits.items() if not good]
        if wrong:
            raise ValueError(f"{examples} examples of misread bags do not fit together: {', '.join(wrong)}")

    def __len__(self) -> int:
        return len(self.patterns)

    def of(self, pattern: str) -> list[int]:
        """Return the indices of the examples of a pattern."""
        return [i for i, name in enumerate(self.patterns) if name == pattern]

    def arrays(self) -> dict[str, Any]:
        """Return what `stored` makes the same of, by names that begin with misread_."""
        arrays = {
            "bags": self.bags, "names": np.asarray(list(self.counts), np.str_),
            "counts": np.asarray(list(self.counts.values()), np.int64), "patterns": np.asarray(self.patterns, np.str_),
            "truth": np.asarray(self.truth, np.str_), "read": np.asarray(self.read, np.str_),
            "images": self.images, "winners": self.winners, "strengths": self.strengths,
        }  # fmt: skip
        return {_PREFIX + name: value for name, value in arrays.items()}


def stored(arrays: Mapping[str, Any]) -> Misread | None:
    """Return what `Misread.arrays` gave; None where it is not among these arrays. Raises KeyError where part of it is.

    Raises ValueError where they do not fit together.
    """
    if _PREFIX + "bags" not in arrays:
        return None
    found = {name: arrays[_PREFIX + name] for name in ("bags", "names", "counts", "images", "winners", "strengths")}
    patterns, truth, read = (tuple(map(str, arrays[_PREFIX + name])) for name in ("patterns", "truth", "read"))
    return Misread(
        bags=int(found["bags"]),
        counts=dict(zip(map(str, found["names"]), map(int, found["counts"]), strict=True)),
        patterns=patterns,
        truth=truth,
        read=read,
        images=found["images"],
        winners=found["winners"],
        strengths=found["strengths"],
    )
