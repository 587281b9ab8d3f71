"""Numbers and names as the report writes them."""

from __future__ import annotations

import math

import pytest

from milbench.api.metric_info import METRICS, Metric, describe
from milbench.report.formatting import interval, latex, markdown, measured, p_value, seconds, shortened, size, slug
from milbench.report.study import seeds_named

ERROR = METRICS["instance_error"]


@pytest.mark.parametrize(
    ("mean", "spread", "metric", "text"),
    [
        (0.0052, 0.0004, ERROR, "0.52 ± 0.04"),
        (0.08, 0.016, ERROR, "8.0 ± 1.6"),
        (0.78, 0.12, ERROR, "78 ± 12"),
        (0.00521, 0.00001, ERROR, "0.521 ± 0.001"),
        (0.0052, math.nan, ERROR, "0.52"),
        (0.5234, math.nan, ERROR, "52.3"),
        (0.5, 0.0, ERROR, "50.0 ± 0"),
        (0.98765, 0.004, METRICS["auroc"], "0.988 ± 0.004"),
        (0.98765, math.nan, METRICS["auroc"], "0.988"),
        (-0.0012, 0.0008, ERROR, "−0.12 ± 0.08"),
        (math.nan, math.nan, ERROR, "—"),
        (math.inf, math.nan, ERROR, "∞"),
    ],
)
def test_measured(mean: float, spread: float, metric: Metric, text: str) -> None:
    assert measured(mean, spread, metric) == text


def test_intervals_and_p_values() -> None:
    assert interval((0.0048, 0.0057), 0.0052, 0.0004, ERROR) == "[0.48,\u00a00.57]"
    assert interval((-0.0048, 0.0057), 0.0052, 0.0004, ERROR, signed=True) == "[−0.48,\u00a0+0.57]"
    assert interval((math.nan, math.nan), 0.5, math.nan, ERROR) == "—"
    assert [p_value(p) for p in (0.0625, 0.25, 1.0, 0.00012, math.nan)] == ["0.0625", "0.25", "1", "< 0.001", "—"]


def test_units() -> None:
    assert [seconds(s) for s in (0, 4.2e-7, 0.0123, 1, 59.99, 200, 7500, math.nan)] == [
        "0 µs", "0.420 µs", "12.3 ms", "1.00 s", "60.0 s", "3 min 20 s", "2 h 5 min", "—",
    ]  # fmt: skip
    assert [size(b) for b in (0, 512, 1250, 999_900, 1.25e6, 3e9, 5e12)] == [
        "0 B", "512 B", "1.25 kB", "1.00 MB", "1.25 MB", "3.00 GB", "5000 GB",
    ]  # fmt: skip


def test_names() -> None:
    assert seeds_named([1]) == "seed 1"
    assert seeds_named([3, 1, 2, 0]) == "seeds 0-3"
    assert seeds_named([0, 1, 4, 5, 6]) == "seeds 0, 1, 4-6"
    assert slug("Extended MNIST, n=2") == "extended-mnist-n-2"
    assert slug("损失") == "unnamed"
    assert shortened("a\nb  c", 10) == "a b c"
    assert shortened("x" * 20, 10) == "x" * 9 + "…"
    assert markdown("a|b\n<i>_c_") == r"a\|b &lt;i&gt;\_c\_"
    assert latex("50% & a_b ± 1") == r"50\% \& a\_b $\pm$ 1"


def test_a_metric_that_milbench_does_not_know_is_shown_as_it_is() -> None:
    assert describe("mean_depth").heading == "mean depth ↓"
    assert describe("auroc").lower_is_better is False
