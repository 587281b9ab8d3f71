"""Reliability: how often forecast events happen, in bins of similar forecast probability.

The bins are plain data, which reports read without torch.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from milbench.errors import UsageError

RELIABILITY_FILE = "reliability.json"
"""The name of a cell's file with the bins of test bags."""
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


def save_reliability(path: Path, curves: Mapping[str, Sequence[Bin]]) -> None:
    """Write the bins of one cell, by the name of a metric without the split: "presence_ece"."""
    content = {}
    for name, bins in curves.items():
        content[name] = [asdict(group) for group in bins]
    path.write_text(json.dumps(content, allow_nan=False) + "\n", "utf-8")


def load_reliability(path: Path) -> dict[str, list[Bin]]:
    """Read the bins that `save_reliability` wrote.

    Raises UsageError where the file is missing or damaged.
    """
    from pydantic import TypeAdapter

    try:
        return TypeAdapter(dict[str, list[Bin]]).validate_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise UsageError(f"reliability {path} cannot be read: {error}") from None
