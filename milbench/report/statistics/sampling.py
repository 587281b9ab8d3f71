"""How far the values of trained networks would move with other test items: their covariance, from outcomes by item."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from milbench.api.outcomes import Outcomes

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class SamplingNoise:
    """The error of the values of m losses with n seeds that comes from the draw of the test items."""

    covariance: Floats  # (m, n, m, n), of the values; 0 between two cells that were tested on different items
    sets: NDArray[np.int64]  # (m, n), equal for cells that were tested on the same items; -1 where nothing is known
    items: NDArray[np.int64]  # (m, n), the number of test items, 0 where nothing is known
    unit: Floats  # (m, n), what an item adds to the ratio where it adds anything (root mean square), else 1 / items

    def of(self, rows: NDArray[np.int64]) -> SamplingNoise:
        """Return the error of some of the losses."""
        covariance = self.covariance[rows][:, :, rows]
        return SamplingNoise(covariance, self.sets[rows], self.items[rows], self.unit[rows])


def sampling_noise(outcomes: Sequence[Sequence[Outcomes | None]]) -> SamplingNoise:
    """Return the covariance that ratios of sums over test items have under another draw of the items.

    A ratio r = sum(s) / sum(w) varies as the mean of its linearised residuals (s - r w) / mean(w) does. For weights of
    1 these are the outcomes less their mean. Of m losses with n seeds each, None where a cell has no outcomes.
    """
    shape = (len(outcomes), len(outcomes[0]) if outcomes else 0)
    covariance = np.zeros((*shape, *shape))
    sets, items, unit = np.full(shape, -1, np.int64), np.zeros(shape, np.int64), np.zeros(shape)
    tested: dict[tuple[str, int], list[tuple[int, int, Outcomes]]] = {}
    for loss, row in enumerate(outcomes):
        for seed, found in enumerate(row):
            if found is not None and len(found) > 1:
                tested.setdefault((found.items, len(found)), []).append((loss, seed, found))
                items[loss, seed], unit[loss, seed] = len(found), _unit(found)
    for number, ((_, count), cells) in enumerate(tested.items()):
        losses, seeds = np.array([cell[:2] for cell in cells]).T
        residuals = np.stack([_residuals(found) for _, _, found in cells])
        sets[losses, seeds] = number
        together = residuals @ residuals.T * (count / (count - 1))
        covariance[losses[:, None], seeds[:, None], losses, seeds] = together
    return SamplingNoise(covariance, sets, items, unit)


def _unit(found: Outcomes) -> float:
    sums = found.sums[found.sums != 0].astype(float)
    return float(np.sqrt((sums**2).mean()) / found.weights.sum(dtype=float)) if sums.size else 1 / len(found)


def _residuals(found: Outcomes) -> Floats:
    """Return what each item adds to the deviation of the ratio from its mean, (items,)."""
    sums, weights = found.sums.astype(float), found.weights.astype(float)
    total = weights.sum()
    return np.asarray((sums - sums.sum() / total * weights) / total)
