"""Reliability: how often what was given a probability happens, in bins of forecasts; plain data, also for reports."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from milbench.errors import UsageError

RELIABILITY_FILE = "reliability.json"
"""The file of the bins of test bags."""
BINS = 15
"""How many bins of equal mass the forecasts of one cell are put into."""


@dataclass(frozen=True, slots=True)
class Bin:
    """Forecasts of similar probability."""

    index: int
    """Its place among the `BINS` bins; 0 is the least probable."""
    count: int
    """How many forecasts it has, at least 1. Bins stay empty where many forecasts are equal, and are left out."""
    probability: float
    """The mean of the forecast probabilities."""
    frequency: float
    """The share of the forecasts whose event happened."""


def calibration_error(bins: Sequence[Bin]) -> float:
    """Return the expected calibration error: the mean distance of frequency and probability, weighted by counts."""
    total = sum(group.count for group in bins)
    distances = sum(group.count * abs(group.frequency - group.probability) for group in bins)
    # Further digits are those of rounding in the sums.
    return round(distances / total, 12)


def save_reliability(path: Path, curves: Mapping[str, Sequence[Bin]]) -> None:
    """Write the bins of one cell, by the metric's name without the split, such as "presence_ece"."""
    content = {}
    for name, bins in curves.items():
        content[name] = [asdict(group) for group in bins]
    path.write_text(json.dumps(content, allow_nan=False) + "\n", "utf-8")


def load_reliability(path: Path) -> dict[str, list[Bin]]:
    """Read what `save_reliability` wrote. Raises UsageError where the file is missing or damaged."""
    from pydantic import TypeAdapter

    try:
        return TypeAdapter(dict[str, list[Bin]]).validate_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise UsageError(f"reliability {path} cannot be read: {error}") from None
