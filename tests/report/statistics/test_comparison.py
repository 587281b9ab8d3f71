"""Verdicts that follow from intervals, by hand."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from milbench.report.statistics import Difference, PairwiseComparison, compare


def seeds(*values: float) -> pd.Series[float]:
    return pd.Series(dict(enumerate(values)))


def of_intervals(lower_is_better: bool = True, margin: float | None = None) -> PairwiseComparison[str]:
    """Return three losses: b - a lies below zero, c - a above, c - b is not known by its sign."""
    intervals = {("a", "b"): (0.01, 0.03), ("a", "c"): (-0.09, -0.01), ("b", "c"): (-0.04, 0.005)}
    differences = {pair: Difference(5, sum(bounds) / 2, bounds) for pair, bounds in intervals.items()}
    return PairwiseComparison("b", differences, lower_is_better, margin)


def test_a_verdict_is_the_side_of_zero_on_which_the_interval_lies() -> None:
    found = of_intervals()
    assert (found.verdict("a", "b"), found.verdict("b", "a")) == ("worse", "better")
    assert (found.verdict("c", "a"), found.verdict("a", "c")) == ("worse", "better")
    assert found.verdict("b", "c") == found.verdict("c", "b") == "unresolved"
    assert (of_intervals(lower_is_better=False).verdict("a", "b")) == "better"
    assert found.difference("b", "a").interval == (-0.03, -0.01)
    assert found.difference("b", "a").difference == pytest.approx(-0.02)


def test_a_loss_that_is_worse_than_any_other_is_not_the_best() -> None:
    found = of_intervals()
    assert {key: found.better_than(key) for key in "abc"} == {"a": ["b"], "b": [], "c": ["a"]}


def test_equivalent_is_an_interval_inside_the_margin_whatever_its_sign() -> None:
    assert not of_intervals().equivalent("a", "b"), "no margin was given"
    found = of_intervals(margin=0.035)
    assert found.equivalent("a", "b")
    assert found.equivalent("b", "a")
    assert not found.equivalent("b", "c"), "-0.04 is outside"
    assert found.verdict("a", "b") == "worse"


def test_a_wide_difference_is_resolved_and_a_narrow_one_is_not() -> None:
    found = compare({
        "near": seeds(0.012, 0.009, 0.011, 0.012, 0.010),
        "best": seeds(0.010, 0.011, 0.009, 0.011, 0.010),
        "far": seeds(0.080, 0.082, 0.079, 0.081, 0.080),
    })  # fmt: skip
    assert found.best == "best"
    assert found.verdict("near", "best") == "unresolved"
    assert found.verdict("far", "best") == found.verdict("far", "near") == "worse"


def test_higher_is_better_turns_best_and_worse() -> None:
    found = compare({"low": seeds(0.1, 0.11, 0.09), "high": seeds(0.9, 0.92, 0.91)}, lower_is_better=False)
    assert found.best == "high"
    assert found.verdict("low", "high") == "worse"


def test_a_lucky_seed_of_a_group_that_failed_elsewhere_does_not_win() -> None:
    found = compare({"whole": seeds(0.3, 0.2, 0.2), "rest": pd.Series({1: 0.01}), "none": seeds()})
    assert found.best == "whole"
    assert found.keys == ["whole", "rest"]
    assert found.verdict("rest", "whole") == "unresolved"
    assert found.difference("rest", "whole").seeds == 1


def test_a_group_that_is_better_on_the_common_seeds_is_called_so() -> None:
    found = compare({"whole": seeds(0.5, 0.52, 0.51, 0.5), "part": seeds(0.1, 0.13, 0.11)})
    assert (found.best, found.verdict("part", "whole")) == ("whole", "better")


def test_two_seeds_resolve_nothing_and_no_values_have_no_best() -> None:
    found = compare({"a": seeds(0.1, 0.1), "b": seeds(0.9, 0.8)}, margin=5.0)
    assert found.verdict("b", "a") == "unresolved"
    assert not found.equivalent("b", "a")
    assert math.isnan(found.difference("b", "a").interval[0])
    assert compare({"a": seeds()}).best is None
    assert compare({}).best is None
    alone = compare({"a": seeds(0.1)})
    assert (alone.best, alone.keys, alone.better_than("a")) == ("a", ["a"], [])
