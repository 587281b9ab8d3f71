"""Test bags that share items, such as recordings, are not independent: which of them do, and what that does to a mean.

Two bags are neighbours if they share an item or a group. The residual of a bag is what the bag adds
to the deviation of a mean: the value of the bag less the mean, already divided by the number of
bags. The covariance of two means is the sum of the products of their residuals over all pairs of
neighbours: bags that share nothing are independent, and nothing is assumed of the others.

That is the covariance for clusters that overlap in any way, of which two-way clusters (A. C.
Cameron, J. B. Gelbach and D. L. Miller, "Robust inference with multiway clustering", Journal of
Business & Economic Statistics 29, 2011, pp. 238-249) and pairs with common members (P. M. Aronow,
C. Samii and V. A. Assenova, "Cluster-robust variance estimation for dyadic data", Political
Analysis 23, 2015, pp. 564-577) are the best known.

The sum is corrected in two ways.

- Residuals are taken from the mean of the same bags, which makes the sum too small. On average it
  lacks a share of its value: the share of all pairs of bags that are neighbours. The sum is divided
  by 1 less this share. That is exact where all bags have the same number of neighbours. For n
  independent bags it is the factor n / (n - 1), for G clusters of one size G / (G - 1).
- The sum need not be a covariance: that of few clusters may be negative. As Cameron, Gelbach and
  Miller do, negative eigenvalues are replaced by zero. What is left is positive semi-definite.

Neither helps where nearly every two bags are neighbours. The sum over all pairs of bags is zero,
since residuals sum to zero. The sum over nearly all pairs is then close to zero, and often
negative. Zero in place of a negative variance would say that the mean does not vary, which nobody
knows. So no covariance is computed then.

Bags of two seeds may share something as well, where every seed has its own test bags: of the same
digits, or of the same words by other writers. The covariance of two means over different bags is
the same sum, with the same correction.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

Floats = NDArray[np.float64]

MOST_NEIGHBOURS = 0.95
"""With a larger share of neighbours among all pairs of bags nothing is known of how far a mean varies."""

_ROUNDING = 1e-12
"""A variance below this share of the variance of independent bags is rounding error."""


@dataclass(frozen=True, slots=True, eq=False)
class Clusters:
    """Which of n test bags share an item or a group."""

    neighbours: sparse.csr_array
    """(n, n), 1 for two bags that share something, and for a bag with itself."""
    parts: sparse.csr_array
    """(n, p), a column for each item and each group; not 0 where a bag has the item, or is in the group."""
    names: NDArray[np.int64]
    """(p,), what each column is, as one number: i for item i, and -1 - g for group g, so that no two are equal."""

    def __len__(self) -> int:
        return int(self.neighbours.shape[0])

    @property
    def share_of_neighbours(self) -> float:
        """The share of all pairs of bags that are neighbours, each bag with itself among them."""
        return float(self.neighbours.nnz) / len(self) ** 2

    def covariance(self, residuals: Floats) -> Floats:
        """Return the covariance (k, k) of k means from their residuals (k, n).

        The residuals are already divided by n, so that no division by n^2 follows: for a plain mean
        they are (value - mean) / n. The residuals of each mean sum to zero.

        ValueError where bags do not show it: where nearly every two of them share something, and
        where a mean seems not to vary although its residuals do.
        """
        count = len(self)
        if self.neighbours.nnz == count:
            # Each bag has only itself as a neighbour, so that the sum below would give this product
            # as well. Rounding would differ: this is the expression that `sampling` has for items
            # without clusters, and the results of both are equal to the last digit.
            return np.asarray(residuals @ residuals.T * (count / (count - 1)))
        share = self.share_of_neighbours
        if share > MOST_NEIGHBOURS:
            raise ValueError(
                f"of all pairs of {count} test bags {share:.0%} share an item: "
                "how far their mean varies is not known"
            )
        of_neighbours = residuals @ (self.neighbours @ residuals.T)
        of_independent = (residuals**2).sum(axis=1)
        varies = of_independent > 0
        is_lost = np.diagonal(of_neighbours) <= _ROUNDING * of_independent
        if (varies & is_lost).any():
            raise ValueError(
                f"{count} test bags share so many items that no variance of their mean is left: "
                "how far it varies is not known"
            )
        return semidefinite(of_neighbours / (1 - share))

    def covariance_with(self, other: Clusters, residuals: Floats, of_other: Floats) -> Floats:
        """Return the covariance (k, l) of k means over these bags and l means over other bags.

        The residuals are (k, n) and those `of_other` (l, n'). A number must mean the same item or
        group in both. A matrix that is made of this result and both covariances need not be
        positive semi-definite, see `semidefinite`.
        """
        _, here, there = np.intersect1d(self.names, other.names, return_indices=True)
        shared = sparse.csr_array(self.parts[:, here] @ other.parts[:, there].T)
        shared.data = np.ones_like(shared.data)
        share = float(shared.nnz) / (len(self) * len(other))
        if share > MOST_NEIGHBOURS:
            raise ValueError(
                f"of all pairs of one of {len(self)} test bags and one of {len(other)} others {share:.0%} share "
                "an item: how far their means vary together is not known"
            )
        return np.asarray(residuals @ (shared @ of_other.T) / (1 - share))


def clusters(group: NDArray[np.integer] | None, items: NDArray[np.integer] | None) -> Clusters:
    """Return which test bags are neighbours, from what they are made of, see `milbench.Origin`.

    Args:
        group: (n,), the number of the group of each bag, negative where it has none; None: there
            are no groups.
        items: (n, M), the numbers of the items in each bag, negative where it has fewer; None: bags
            share none.
    """
    if group is None and items is None:
        raise ValueError("expected groups or items of the test bags, got neither")
    parts = []
    names = []
    if group is not None:
        in_group, groups = _incidence(np.asarray(group).reshape(-1, 1))
        parts.append(in_group)
        names.append(-1 - groups)
    if items is not None:
        has_item, different = _incidence(np.asarray(items))
        parts.append(has_item)
        names.append(different)
    together = sparse.csr_array(sparse.hstack(parts, format="csr"))
    count = together.shape[0]
    # The product counts what two bags share. The diagonal is added for bags without any item, which
    # are their own neighbours, too.
    shared = together @ together.T + sparse.eye_array(count, format="csr")
    neighbours = sparse.csr_array(shared)
    neighbours.data = np.ones_like(neighbours.data)
    return Clusters(neighbours, together, np.concatenate(names))


def _incidence(numbers: NDArray[np.integer]) -> tuple[sparse.csr_array, NDArray[np.int64]]:
    """Return which bag (a row) has which item (a column), and the number of each column.

    `numbers` (n, M) are those of the items of each bag, negative where it has fewer.
    """
    bag, place = np.nonzero(numbers >= 0)
    names, item = np.unique(numbers[bag, place], return_inverse=True)
    # An item that is twice in a bag is counted twice, which does no harm: only zero or not zero
    # matters.
    ones = np.ones(len(bag))
    incidence = sparse.csr_array((ones, (bag, item)), shape=(len(numbers), len(names)))
    return incidence, names.astype(np.int64)


def semidefinite(matrix: Floats) -> Floats:
    """Return a symmetric matrix with zero in place of its negative eigenvalues."""
    symmetric = (matrix + matrix.T) / 2
    values, vectors = linalg.eigh(symmetric)
    if values[0] >= 0:
        return np.asarray(symmetric)
    kept = np.maximum(values, 0)
    return np.asarray((vectors * kept) @ vectors.T)
