"""How far the values of trained networks would move with other test items: their covariance, from outcomes by item."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from milbench.contracts.outcomes import Outcomes

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class SamplingNoise:
    """The error of the values of m losses with n seeds that comes from the draw of the test items."""

    covariance: Floats  # (m, n, m, n), of the values; 0 between two cells that were tested on different items
    sets: NDArray[
        np.int64
    ]  # (m, n), equal for cells that were tested on the same items; -1 where nothing is known
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
        for seed, of_cell in enumerate(row):
            if of_cell is not None and len(of_cell) > 1:
                tested.setdefault((of_cell.items, len(of_cell)), []).append((loss, seed, of_cell))
                added = of_cell.sums[of_cell.sums != 0].astype(float)
                total = of_cell.weights.sum(dtype=float)
                unit[loss, seed] = (
                    np.sqrt((added**2).mean()) / total if added.size else 1 / len(of_cell)
                )
                items[loss, seed] = len(of_cell)
    for number, ((_, count), cells) in enumerate(tested.items()):
        losses, seeds = np.array([cell[:2] for cell in cells]).T
        residuals = np.stack([_residuals(of_cell) for _, _, of_cell in cells])
        sets[losses, seeds] = number
        together = residuals @ residuals.T * (count / (count - 1))
        covariance[losses[:, None], seeds[:, None], losses, seeds] = together
    return SamplingNoise(covariance, sets, items, unit)


def _residuals(outcomes: Outcomes) -> Floats:
    """Return what each item adds to the deviation of the ratio from its mean, (items,)."""
    sums, weights = outcomes.sums.astype(float), outcomes.weights.astype(float)
    total = weights.sum()
    return np.asarray((sums - sums.sum() / total * weights) / total)
