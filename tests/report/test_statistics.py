"""The statistics against enumeration, simulation and sums done by hand."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from milbench.api.published import Rule
from milbench.report.statistics import (
    best_of,
    bootstrap_interval,
    holm,
    paired_comparison,
    paired_ratio,
    select_epochs,
    signed_rank_p,
    smallest_p,
    student_interval,
    tied_with_best,
    welch,
)


def history(cell: str = "one", **columns: list[float]) -> pd.DataFrame:
    rows = [(cell, epoch, name.replace("_", "/", 1), value) for name, values in columns.items()
            for epoch, value in enumerate(values, start=1)]  # fmt: skip
    return pd.DataFrame(rows, columns=["cell", "epoch", "metric", "value"])


def select_epoch(past: pd.DataFrame, rule: Rule, metric: str, lower_is_better: bool = True) -> int | None:
    """Return the epoch of the only cell."""
    return select_epochs(past, rule, metric, lower_is_better).get("one")


def test_epoch_rules_by_hand() -> None:
    past = history(test_error=[0.5, 0.2, 0.1, 0.3], validation_error=[0.4, 0.2, 0.3, 0.2])
    assert select_epoch(past, "last", "error") == 4
    assert select_epoch(past, "validation", "error") == 2, "the earlier of two equals"
    assert select_epoch(past, "test", "error") == 3
    assert select_epoch(past, "validation", "error", lower_is_better=False) == 1


def test_a_validation_value_that_never_changes_chooses_nothing_and_the_last_epoch_stands() -> None:
    past = history(test_error=[1.0, 1.0, 1.0], validation_error=[1.0, 1.0, 1.0])
    assert select_epoch(past, "validation", "error") == 3
    assert select_epoch(past, "test", "error") == 1
    assert select_epoch(history(test_error=[1.0, 0.9], validation_error=[1.0, math.nan]), "validation", "error") == 1


def test_epoch_rules_do_not_depend_on_the_order_of_rows() -> None:
    past = history(test_error=[0.5, 0.2, 0.1, 0.3], validation_error=[0.4, 0.2, 0.3, 0.2]).iloc[::-1]
    assert [select_epoch(past, rule, "error") for rule in ("last", "validation", "test")] == [4, 2, 3]


def test_epochs_that_are_not_finite_are_passed_over_except_the_last() -> None:
    past = history(test_error=[0.5, 0.4, math.nan], validation_error=[math.nan, math.inf, math.nan])
    assert select_epoch(past, "last", "error") == 3
    assert select_epoch(past, "validation", "error") is None
    assert select_epoch(past, "test", "error") == 2
    assert select_epoch(past, "test", "error", lower_is_better=False) == 1
    minus = history(test_error=[0.5, 0.4], validation_error=[-math.inf, 0.1])
    assert select_epoch(minus, "validation", "error") == 2


def test_an_epoch_without_a_test_value_is_no_candidate() -> None:
    past = history(test_error=[0.5, 0.4], validation_error=[0.3, 0.2, 0.1])
    assert select_epoch(past, "validation", "error") == 2
    assert select_epoch(history(train_loss=[1.0]), "last", "error") is None


def test_the_epoch_of_a_cell_does_not_depend_on_other_cells() -> None:
    several = pd.concat([
        history("falls", test_error=[0.5, 0.2, 0.3], validation_error=[0.4, 0.1, 0.2]),
        history("flat", test_error=[0.9, 0.1, 0.8], validation_error=[0.3, 0.3, 0.3]),
        history("unjudged", test_error=[0.1, 0.2], validation_error=[math.nan, math.nan]),
        history("untested", validation_error=[0.1, 0.2]),
    ]).sample(frac=1, random_state=0)  # fmt: skip
    assert dict(select_epochs(several, "last", "error")) == {"falls": 3, "flat": 3, "unjudged": 2}
    assert dict(select_epochs(several, "validation", "error")) == {"falls": 2, "flat": 3}
    assert dict(select_epochs(several, "test", "error")) == {"falls": 2, "flat": 2, "unjudged": 1}


@pytest.mark.parametrize("values", [[0.1, 0.5, 0.2], [1.0, 2.0, 4.0, 8.0, 16.0], [3.0, 3.0, 5.0, 1.0]])
def test_bootstrap_agrees_with_the_enumeration_of_all_resamples(values: list[float]) -> None:
    means = np.sort([np.mean(resample) for resample in itertools.product(values, repeat=len(values))])
    low, high = bootstrap_interval(values)
    # The quantiles of 9,999 random resamples lie within half a per cent of theirs but once in a thousand.
    exact = [np.quantile(means, level, method="inverted_cdf") for level in (0.020, 0.030, 0.970, 0.980)]
    assert exact[0] - 1e-12 <= low <= exact[1] + 1e-12
    assert exact[2] - 1e-12 <= high <= exact[3] + 1e-12


def test_bootstrap_of_three_spans_their_range_which_covers_three_times_in_four() -> None:
    # All three resamples equal the smallest with probability 1/27 > 2.5 %: the interval is [min, max], and the mean of
    # a symmetric distribution lies outside when all three fall on one side of it, 2 / 2^3 of the time.
    assert bootstrap_interval([0.3, 0.1, 0.2]) == pytest.approx((0.1, 0.3))
    rng = np.random.default_rng(0)
    covered = [low <= 0 <= high for low, high in (bootstrap_interval(rng.normal(size=3)) for _ in range(300))]
    assert np.mean(covered) == pytest.approx(0.75, abs=0.1)


def test_student_interval_by_hand_and_by_simulation() -> None:
    # Mean 2, standard error 1 / sqrt(3), t with two degrees of freedom 4.30265.
    assert student_interval([1.0, 2.0, 3.0]) == pytest.approx((2 - 4.30265 / 3**0.5, 2 + 4.30265 / 3**0.5), abs=1e-4)
    rng = np.random.default_rng(0)
    covered = [low <= 0 <= high for low, high in (student_interval(rng.normal(size=3)) for _ in range(1000))]
    assert np.mean(covered) == pytest.approx(0.95, abs=0.025)


@pytest.mark.parametrize("interval", [bootstrap_interval, student_interval])
def test_intervals_of_too_little(interval: Callable[[list[float]], tuple[float, float]]) -> None:
    for values in ([], [0.5], [0.5, math.nan], [0.5, math.inf]):
        assert all(map(math.isnan, interval(values)))
    assert interval([0.25, 0.25, 0.25]) == (0.25, 0.25)


def enumerated_p(differences: list[float]) -> float:
    """Wilcoxon's signed-rank test from its definition: every pattern of signs is equally likely."""
    kept = [d for d in differences if d]
    sizes = sorted(abs(d) for d in kept)
    ranks = [float(np.mean([i + 1 for i, size in enumerate(sizes) if size == abs(d)])) for d in kept]
    centre = sum(ranks) / 2
    observed = abs(sum(r for r, d in zip(ranks, kept, strict=True) if d > 0) - centre)
    patterns = list(itertools.product((0, 1), repeat=len(kept)))
    sums: list[float] = [abs(sum(r * s for r, s in zip(ranks, signs, strict=True)) - centre) for signs in patterns]
    return float(np.mean([s >= observed - 1e-9 for s in sums]))


