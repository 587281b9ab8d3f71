"""Bags of a table that lies nowhere, for tests of what is made of them."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from milbench.data.bags_store import BagStore, scan
from milbench.data.own_bags import OwnBags


def store_of(parts: list[NDArray[Any]]) -> BagStore:
    """Return a store of bags (K, D)."""
    rows = np.concatenate(parts).astype(np.float32)
    offsets = np.cumsum([0, *map(len, parts)])
    with np.errstate(invalid="ignore"):
        return BagStore(offsets, *scan(rows, offsets[:-1], "float32"), packed=rows)


def own_bags(parts: list[NDArray[Any]], labels: Any, classes: list[str], **changes: Any) -> OwnBags:
    """Return bags a, b, c, ... of bags.csv with these instances and label sets."""
    names = changes.pop(
        "bags", [chr(ord("a") + n) if len(parts) < 26 else f"b{n}" for n in range(len(parts))]
    )
    width = parts[0].shape[1]
    features = ["f", "g", "h", "i"][:width] if width <= 4 else [f"f{n}" for n in range(width)]
    path = changes.pop("path", Path("bags.csv"))
    rows = np.arange(sum(map(len, parts)))
    defaults: dict[str, Any] = {"feature_names": features, "rows": rows}
    return OwnBags(
        path, names, np.array(labels, bool), classes, store=store_of(parts), **(defaults | changes)
    )
