"""The outcome of every test item for one trained network, from which differences between losses are paired by item.

A metric that is a ratio of sums over items, such as the share of test bags with a wrong label set, is stored as the two
terms of every item. The metrics of one cell are one .npz file, in which nothing is unpickled.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from milbench._utils.files import stored_arrays

OUTCOMES_FILE = "outcomes.npz"  # the artifact of a cell's run that holds its outcomes
CLASSES_FILE = "classes.json"  # and that with its counts by class: {cell: {class: a row of `metrics.class_counts`}}


@dataclass(frozen=True, slots=True, eq=False)
class Outcomes:
    """One metric as a ratio of two sums over n test items (bags, images or one-instance bags), both (n,) float32.

    Other numbers are converted. ValueError where arrays do not fit together, or a value is not finite.
    """

    sums: NDArray[
        Any
    ]  # what each item adds to the numerator, such as the number of its instances of a wrong class
    weights: NDArray[
        Any
    ]  # and to the denominator, such as the number of its instances; not negative, nor all zero
    items: str  # a digest of the items in their order: two cells with the same one were tested on the same items

    def __post_init__(self) -> None:
        for name in ("sums", "weights"):
            object.__setattr__(self, name, np.asarray(getattr(self, name), np.float32))
        fits = {
            "sums": self.sums.ndim == 1 and bool(np.isfinite(self.sums).all()),
            "weights": self.weights.shape == self.sums.shape
            and bool(
                np.isfinite(self.weights).all()
                and (self.weights >= 0).all()
                and (self.weights > 0).any()
            ),
            "items": isinstance(self.items, str) and bool(self.items),
        }
        if problems := ", ".join(name for name, is_valid in fits.items() if not is_valid):
            raise ValueError(f"outcomes of shape {self.sums.shape} are not valid: {problems}")

    def __len__(self) -> int:
        return len(self.sums)

    @property
    def value(self) -> float:
        """The metric: the sum of `sums` over the sum of `weights`."""
        return float(self.sums.sum(dtype=np.float64) / self.weights.sum(dtype=np.float64))


def save_outcomes(path: Path, outcomes: Mapping[str, Outcomes]) -> None:
    """Write outcomes by name as one file: "set_error" in a cell's, "CELL/set_error" in one of many cells.

    Those on the same items with the same weights stand side by side, one column a name.
    """
    groups: dict[tuple[str, str, bytes], list[str]] = {}
    for name, outcome in outcomes.items():
        groups.setdefault(
            (name.rpartition("/")[2], outcome.items, outcome.weights.tobytes()), []
        ).append(name)
    arrays: dict[str, Any] = {}
    for number, ((_, items, _), names) in enumerate(groups.items()):
        sums = np.stack([outcomes[name].sums for name in names], axis=1)
        small = sums.clip(0, 255).astype(np.uint8)
        arrays |= {
            f"{number}/names": np.array(names), f"{number}/sum": small if np.array_equal(small, sums) else sums,
            f"{number}/weight": outcomes[names[0]].weights, f"{number}/items": np.str_(items),
        }  # fmt: skip
    with path.open(
        "wb"
    ) as file:  # numpy adds .npz to a name that lacks it, but not to an open file
        np.savez_compressed(file, **arrays)


def load_outcomes(path: Path) -> dict[str, Outcomes]:
    """Read what `save_outcomes` wrote. Raises UsageError if it is missing or damaged."""
    outcomes: dict[str, Outcomes] = {}
    with stored_arrays("outcomes", path) as stored:
        for group in dict.fromkeys(name.partition("/")[0] for name in stored.files):
            names, sums, weights, items = (
                stored[f"{group}/{part}"] for part in ("names", "sum", "weight", "items")
            )
            columns = zip(names, sums.T, strict=True)
            outcomes |= {
                str(name): Outcomes(values, weights, str(items)) for name, values in columns
            }
    return outcomes
