"""The expected best of k draws of a search: what a smaller budget would have found."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

LEVEL = 0.95
_RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class ExpectedBest:
    """The expected best of 1 to n draws.

    Args:
        mean: (n,), the expected least error of k = 1..n draws.
        low: (n,), the lower end of its band.
        high: (n,), the upper end.
    """

    mean: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


def expected_best(errors: ArrayLike) -> NDArray[np.float64]:
    """Return the expected least error of k = 1..n draws, from n draws.

    It is the mean over all subsets of k of the n draws, which is unbiased for independent draws. J. Dodge et al. (2019)
    draw the k with replacement instead, which is too optimistic about small budgets (R. Tang et al. 2020).

    Args:
        errors: (n,), the error of each draw.

    Returns:
        (n,), for k = 1..n; the first is the mean, the last the least.

    Examples:
        >>> expected_best([0.3, 0.1, 0.2]).round(4).tolist()  # of two: 0.1 in two of three pairs, else 0.2
        [0.2, 0.1333, 0.1]

    Source: J. Dodge, S. Gururangan, D. Card, R. Schwartz and N. A. Smith, "Show Your Work: Improved Reporting of
    Experimental Results", EMNLP 2019, arXiv:1909.03004; R. Tang, J. Lee, J. Xin, X. Liu, Y. Yu and J. Lin, "Showing
    Your Work Doesn't Always Work", ACL 2020, arXiv:2004.13705.
    """
    ordered = np.sort(np.asarray(errors, dtype=float))
    return np.asarray(_chances(ordered.size) @ ordered)


def with_band(errors: ArrayLike, level: float = LEVEL) -> ExpectedBest:
    """Return the expected best of k draws with a pointwise bootstrap band over draws, the same at every call.

    The band shows how much the curve depends on which settings were drawn. It is a rough guide: near k = n it is too
    narrow, since no resample holds a better draw than the best one seen.
    """
    sample = np.asarray(errors, dtype=float)
    again = np.random.default_rng(0).choice(sample, (_RESAMPLES, sample.size))
    curves = np.sort(again, axis=1) @ _chances(sample.size).T
    low, high = np.quantile(curves, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return ExpectedBest(expected_best(sample), low, high)


def _chances(n: int) -> NDArray[np.float64]:
    """Return (n, n), the probability that the i-th best of n draws is the best of k = 1..n of them; rows are k."""
    return np.array([[math.comb(n - i, k - 1) / math.comb(n, k) for i in range(1, n + 1)] for k in range(1, n + 1)])
