"""How far the values of trained networks would move with other test items, from outcomes by item."""

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
    """The error of the values of m losses with n seeds that comes from the draw of the test items."""

    covariance: Floats
    """(m, n, m, n), of the values; 0 between two cells that were tested on items without anything in common."""
    sets: Ints
    """(m, n), equal for cells that were tested on the same items; -1 where nothing is known."""
    items: Ints
    """(m, n), the number of test items, 0 where nothing is known."""
    unit: Floats
    """(m, n), what an item adds to the ratio where it adds anything (root mean square), else 1 / items."""

    def of(self, rows: NDArray[np.int64]) -> SamplingNoise:
        """Return the error of some of the losses."""
        covariance = self.covariance[rows][:, :, rows]
        return SamplingNoise(covariance, self.sets[rows], self.items[rows], self.unit[rows])


@dataclass(frozen=True, slots=True, eq=False)
class _Tested:
    """One cell that was tested: the places of its loss and its seed, and its outcomes."""

    loss: int
    seed: int
    outcomes: Outcomes


def sampling_noise(
    outcomes: Sequence[Sequence[Outcomes | None]],
    clusters: Mapping[str, Clusters] | None = None,
) -> SamplingNoise:
    """Return the covariance that ratios of sums over test items have under another draw of the items.

    A ratio r = sum(s) / sum(w) varies as the mean of its linearised residuals (s - r w) / mean(w)
    does. For weights of 1 these are the outcomes less their mean.

    Args:
        outcomes: of m losses with n seeds each, None where a cell has none.
        clusters: which test items share something, by the digest `Outcomes.items`. Items of another
            digest are independent. Two digests with clusters may share something as well: numbers
            of items and groups mean the same in all of them.
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
    """(k,), their places in the table of cells."""
    seeds: Ints
    """(k,)."""
    residuals: Floats
    """(k, n)."""
    units: list[float]
    """One a cell, see `SamplingNoise.unit`."""
    clusters: Clusters | None


def _tested_set(cells: list[_Tested], clusters: Mapping[str, Clusters]) -> _TestedSet:
    """Return the cells that were tested on the same items, as arrays."""
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
    """Write the covariance of the cells of two sets into that of all cells."""
    row_losses = rows.losses[:, None]
    row_seeds = rows.seeds[:, None]
    covariance[row_losses, row_seeds, columns.losses, columns.seeds] = block


def _by_items(outcomes: Sequence[Sequence[Outcomes | None]]) -> list[list[_Tested]]:
    """Return the cells that were tested on two items or more, a list for each set of items."""
    tested: dict[tuple[str, int], list[_Tested]] = {}
    for loss, row in enumerate(outcomes):
        for seed, of_cell in enumerate(row):
            # One item shows no variance.
            if of_cell is not None and len(of_cell) > 1:
                same_items = tested.setdefault((of_cell.items, len(of_cell)), [])
                same_items.append(_Tested(loss, seed, of_cell))
    return list(tested.values())


def _unit(outcomes: Outcomes) -> float:
    """Return what an item adds to the ratio where it adds anything, or 1 / items where none does."""
    added = outcomes.sums[outcomes.sums != 0].astype(float)
    if not added.size:
        return 1 / len(outcomes)
    root_mean_square = math.sqrt((added**2).mean())
    return root_mean_square / float(outcomes.weights.sum(dtype=float))


def _residuals(outcomes: Outcomes) -> Floats:
    """Return what each item adds to the deviation of the ratio from its mean, (items,)."""
    sums = outcomes.sums.astype(float)
    weights = outcomes.weights.astype(float)
    total = weights.sum()
    ratio = sums.sum() / total
    return np.asarray((sums - ratio * weights) / total)


def _covariance(residuals: Floats, clusters: Clusters | None) -> Floats:
    """Return the covariance of ratios from their residuals (cells, items)."""
    if clusters is not None:
        return clusters.covariance(residuals)
    # Residuals are taken from the mean of the same items, which makes them too small by this
    # factor.
    count = residuals.shape[1]
    correction = count / (count - 1)
    return np.asarray(residuals @ residuals.T * correction)
