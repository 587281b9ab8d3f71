"""How far the values of trained networks would move with other test items.

This is learnt from outcomes: what each test item adds to a metric.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from milbench.contracts.outcomes import Outcomes
from milbench.report.statistics.clusters import Clusters, semidefinite

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class SamplingNoise:
    """The random error of the values of m losses with n seeds, over samples of test items.

    A cell is one loss with one seed.
    """

    covariance: Floats
    """(m, n, m, n), the covariance of the values of all cells.

    It is 0 between two cells whose test items have nothing in common.
    """
    sets: Ints
    """(m, n), a number that is equal for cells with the same test items; -1: not known."""
    items: Ints
    """(m, n), the number of test items; 0: not known."""
    unit: Floats
    """(m, n), how much an item with an effect changes the value of its cell.

    It is the root mean square over the items that add anything to the value, or 1 / items if there
    are no such items.
    """

    def of(self, rows: NDArray[np.int64]) -> SamplingNoise:
        """Return the noise of some of the losses, given by their rows."""
        covariance = self.covariance[rows][:, :, rows]
        return SamplingNoise(covariance, self.sets[rows], self.items[rows], self.unit[rows])


@dataclass(frozen=True, slots=True, eq=False)
class _Tested:
    """A cell that was tested: the row of its loss, the column of its seed, and its outcomes."""

    loss: int
    seed: int
    outcomes: Outcomes


def sampling_noise(
    outcomes: Sequence[Sequence[Outcomes | None]],
    clusters: Mapping[str, Clusters] | None = None,
) -> SamplingNoise:
    """Return how far metrics vary over samples of test items.

    A metric is a ratio r = sum(s) / sum(w) of sums over test items, with outcomes s and weights w.
    It varies like the mean of the linearised residuals (s - r w) / mean(w). For weights of 1 these
    residuals are the outcomes less their mean.

    Args:
        outcomes: the outcomes of m losses with n seeds each, None for a cell that has none.
        clusters: digest (`Outcomes.items`) -> which of these test items share something. Items
            whose digest is missing are independent. Test items of two digests may share something
            as well: a number means the same item or group in all of `clusters`.
    """
    of_items = clusters or {}
    losses = len(outcomes)
    seeds = len(outcomes[0]) if outcomes else 0
    covariance = np.zeros((losses, seeds, losses, seeds))
    sets = np.full((losses, seeds), -1, np.int64)
    items = np.zeros((losses, seeds), np.int64)
    unit = np.zeros((losses, seeds))
    tested = [_tested_set(cells, of_items) for cells in _by_items(outcomes)]
    for number, one in enumerate(tested):
        sets[one.losses, one.seeds] = number
        items[one.losses, one.seeds] = one.residuals.shape[1]
        unit[one.losses, one.seeds] = one.units
        _put(covariance, one, one, _covariance(one.residuals, one.clusters))
    shares_something = False
    for one, other in combinations(tested, 2):
        if one.clusters is None or other.clusters is None:
            continue
        between = one.clusters.covariance_with(other.clusters, one.residuals, other.residuals)
        if between.any():
            shares_something = True
            _put(covariance, one, other, between)
            _put(covariance, other, one, between.T)
    if shares_something:
        cells = losses * seeds
        whole = semidefinite(covariance.reshape(cells, cells))
        covariance = whole.reshape(losses, seeds, losses, seeds)
    return SamplingNoise(covariance, sets, items, unit)


@dataclass(frozen=True, slots=True, eq=False)
class _TestedSet:
    """The k cells that were tested on one set of n items."""

    losses: Ints
    """(k,), the row of the loss of each cell."""
    seeds: Ints
    """(k,), the column of the seed of each cell."""
    residuals: Floats
    """(k, n), what each item adds to the deviation of the value of each cell."""
    units: list[float]
    """(k,), see `SamplingNoise.unit`."""
    clusters: Clusters | None
    """Which of the items share something; None: they are independent."""


def _tested_set(cells: list[_Tested], clusters: Mapping[str, Clusters]) -> _TestedSet:
    """Return cells that were tested on the same items as one set, in arrays."""
    residuals = np.stack([_residuals(cell.outcomes) for cell in cells])
    of_items = clusters.get(cells[0].outcomes.items)
    count = residuals.shape[1]
    if of_items is not None and len(of_items) != count:
        raise ValueError(f"expected clusters of {count} test items, got {len(of_items)}")
    return _TestedSet(
        losses=np.array([cell.loss for cell in cells]),
        seeds=np.array([cell.seed for cell in cells]),
        residuals=residuals,
        units=[_unit(cell.outcomes) for cell in cells],
        clusters=of_items,
    )


def _put(covariance: Floats, rows: _TestedSet, columns: _TestedSet, block: Floats) -> None:
    """Write a block, the covariance of the cells of two sets, into the covariance of all cells."""
    row_losses = rows.losses[:, None]
    row_seeds = rows.seeds[:, None]
    covariance[row_losses, row_seeds, columns.losses, columns.seeds] = block


def _by_items(outcomes: Sequence[Sequence[Outcomes | None]]) -> list[list[_Tested]]:
    """Return the cells that were tested on at least two items, a list for each set of items."""
    tested: dict[tuple[str, int], list[_Tested]] = {}
    for loss, row in enumerate(outcomes):
        for seed, of_cell in enumerate(row):
            # A single item shows no variance.
            if of_cell is not None and len(of_cell) > 1:
                same_items = tested.setdefault((of_cell.items, len(of_cell)), [])
                same_items.append(_Tested(loss, seed, of_cell))
    return list(tested.values())


def _unit(outcomes: Outcomes) -> float:
    """Return how much an item with an effect changes the ratio, see `SamplingNoise.unit`."""
    added = outcomes.sums[outcomes.sums != 0].astype(float)
    if not added.size:
        return 1 / len(outcomes)
    root_mean_square = math.sqrt((added**2).mean())
    return root_mean_square / float(outcomes.weights.sum(dtype=float))


def _residuals(outcomes: Outcomes) -> Floats:
    """Return what each item adds to the deviation of the ratio, (items,); the sum is zero."""
    sums = outcomes.sums.astype(float)
    weights = outcomes.weights.astype(float)
    total = weights.sum()
    ratio = sums.sum() / total
    return np.asarray((sums - ratio * weights) / total)


def _covariance(residuals: Floats, clusters: Clusters | None) -> Floats:
    """Return the covariance of ratios from their residuals (cells, items)."""
    if clusters is not None:
        return clusters.covariance(residuals)
    # Residuals are taken from the mean of the same items, so that their products are too small.
    count = residuals.shape[1]
    correction = count / (count - 1)
    return np.asarray(residuals @ residuals.T * correction)
