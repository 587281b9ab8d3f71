"""How far means over test bags vary when bags share items, such as recordings.

Bags that share an item or a group are not independent. Two such bags are neighbours. The residual
of a bag is what the bag adds to the deviation of a mean: the value of the bag less the mean,
already divided by the number of bags. The covariance of two means is the sum of the products of
their residuals over all pairs of neighbours. Bags that share nothing count as independent, and
nothing is assumed of neighbours.

This is the covariance for clusters that overlap in any way. The best-known cases are two-way
clusters (A. C. Cameron, J. B. Gelbach and D. L. Miller, "Robust inference with multiway
clustering", Journal of Business & Economic Statistics 29, 2011, pp. 238-249) and pairs with common
members (P. M. Aronow, C. Samii and V. A. Assenova, "Cluster-robust variance estimation for dyadic
data", Political Analysis 23, 2015, pp. 564-577).

The sum is corrected in two ways.

- Residuals are taken from the mean of the same bags, which makes the sum too small. On average it
  lacks a share of its value: the share of neighbours among all pairs of bags. The sum is divided by
  1 less this share. That is exact if all bags have the same number of neighbours. For n independent
  bags it is the factor n / (n - 1), and for G clusters of one size G / (G - 1).
- With few clusters a variance may come out negative, so that the matrix is no covariance. As in
  the paper by Cameron, Gelbach and Miller, negative eigenvalues are replaced by zero. The result is
  positive semi-definite.

Neither correction helps if nearly every two bags are neighbours. The sum over all pairs of bags is
zero, since residuals sum to zero. The sum over nearly all pairs is then close to zero, and often
negative. Zero in place of a negative variance would say that the mean does not vary, which is not
known. So no covariance is computed in this case.

If every seed has its own test bags, bags of two seeds may share something as well, such as the same
digits. The covariance of two means over different bags is the same sum, with the same correction.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

Floats = NDArray[np.float64]

MOST_NEIGHBOURS = 0.95
"""The largest share of neighbours among all pairs of bags.

With a larger share nothing is known of how far a mean varies.
"""

_ROUNDING = 1e-12
"""A variance below this share of the variance of independent bags is a rounding error."""


@dataclass(frozen=True, slots=True, eq=False)
class Clusters:
    """Which of n test bags share an item or a group."""

    neighbours: sparse.csr_array
    """(n, n), 1 for two bags that share something, and for a bag with itself."""
    parts: sparse.csr_array
    """(n, p), a column for each item and each group.

    An entry is not 0 if the bag has the item, or is in the group.
    """
    names: NDArray[np.int64]
    """(p,), a number for what each column of `parts` is: i for item i, and -1 - g for group g."""

    def __len__(self) -> int:
        return int(self.neighbours.shape[0])

    @property
    def share_of_neighbours(self) -> float:
        """The share of neighbours among all pairs of bags, each bag with itself included."""
        return float(self.neighbours.nnz) / len(self) ** 2

    def covariance(self, residuals: Floats) -> Floats:
        """Return the covariance (k, k) of k means from their residuals (k, n).

        The residuals are already divided by n: for a plain mean they are (value - mean) / n. The
        residuals of each mean sum to zero.

        Raises ValueError if the covariance cannot be known: nearly every two bags share something,
        or a mean seems not to vary although its residuals do.
        """
        count = len(self)
        if self.neighbours.nnz == count:
            # Each bag has only itself as a neighbour. The sum below would give the same product,
            # but with other rounding errors. `sampling` has this very expression for items without
            # clusters, so that both results are equal to the last digit.
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
        group in both sets of bags. A matrix that is put together from this result and the
        covariances of both sets need not be positive semi-definite, see `semidefinite`.
        """
        _, here, there = np.intersect1d(self.names, other.names, return_indices=True)
        shared = sparse.csr_array(self.parts[:, here] @ other.parts[:, there].T)
        shared.data = np.ones_like(shared.data)
        share = float(shared.nnz) / (len(self) * len(other))
        if share > MOST_NEIGHBOURS:
            raise ValueError(
                f"of all pairs of one of {len(self)} test bags and one of {len(other)} others "
                f"{share:.0%} share an item: how far their means vary together is not known"
            )
        return np.asarray(residuals @ (shared @ of_other.T) / (1 - share))


def clusters(group: NDArray[np.integer] | None, items: NDArray[np.integer] | None) -> Clusters:
    """Return which test bags are neighbours, from their groups and items, see `milbench.Origin`.

    Args:
        group: (n,), the number of the group of each bag, negative if it has none; None: there are
            no groups.
        items: (n, M), the numbers of the items in each bag, with negative numbers in rows of bags
            that have fewer than M; None: bags share no items.
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
    # The product counts what two bags share. The diagonal is added, as bags without any item are
    # neighbours of themselves, too.
    shared = together @ together.T + sparse.eye_array(count, format="csr")
    neighbours = sparse.csr_array(shared)
    neighbours.data = np.ones_like(neighbours.data)
    return Clusters(neighbours, together, np.concatenate(names))


def _incidence(numbers: NDArray[np.integer]) -> tuple[sparse.csr_array, NDArray[np.int64]]:
    """Return which bag (a row) has which item (a column), and the item number of each column.

    `numbers` (n, M) are the items of each bag, with negative numbers where it has fewer than M.
    """
    bag, slot = np.nonzero(numbers >= 0)
    names, item = np.unique(numbers[bag, slot], return_inverse=True)
    # An item that is twice in a bag is counted twice. That does no harm, as it only matters whether
    # an entry is zero.
    ones = np.ones(len(bag))
    incidence = sparse.csr_array((ones, (bag, item)), shape=(len(numbers), len(names)))
    return incidence, names.astype(np.int64)


def semidefinite(matrix: Floats) -> Floats:
    """Return a symmetric matrix with its negative eigenvalues replaced by zero."""
    symmetric = (matrix + matrix.T) / 2
    values, vectors = linalg.eigh(symmetric)
    if values[0] >= 0:
        return np.asarray(symmetric)
    kept = np.maximum(values, 0)
    return np.asarray((vectors * kept) @ vectors.T)
