"""Calibration: whether the probabilities of a loss come true.

Source: expected calibration error, M. P. Naeini, G. F. Cooper and M. Hauskrecht, "Obtaining Well Calibrated
Probabilities Using Bayesian Binning", AAAI 2015, here with bins of equal mass.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from milbench.api.reliability import BINS, Bin


def reliability_bins(probabilities: NDArray[Any], happened: NDArray[Any]) -> list[Bin]:
    """Return forecasts in bins of equal mass, by rank; equal probabilities are in one bin, that of the first of them.

    Otherwise the order of the bags would decide which of equal forecasts are counted together.
    """
    first = np.searchsorted(np.sort(probabilities), probabilities)
    index = BINS * first // len(probabilities)
    counts, sums, hits = (
        np.bincount(index, weights, minlength=BINS) for weights in (None, probabilities, happened.astype(float))
    )
    return [
        Bin(b, int(counts[b]), min(1.0, float(sums[b] / counts[b])), float(hits[b] / counts[b]))
        for b in np.flatnonzero(counts).tolist()
    ]
