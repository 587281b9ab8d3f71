"""Calibration: whether the probabilities of a loss come true.

Source: expected calibration error, M. P. Naeini, G. F. Cooper and M. Hauskrecht, "Obtaining Well Calibrated
Probabilities Using Bayesian Binning", AAAI 2015, here with bins of equal mass.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from milbench.api.reliability import BINS, Bin

_ROUNDED = -(2.0**-24)
"""The log-probability of what rounds to 1 in single precision, in which networks compute."""


def presence_bins(log_odds: Tensor | None, labels: Tensor) -> list[Bin] | None:
    """Return the bins of every class in every bag, from (B, C) each; None where a loss has no such log-odds."""
    from scipy.special import expit  # scipy takes a while, and a plan needs none of it

    if log_odds is None or bool(log_odds.isnan().any()):
        return None
    return reliability_bins(expit(log_odds.double().flatten().numpy()), labels.flatten().numpy())


def set_bins(log_prob: Tensor | None, right: Tensor) -> list[Bin] | None:
    """Return the bins of the label sets that a loss names; None where it has no probabilities of them.

    `log_prob` (B,) is of the named label sets, and `right` (B,) bool tells whether they are the true ones.
    """
    if log_prob is None or bool(log_prob.isnan().any()):
        return None
    return reliability_bins(log_prob.double().clamp(max=_ROUNDED).exp().numpy(), right.numpy())


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
