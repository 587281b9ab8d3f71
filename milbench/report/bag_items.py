"""The items and groups that test bags are made of.

Bags that share an item, such as a recording, or a group are not independent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from milbench._utils.files import stored_arrays, write_atomically
from milbench.contracts.predictions import SplitPredictions
from milbench.report.statistics.clusters import Clusters, clusters

BAG_ITEMS_FILE = "test_items.npz"
"""The file of a published report that has the items and groups of test bags."""


@dataclass(frozen=True, slots=True, eq=False)
class BagItems:
    """The groups and the items of n test bags, as `milbench.Origin` has them."""

    group: NDArray[np.integer] | None
    """(n,), the number of the group of each bag; None: there are no groups."""
    items: NDArray[np.integer] | None
    """(n, M), the numbers of the items of each bag, or None if no two bags share an item.

    Rows of bags with fewer than M items end in -1.
    """

    @property
    def shared(self) -> str:
        """What some of the bags share: "items", a "group", or "nothing"."""
        if self.items is not None and _is_any_in_two_bags(self.items):
            return "items"
        if self.group is not None and len(np.unique(self.group)) < len(self.group):
            return "group"
        return "nothing"

    def clusters(self) -> Clusters | None:
        """Return which bags share an item or a group, None if no bags do."""
        if self.shared == "nothing":
            return None
        return clusters(self.group, self.items)


def bag_items_of(bags: SplitPredictions) -> BagItems:
    """Return the groups and items of the bags of a split."""
    return BagItems(bags.group, bags.items)


def _is_any_in_two_bags(items: NDArray[np.integer]) -> bool:
    """Return whether any item is in two rows of items (n, M), in which -1 stands for none."""
    is_item = items >= 0
    bags = np.broadcast_to(np.arange(len(items))[:, None], items.shape)
    # A bag may have an item twice, so pairs of an item and a bag count once.
    pairs = np.unique(np.stack([items[is_item], bags[is_item]]), axis=1)
    return bool(len(np.unique(pairs[0])) < pairs.shape[1])


def save_bag_items(path: Path, by_digest: Mapping[str, BagItems]) -> None:
    """Write the groups and items of sets of test bags, given the digest of each set."""
    arrays: dict[str, NDArray[Any]] = {}
    for number, (digest, bag_items) in enumerate(sorted(by_digest.items())):
        arrays[f"{number}/digest"] = np.array(digest)
        if bag_items.group is not None:
            arrays[f"{number}/group"] = bag_items.group
        if bag_items.items is not None:
            arrays[f"{number}/items"] = bag_items.items
    write_atomically(path, lambda draft: _write(draft, arrays))


def _write(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    # NumPy adds .npz to a path that lacks it, but not to an open file.
    with path.open("wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]


def load_bag_items(path: Path) -> dict[str, BagItems]:
    """Read what `save_bag_items` wrote. Raises UsageError if it is missing or damaged."""
    found = {}
    with stored_arrays("test items", path) as stored:
        for name in stored.files:
            number, _, kind = name.partition("/")
            if kind == "digest":
                group = _array(stored, f"{number}/group")
                items = _array(stored, f"{number}/items")
                found[str(stored[name])] = BagItems(group, items)
    return found


def _array(stored: Any, name: str) -> NDArray[Any] | None:
    """Return the array of a name from an open file, None if the file lacks it."""
    return stored[name] if name in stored.files else None
