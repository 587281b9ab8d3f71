"""Calibration: whether the probabilities of a loss come true, before and after one temperature.

Forecasts are log-odds of the presence of each class in each bag, or that the label set at even odds is right.

Source: expected calibration error, M. P. Naeini, G. F. Cooper and M. Hauskrecht, "Obtaining Well Calibrated
Probabilities Using Bayesian Binning", AAAI 2015, here with bins of equal mass; temperature, C. Guo, G. Pleiss, Y. Sun
and K. Q. Weinberger, "On Calibration of Modern Neural Networks", ICML 2017.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from milbench.api.reliability import BINS, Bin, calibration_error
from milbench.api.task import Split

TEMPERATURES = {"presence": "temperature", "set": "set_temperature"}
"""The kinds of forecasts, with the names under which their temperatures are recorded, after "chosen/"."""
LARGEST = 100.0
"""The temperature is searched for between its inverse and this."""
_MOST = 700.0
"""Log-odds are cut off here: with an infinite one, of what a loss holds to be certain, no temperature would be best."""
_ROUNDED = -(2.0**-24)
"""The log-probability of what rounds to 1 in single precision, in which networks compute."""


@dataclass(frozen=True, slots=True, eq=False)
class Forecasts:
    """What a loss holds to be how probable, as finite log-odds (n,) float64, and whether it happened, (n,) bool."""

    log_odds: NDArray[Any]
    happened: NDArray[Any]

    def probabilities(self, temperature: float = 1.0) -> NDArray[Any]:
        """Return (n,), the probabilities by the log-odds divided by a temperature."""
        from scipy.special import expit  # scipy takes a while, and a plan needs none of it

        found: NDArray[Any] = expit(self.log_odds / temperature)
        return found


def presence_forecasts(log_odds: Tensor, labels: Tensor) -> Forecasts | None:
    """Return the forecasts of every class in every bag, from (B, C) each; None where one is not a number."""
    return None if bool(log_odds.isnan().any()) else _forecasts(log_odds.flatten(), labels.flatten())


def set_forecasts(log_prob: Tensor, right: Tensor) -> Forecasts | None:
    """Return the forecasts that the label set which a loss names for each bag is right; None where one is not a number.

    `log_prob` (B,) is of the named label sets, and `right` (B,) bool tells whether they are the true ones.
    """
    if bool(log_prob.isnan().any()):
        return None
    log_prob = log_prob.double().clamp(max=_ROUNDED)
    return _forecasts(log_prob - (-log_prob.expm1()).log(), right)


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


def fitted_temperature(forecasts: Forecasts) -> float:
    """Return the temperature for which the mean logarithmic score of the forecasts is best.

    The score is convex in the inverse of the temperature: there is one best.
    """
    against = np.where(forecasts.happened, -forecasts.log_odds, forecasts.log_odds)

    def cost(log_temperature: float) -> float:
        return float(np.logaddexp(0, against * math.exp(-log_temperature)).mean())

    return best_temperature(cost)


def best_temperature(cost: Callable[[float], float]) -> float:
    """Return the temperature whose logarithm has the smallest cost."""
    from scipy.optimize import minimize_scalar

    limit = math.log(LARGEST)
    return math.exp(float(minimize_scalar(cost, bounds=(-limit, limit), method="bounded", options={"xatol": 1e-3}).x))


def calibration(kind: str, splits: Mapping[Split, Forecasts]) -> tuple[dict[str, float], dict[str, list[Bin]]]:
    """Return the calibration errors of "presence" or "set" forecasts.

    The temperature is fitted on "validation", and without it there is none.

    Returns:
        Metrics by `split/metric`, with the temperature as `chosen/...`; and the bins behind those of test bags, by the
        metric without the split.
    """
    metrics: dict[str, float] = {}
    curves: dict[str, list[Bin]] = {}
    for split, forecasts in splits.items():
        bins = reliability_bins(forecasts.probabilities(), forecasts.happened)
        metrics[f"{split}/{kind}_ece"] = calibration_error(bins)
        if split == "test":
            curves[f"{kind}_ece"] = bins
    if "validation" in splits and "test" in splits:
        temperature = fitted_temperature(splits["validation"])
        bins = reliability_bins(splits["test"].probabilities(temperature), splits["test"].happened)
        metrics[f"chosen/{TEMPERATURES[kind]}"] = temperature
        metrics[f"test/{kind}_ece_tempered"] = calibration_error(bins)
        curves[f"{kind}_ece_tempered"] = bins
    return metrics, curves


def _forecasts(log_odds: Tensor, happened: Tensor) -> Forecasts:
    return Forecasts(log_odds.double().clamp(-_MOST, _MOST).numpy(), happened.numpy())
