"""The outcome of every test item for one trained network.

Statistics compare two losses item by item, and need more than the value of a metric. A metric that
is a ratio of sums over items, such as the share of test bags with a wrong label set, is stored as
two numbers for every item: what the item adds to each of the two sums. The metrics of one cell are
one .npz file, and nothing in it is unpickled when it is read.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from milbench._utils.files import stored_arrays

OUTCOMES_FILE = "outcomes.npz"
"""The name of the file of outcomes."""
CLASSES_FILE = "classes.json"
"""The name of the file of counts by class: {cell: {class: a row of `metrics.class_counts`}}."""


@dataclass(frozen=True, slots=True, eq=False)
class Outcomes:
    """One metric as a ratio of two sums over n test items: bags, images or one-instance bags.

    Raises ValueError where the arrays do not fit together, or a value is not finite.
    """

    sums: NDArray[Any]
    """(n,) float32, what each item adds to the numerator.

    For example the number of its instances that get a wrong class.
    """
    weights: NDArray[Any]
    """(n,) float32, what each item adds to the denominator, such as the number of its instances.

    No weight is negative, and at least one is positive.
    """
    items: str
    """A digest of the items in their order.

    Two cells with the same digest were tested on the same items.
    """

    def __post_init__(self) -> None:
        # A plain assignment to a field of a frozen dataclass raises an error.
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
    """Return whether values are finite, with none negative and at least one positive."""
    return bool(np.isfinite(values).all() and (values >= 0).all() and (values > 0).any())


def save_outcomes(path: Path, outcomes: Mapping[str, Outcomes]) -> None:
    """Write outcomes by name as one file.

    In the file of one cell a name is a metric such as "set_error"; in a file of many cells it is
    "CELL/set_error". Outcomes of one metric on the same items with the same weights become one
    table, with a column for each name.
    """
    groups: dict[tuple[str, str, bytes], list[str]] = {}
    for name, outcome in outcomes.items():
        metric = name.rpartition("/")[2]
        what_is_shared = (metric, outcome.items, outcome.weights.tobytes())
        groups.setdefault(what_is_shared, []).append(name)
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
    """Return sums as numbers of one byte where this changes no value, else as they are.

    Most sums are small counts. As bytes they take a quarter of the space.
    """
    small = sums.clip(0, 255).astype(np.uint8)
    if np.array_equal(small, sums):
        return small
    return sums


def load_outcomes(path: Path) -> dict[str, Outcomes]:
    """Read the outcomes that `save_outcomes` wrote, by name.

    Raises UsageError if the file is missing or damaged.
    """
    outcomes: dict[str, Outcomes] = {}
    with stored_arrays("outcomes", path) as stored:
        # The numbers of the groups, each once, in the order of the file.
        groups = dict.fromkeys(name.partition("/")[0] for name in stored.files)
        for group in groups:
            names = stored[f"{group}/names"]
            sums = stored[f"{group}/sum"]
            weights = stored[f"{group}/weight"]
            items = str(stored[f"{group}/items"])
            for name, values in zip(names, sums.T, strict=True):
                outcomes[str(name)] = Outcomes(values, weights, items)
    return outcomes
