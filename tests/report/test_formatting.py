"""Numbers and names as the report writes them."""

from __future__ import annotations

import math

import pytest

from milbench.api.metric_info import METRICS, Metric
from milbench.report.formatting import interval, measured, p_value

ERROR = METRICS["instance_error"]


@pytest.mark.parametrize(
    ("mean", "spread", "metric", "text"),
    [
        (0.0052, 0.0004, ERROR, "0.52 ± 0.04"),
        (0.08, 0.016, ERROR, "8.0 ± 1.6"),
        (0.78, 0.12, ERROR, "78 ± 12"),
        (0.0052, math.nan, ERROR, "0.52"),
        (0.5234, math.nan, ERROR, "52.3"),
        (0.5, 0.0, ERROR, "50.0 ± 0"),
        (0.98765, 0.004, METRICS["auroc"], "0.988 ± 0.004"),
        (-0.0012, 0.0008, ERROR, "−0.12 ± 0.08"),
        (math.nan, math.nan, ERROR, "—"),
        (math.inf, math.nan, ERROR, "∞"),
    ],
)
def test_measured(mean: float, spread: float, metric: Metric, text: str) -> None:
    assert measured(mean, spread, metric) == text


def test_intervals_and_p_values() -> None:
    assert interval((0.0048, 0.0057), 0.0052, ERROR) == "0.48 to 0.57"
    assert interval((-0.0048, 0.0057), 0.0052, ERROR, signed=True) == "−0.5 to +0.6"
    assert interval((math.nan, math.nan), 0.5, ERROR) == "—"
    assert [p_value(p) for p in (0.0625, 0.25, 1.0, 0.00012, math.nan)] == ["0.062", "0.25", "1", "< 0.001", "—"]
