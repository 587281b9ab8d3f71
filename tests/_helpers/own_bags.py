"""Bags as if they were read from a table, for tests that need no file."""

from pathlib import Path
from string import ascii_lowercase
from typing import Any

import numpy as np
from numpy.typing import NDArray

from milbench.data.bags_store import BagStore, scan
from milbench.data.own_bags import OwnBags


def store_of(parts: list[NDArray[Any]]) -> BagStore:
    """Return a store of bags, each an array of (instances, features)."""
    rows = np.concatenate(parts).astype(np.float32)
    offsets = np.cumsum([0, *map(len, parts)])
    # Some tests have bags with NaN or infinity: numpy would warn of them.
    with np.errstate(invalid="ignore"):
        scanned = scan(rows, starts=offsets[:-1], dtype="float32")
    return BagStore(
        offsets,
        means=scanned.means,
        squares=scanned.squares,
        digests=scanned.digests,
        packed=rows,
    )


def own_bags(parts: list[NDArray[Any]], labels: Any, classes: list[str], **changes: Any) -> OwnBags:
    """Return bags a, b, c, ..., as if they were read from bags.csv.

    Args:
        parts: the instances of each bag, (instances, features).
        labels: (bags, classes) bool.
        classes: the names of the classes.
        changes: other arguments of `OwnBags`.
    """
    count = sum(len(part) for part in parts)
    arguments: dict[str, Any] = {
        "path": Path("bags.csv"),
        "bags": _names_of_bags(len(parts)),
        "labels": np.array(labels, bool),
        "class_names": classes,
        "store": store_of(parts),
        "feature_names": _names_of_features(parts[0].shape[1]),
        "rows": np.arange(count),
    }
    return OwnBags(**(arguments | changes))


def _names_of_bags(count: int) -> list[str]:
    """Return the names a, b, c, ...; more names than letters are b0, b1, b2, ..."""
    if count <= len(ascii_lowercase):
        return [*ascii_lowercase[:count]]
    return [f"b{n}" for n in range(count)]


def _names_of_features(width: int) -> list[str]:
    """Return up to four names f, g, h, i; more names are f0, f1, f2, ..."""
    few = ["f", "g", "h", "i"]
    if width <= len(few):
        return few[:width]
    return [f"f{n}" for n in range(width)]