@pytest.mark.parametrize(
    "differences",
    [[1, 2, 3], [1, -2, 3, 4], [1, 1, 1, -1, 2], [1, -1, 2, 0], [5, -4, 3, -2, 1, 6], [2, 2, 2, 2, 2, 2, 2, -2]],
)
def test_signed_rank_p_by_enumeration_of_signs(differences: list[float]) -> None:
    assert signed_rank_p(differences) == pytest.approx(enumerated_p(differences))
    assert signed_rank_p([-d for d in differences]) == pytest.approx(enumerated_p(differences))


def test_signed_rank_p_of_nothing_and_of_ties_hidden_by_rounding() -> None:
    assert signed_rank_p([0.0, 0.0]) == signed_rank_p([]) == signed_rank_p([0.0, 0.3]) == 1.0
    assert signed_rank_p([0.3 - 0.2, 0.2 - 0.1, -0.1]) == pytest.approx(enumerated_p([1, 1, -1]))


@pytest.mark.parametrize("seeds", [2, 3, 5, 10, 15])
def test_the_smallest_p_is_reached_and_not_passed(seeds: int) -> None:
    assert signed_rank_p(np.arange(1, seeds + 1)) == pytest.approx(smallest_p(seeds))
    assert smallest_p(5) == 0.0625


