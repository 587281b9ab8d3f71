"""Reliability: how often forecast events happen, in bins of similar forecast probability.

The bins are plain data, which reports read without torch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

BINS = 15
"""How many bins of equal mass the forecasts of one cell are put into."""


@dataclass(frozen=True, slots=True)
class Bin:
    """Forecasts of similar probability."""

    index: int
    """The index of the bin among the `BINS` bins; bin 0 has the lowest probabilities."""
    count: int
    """How many forecasts the bin has, at least 1.

    Some bins may be empty, since equal forecasts are not split; empty bins are left out.
    """
    probability: float
    """The mean of the forecast probabilities."""
    frequency: float
    """The share of the forecasts whose event happened."""


def calibration_error(bins: Sequence[Bin]) -> float:
    """Return the expected calibration error of forecasts.

    It is the mean over bins, weighted by their counts, of |frequency - probability|.
    """
    total = sum(group.count for group in bins)
    distances = sum(group.count * abs(group.frequency - group.probability) for group in bins)
    # Further digits are rounding errors of the sums.
    return round(distances / total, 12)
