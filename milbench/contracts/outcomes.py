"""The outcome of every test item for one trained network, from which differences between losses are paired by item.

A metric that is a ratio of sums over items, such as the share of test bags with a wrong label set,
is stored as the two terms of every item. The metrics of one cell are one .npz file, in which
nothing is unpickled.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from milbench._utils.files import stored_arrays

OUTCOMES_FILE = "outcomes.npz"
"""The file of outcomes."""
CLASSES_FILE = "classes.json"
"""The file of counts by class: {cell: {class: a row of `metrics.class_counts`}}."""


@dataclass(frozen=True, slots=True, eq=False)
class Outcomes:
    """One metric as a ratio of two sums over n test items (bags, images or one-instance bags), both (n,) float32.

    Other numbers are converted. ValueError where arrays do not fit together, or a value is not
    finite.
    """

    sums: NDArray[Any]
    """What each item adds to the numerator, such as the number of its instances that get a wrong class."""
    weights: NDArray[Any]
    """What each item adds to the denominator, such as the number of its instances; not negative, nor all zero."""
    items: str
    """A digest of the items in their order. Two cells with the same one were tested on the same items."""

    def __post_init__(self) -> None:
        # The fields of a frozen dataclass cannot be assigned.
        object.__setattr__(self, "sums", np.asarray(self.sums, np.float32))
        object.__setattr__(self, "weights", np.asarray(self.weights, np.float32))
        problems = []
        if self.sums.ndim != 1 or not np.isfinite(self.sums).all():
            problems.append("sums")
        if self.weights.shape != self.sums.shape or not _are_weights(self.weights):
            problems.append("weights")
        if not isinstance(self.items, str) or not self.items:
            problems.append("items")
        if problems:
            listed = ", ".join(problems)
            raise ValueError(f"outcomes of shape {self.sums.shape} are not valid: {listed}")

    def __len__(self) -> int:
        return len(self.sums)

    @property
    def value(self) -> float:
        """The metric: the sum of `sums` over the sum of `weights`."""
        return float(self.sums.sum(dtype=np.float64) / self.weights.sum(dtype=np.float64))


def _are_weights(values: NDArray[Any]) -> bool:
    """Return whether values are finite, none of them negative and some of them positive."""
    return bool(np.isfinite(values).all() and (values >= 0).all() and (values > 0).any())


def save_outcomes(path: Path, outcomes: Mapping[str, Outcomes]) -> None:
    """Write outcomes by name as one file: "set_error" in a cell's, "CELL/set_error" in one of many cells.

    Those on the same items with the same weights stand side by side, one column a name.
    """
    groups: dict[tuple[str, str, bytes], list[str]] = {}
    for name, outcome in outcomes.items():
        metric = name.rpartition("/")[2]
        same = (metric, outcome.items, outcome.weights.tobytes())
        groups.setdefault(same, []).append(name)
    arrays: dict[str, Any] = {}
    for number, names in enumerate(groups.values()):
        first = outcomes[names[0]]
        sums = np.stack([outcomes[name].sums for name in names], axis=1)
        arrays[f"{number}/names"] = np.array(names)
        arrays[f"{number}/sum"] = _as_bytes_if_equal(sums)
        arrays[f"{number}/weight"] = first.weights
        arrays[f"{number}/items"] = np.str_(first.items)
    # NumPy adds .npz to a path that lacks it, but not to an open file.
    with path.open("wb") as file:
        np.savez_compressed(file, **arrays)


def _as_bytes_if_equal(sums: NDArray[Any]) -> NDArray[Any]:
    """Return sums as numbers of one byte where that loses nothing, else as they are.

    Most sums are small counts, which then take a quarter of the space.
    """
    small = sums.clip(0, 255).astype(np.uint8)
    if np.array_equal(small, sums):
        return small
    return sums


def load_outcomes(path: Path) -> dict[str, Outcomes]:
    """Read what `save_outcomes` wrote. Raises UsageError if it is missing or damaged."""
    outcomes: dict[str, Outcomes] = {}
    with stored_arrays("outcomes", path) as stored:
        # In the order of the file, each group once.
        groups = dict.fromkeys(name.partition("/")[0] for name in stored.files)
        for group in groups:
            names = stored[f"{group}/names"]
            sums = stored[f"{group}/sum"]
            weights = stored[f"{group}/weight"]
            items = str(stored[f"{group}/items"])
            for name, values in zip(names, sums.T, strict=True):
                outcomes[str(name)] = Outcomes(values, weights, items)
    return outcomes