def test_holm_by_hand() -> None:
    # Sorted 0.01, 0.02, 0.03, 0.04: times 4, 3, 2, 1 gives 0.04, 0.06, 0.06, 0.04; never less than the one before.
    assert holm([0.04, 0.01, 0.03, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    adjusted = holm([0.02, math.nan, 0.04])
    assert adjusted[0] == pytest.approx(0.04)
    assert math.isnan(adjusted[1])
    assert adjusted[2] == pytest.approx(0.04)
    assert holm([]) == []


def test_pairs_are_the_seeds_that_both_have() -> None:
    paired = paired_comparison(pd.Series({0: 0.5, 1: 0.4, 3: 0.9}), pd.Series({3: 0.3, 1: 0.2, 2: 0.0}))
    assert paired.seeds == 2
    assert paired.difference == pytest.approx(0.4)
    assert paired.bootstrap == pytest.approx((0.2, 0.6))
    assert paired.p == 0.5


@pytest.mark.parametrize(("common", "seeds"), [({1: 0.4}, 1), ({7: 0.4}, 0)])
def test_no_test_of_fewer_than_two_pairs(common: dict[int, float], seeds: int) -> None:
    paired = paired_comparison(pd.Series(common), pd.Series({0: 0.1, 1: 0.2}))
    assert paired.seeds == seeds
    assert math.isnan(paired.p)
    assert all(map(math.isnan, paired.bootstrap + paired.student))


def seeds(*values: float) -> pd.Series[float]:
    return pd.Series(dict(enumerate(values)))


def test_tied_and_worse() -> None:
    ranking = tied_with_best({
        "near": seeds(0.012, 0.009, 0.011),
        "best": seeds(0.010, 0.011, 0.009),
        "far": seeds(0.080, 0.082, 0.079),
    })  # fmt: skip
    assert ranking.best == "best"
    assert ranking.verdicts == {"best": "best", "near": "tied", "far": "worse"}
    assert ranking.paired["far"].p == 0.25, "three seeds cannot reach below"
    assert ranking.paired["far"].p_holm == 0.5


def test_higher_is_better_turns_best_and_worse() -> None:
    groups = {"low": seeds(0.1, 0.11, 0.09), "high": seeds(0.9, 0.92, 0.91)}
    ranking = tied_with_best(groups, lower_is_better=False)
    assert ranking.best == "high"
    assert ranking.verdicts["low"] == "worse"


def test_a_lucky_seed_of_a_group_that_failed_elsewhere_does_not_win() -> None:
    ranking = tied_with_best({"whole": seeds(0.3, 0.2, 0.2), "rest": pd.Series({1: 0.01}), "none": seeds()})
    assert ranking.best == "whole"
    assert ranking.verdicts == {"whole": "best", "rest": "unclear"}


def test_a_group_that_is_better_on_the_common_seeds_is_called_so() -> None:
    ranking = tied_with_best({"whole": seeds(0.5, 0.52, 0.51, 0.5), "part": seeds(0.1, 0.12, 0.11)})
    assert ranking.verdicts["part"] == "better"


def test_one_seed_gives_no_verdict_and_no_values_give_no_best() -> None:
    ranking = tied_with_best({"a": seeds(0.1), "b": seeds(0.9)})
    assert ranking.verdicts == {"a": "best", "b": "unclear"}
    assert tied_with_best({"a": seeds()}).best is None
    assert tied_with_best({}).best is None


def test_losses_that_do_not_differ_are_rarely_called_worse() -> None:
    rng = np.random.default_rng(3)
    wrong = 0
    for _ in range(40):
        groups = {name: seeds(*rng.normal(size=5)) for name in "abcd"}
        wrong += "worse" in tied_with_best(groups).verdicts.values()
    # Comparing with the best of four is a little more than 5 %, since the best is chosen on the same seeds.
    assert wrong / 40 < 0.2


@pytest.mark.parametrize("other", [[2.0, 4.0, 4.5, 7.0], [1.0, 1.1]])
def test_welch_from_a_summary_is_welch_on_the_values(other: list[float]) -> None:
    values = [1.0, 2.0, 2.5]
    found = welch(values, float(np.mean(other)), float(np.std(other, ddof=1)), len(other))
    test = stats.ttest_ind(values, other, equal_var=False)
    assert found.p == pytest.approx(test.pvalue)
    assert found.interval == pytest.approx(tuple(test.confidence_interval()))


def test_welch_against_a_number_is_students_test() -> None:
    values = [1.0, 2.0, 2.5]
    found = welch(values, 1.2)
    assert found.p == pytest.approx(stats.ttest_1samp(values, 1.2).pvalue)
    assert found.interval == pytest.approx(tuple(bound - 1.2 for bound in student_interval(values)))
    assert welch([0.1, 0.1, 0.1], 0.1).p == 1
    assert welch([0.1, 0.1, 0.1], 0.2).p == 0


def test_the_best_of_one_further_draw_is_a_prediction() -> None:
    # A further draw less the mean, over s * sqrt(1 + 1/n), has Student's distribution with n - 1 degrees.
    values = np.array([1.0, 2.0, 4.0, 5.0])
    for best in (-3.0, 2.0, 9.0):
        t = (best - 3) / (values.std(ddof=1) * math.sqrt(1 + 1 / 4))
        assert best_of(values, best, 1).p == pytest.approx(2 * stats.t.sf(abs(t), 3), abs=0.01)
        assert best_of(values, best, 1, lower_is_better=False).p == pytest.approx(2 * stats.t.sf(abs(t), 3), abs=0.01)


@pytest.mark.parametrize("sign", [1, -1])
def test_the_best_of_many_further_draws_is_an_extreme_of_theirs(sign: int) -> None:
    # With so many values that mean and spread are all but known: P(smallest of 10 <= x) = 1 - sf(x)^10.
    values = stats.norm.ppf((np.arange(4000) + 0.5) / 4000)
    found = best_of(values, sign * -2.2, 10, lower_is_better=sign == 1)
    below = 1 - stats.norm.sf(-2.2) ** 10
    assert found.p == pytest.approx(2 * below, abs=0.01)
    assert sign * found.difference == pytest.approx(stats.norm.isf(0.5**0.1) + 2.2, abs=0.01)


def test_a_ratio_resamples_seeds_and_not_values() -> None:
    above, below = pd.Series([1.0, 4.0, 3.0, 9.0], [0, 1, 2, 7]), pd.Series([2.0, 4.0, 5.0, 1.0], [0, 1, 2, 5])
    found = paired_ratio(above, below)
    assert found.seeds == 3
    assert found.value == pytest.approx(8 / 11)
    # Of the 27 resamples each extreme has a share of 1/27 > 2.5 %: the interval goes from end to end.
    picks = [list(pick) for pick in itertools.product(range(3), repeat=3)]
    ratios = [above.to_numpy()[:3][p].mean() / below.to_numpy()[:3][p].mean() for p in picks]
    assert found.interval == pytest.approx((min(ratios), max(ratios)))
    assert paired_ratio(above, 2 * above).interval == pytest.approx((0.5, 0.5)), "what goes together stays together"
    assert math.isnan(paired_ratio(above, below - 4).interval[0]), "a denominator that may be zero"
    assert paired_ratio(above[:1], below[:1]).value == 0.5
    assert math.isnan(paired_ratio(above[:1], below[1:]).value)
