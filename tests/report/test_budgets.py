"""The error to expect of a search with n draws, which takes the best of them by validation.

It is compared with enumeration, known distributions and simulated searches.
"""

import math
from collections.abc import Sequence
from itertools import combinations, permutations
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.special import expit

from milbench.report.budgets import budget_curves, budget_lines, budget_table
from milbench.report.statistics.expected_choice import DrawsOfLoss, curves, expected_choice
from milbench.report.study import Study
from milbench.store.results import Results
from tests._helpers.search_results import CHOOSES, Trained, results_of

LUCKY_VALIDATION = [0.3, 0.1, 0.2, 0.5]
LUCKY_TEST = [0.25, 0.4, 0.15, 0.6]
"""The errors of four draws: the draw with the least validation error has a large test error."""


def draws(
    validation: Sequence[float], test: Sequence[float], points: Sequence[int] = (), loss: str = "a"
) -> DrawsOfLoss:
    """Return the draws of a loss.

    `points` has the point of each draw: the values that it takes from the ranges of the search.
    Draws of one point differ in settings that are listed. Without `points` each draw is a point of
    its own.
    """
    own_points = points or range(len(validation))
    return DrawsOfLoss(loss, np.array(validation), np.array(test), np.array(own_points))


def choice(tried: Sequence[int], validation: Sequence[float], test: Sequence[float]) -> float:
    """Return the test value of the chosen draw, if these draws are tried in this order."""
    best = tried[0]
    for draw in tried[1:]:
        if validation[draw] < validation[best]:
            best = draw
    return test[best]


@pytest.mark.parametrize("budget", [1, 2, 3, 4])
def test_the_expected_choice_is_the_mean_over_all_sets_of_draws(budget: int) -> None:
    sets = combinations(range(4), budget)
    every = [choice(tried, LUCKY_VALIDATION, LUCKY_TEST) for tried in sets]
    found = expected_choice(draws(LUCKY_VALIDATION, LUCKY_TEST), budget)
    assert found == pytest.approx(np.mean(every))


@pytest.mark.parametrize("budget", [1, 2, 3, 4, 5])
def test_of_equal_draws_the_one_tried_first_is_chosen(budget: int) -> None:
    validation = [0.2, 0.1, 0.1, 0.2, 0.1]
    test = [0.3, 0.1, 0.2, 0.5, 0.6]
    every = [choice(tried, validation, test) for tried in permutations(range(5), budget)]
    assert expected_choice(draws(validation, test), budget) == pytest.approx(np.mean(every))


@pytest.mark.parametrize("budget", [1, 2, 4, 8])
def test_the_expected_choice_is_unbiased_for_a_known_population(budget: int) -> None:
    # The least of n values that are uniform between 0 and 1 is 1 / (n + 1) on average.
    searches = np.random.default_rng(0).random((4000, 8))
    found = [expected_choice(draws(values, values), budget) for values in searches]
    standard_error = float(np.std(found)) / math.sqrt(len(found))
    assert np.mean(found) == pytest.approx(1 / (budget + 1), abs=4 * standard_error)


def test_a_failed_draw_is_chosen_only_among_failed_ones() -> None:
    # One draw in three is the failed one. Every set of two draws has a draw that did not fail.
    found = draws([0.1, 0.2, math.inf], [0.3, 0.5, 0.9])
    assert expected_choice(found, 1) == pytest.approx((0.3 + 0.5 + 0.9) / 3)
    assert expected_choice(found, 2) == pytest.approx((0.3 + 0.3 + 0.5) / 3)


def test_a_failed_draw_with_an_unknown_error_makes_the_expectation_unknown() -> None:
    found = draws([0.1, 0.2, math.inf], [0.3, 0.5, math.nan])
    assert math.isnan(expected_choice(found, 1))
    assert expected_choice(found, 2) == pytest.approx((0.3 + 0.3 + 0.5) / 3)


def test_draws_of_one_point_count_once_in_a_band() -> None:
    once = curves([draws([0.1, 0.2, 0.3], [0.1, 0.2, 0.4])])
    repeated = draws(
        validation=[0.1, 0.1, 0.2, 0.2, 0.3, 0.3],
        test=[0.1, 0.1, 0.2, 0.2, 0.4, 0.4],
        points=[0, 0, 1, 1, 2, 2],
    )
    twice = curves([repeated])
    columns = ["expected", "low", "high"]
    assert twice[columns].iloc[0].tolist() == pytest.approx(once[columns].iloc[0].tolist())


def test_the_band_of_one_draw_is_the_interval_of_a_mean() -> None:
    # Bands are computed on a logit scale. It is almost linear between values so close together.
    values = [0.30, 0.301, 0.299, 0.3005, 0.2998, 0.3011]
    row = curves([draws(values, values)]).iloc[0]
    expected = stats.t.interval(0.95, 5, np.mean(values), stats.sem(values))
    assert [row["low"], row["high"]] == pytest.approx(expected, abs=2e-6)


def test_bands_on_a_log_scale_come_from_a_jackknife_of_logarithms() -> None:
    values = [0.5, 0.6, 0.7, 0.8, 0.9, 0.95]
    row = curves([draws(values, values)], scale="log").iloc[0]
    # For a budget of one draw the mean is expected. The jackknife leaves out one of the six values
    # at a time.
    means_of_five = (np.sum(values) - np.array(values)) / 5
    logs = np.log(means_of_five)
    standard_error = math.sqrt(5 / 6 * ((logs - logs.mean()) ** 2).sum())
    half_width = stats.t.ppf(0.975, 5) * standard_error
    middle = math.log(np.mean(values))
    expected = [math.exp(middle - half_width), math.exp(middle + half_width)]
    assert [row["low"], row["high"]] == pytest.approx(expected)


def test_one_draw_has_no_band() -> None:
    row = curves([draws([0.1], [0.2])]).iloc[0]
    assert row["expected"] == 0.2
    assert math.isnan(row["low"])
    assert math.isnan(row["high"])


def test_bands_hold_the_expected_error_where_draws_have_an_error_of_zero() -> None:
    all_zero = draws([0.0, 0.0, 0.0], [0.0, 0.0, 0.0])
    one_zero = draws([0.1, 0.0, 0.2], [0.1, 0.0, 0.2], loss="b")
    found = curves([all_zero, one_zero])
    assert (found["low"] <= found["expected"]).all()
    assert (found["expected"] <= found["high"]).all()
    # Three draws have a row for a budget of 1 and one for a budget of 2.
    assert curves([all_zero])["high"].tolist() == [0.0, 0.0]


def simulated(rng: np.random.Generator, losses: int, points: int) -> list[DrawsOfLoss]:
    """Return the draws of losses in a search for a learning rate and a setting of two values.

    All losses try the same rates, each with both values of the listed setting; the second value
    makes the error a little larger. The error of a loss is smallest at a rate of its own, and
    training collapses above another rate.
    """
    rates = np.repeat(rng.random(points), 2)
    cost_of_setting = np.tile([0.0, 0.2], points)
    point_of_draw = np.repeat(np.arange(points), 2)
    found = []
    for loss in range(losses):
        best_rate = 0.3 + 0.4 * spread(loss, 0.37)
        # Errors are logits until the end. The least error is 8 % to 27 %, and training that
        # collapses has 95 %.
        least = -2.5 + 1.5 * spread(loss, 0.61)
        noise = 0.15 * rng.normal(size=2 * points)
        error = least + 8 * (rates - best_rate) ** 2 + cost_of_setting + noise
        largest_rate = 0.75 + 0.4 * spread(loss, 0.23)
        error[rates > largest_rate] = 3.0
        validation = error + 0.1 * rng.normal(size=2 * points)
        found.append(DrawsOfLoss(str(loss), expit(validation), expit(error), point_of_draw))
    return found


def spread(loss: int, step: float) -> float:
    """Return a number from 0 to 1 for a loss.

    Different steps give the losses different orders.
    """
    return loss * step % 1


def coverage(losses: int, points: int, searches: int) -> pd.DataFrame:
    """Return for each budget how often bands hold the truth, and how wide they are.

    The truth is the mean over all simulated searches of the expected error.
    """
    rng = np.random.default_rng(losses)
    every = [curves(simulated(rng, losses, points)) for _ in range(searches)]
    together = pd.concat(every)
    truth = together.groupby(["loss", "draws"])["expected"].mean().rename("truth")
    together = together.join(truth, on=["loss", "draws"])
    holds = (together["low"] <= together["truth"]) & (together["truth"] <= together["high"])
    width = together["high"] - together["low"]
    return (
        together.assign(holds=holds, width=width)
        .groupby("draws")[["truth", "holds", "width"]]
        .mean()
    )


def test_bands_hold_the_mean_over_many_searches() -> None:
    found = coverage(losses=5, points=8, searches=80)
    assert (found["holds"] > 0.9).all()


@pytest.mark.simulation
@pytest.mark.parametrize("losses", [1, 3, 9])
@pytest.mark.parametrize("points", [4, 8])
def test_how_often_bands_hold_the_truth(points: int, losses: int) -> None:
    print(f"{2 * points} draws, {losses} losses")
    found = coverage(losses, points, searches=500)
    print(found.round(3))
    # Other cases are only printed: bands from few draws are too narrow where no draw collapsed.
    if points == 8 and losses > 1:
        assert (found["holds"] > 0.9).all()


def searched(errors: dict[str, list[float]], **spec: Any) -> Results:
    """Return the results of a search.

    Args:
        errors: loss -> the error of each draw, the same on validation and test bags.
        spec: fields of the spec.
    """
    cells = []
    for loss, errors_of_loss in errors.items():
        for number, error in enumerate(errors_of_loss):
            values = {CHOOSES: error, "test/set_error": error}
            # A search trains all its draws with one seed; any number does.
            cells.append(Trained(loss, values, draw=number, seed=2000))
    return results_of(cells, **spec)


def test_the_budgets_of_a_curve_double_up_to_the_number_of_draws() -> None:
    found = budget_curves(Study(searched({"a": [0.1] * 5, "b": [0.2] * 2})), "t")
    assert found.groupby("loss")["draws"].agg(list).to_dict() == {"a": [1, 2, 4], "b": [1, 2]}


def test_without_a_search_there_is_no_curve() -> None:
    study = Study(results_of([Trained("a", {"test/set_error": 0.1})]))
    assert budget_curves(study, "t").empty
    assert list(budget_curves(study, "t").columns) == ["loss", "draws", "expected", "low", "high"]
    assert budget_table(study, "t") is None
    assert budget_lines(study, "t") == []


def test_finalists_count_with_the_first_seed_alone() -> None:
    # Draw 0 is a finalist: it is trained with a second seed.
    cells = [
        Trained("a", {CHOOSES: 0.2, "test/set_error": 0.2}, draw=0, seed=2000),
        Trained("a", {CHOOSES: 0.4, "test/set_error": 0.4}, draw=1, seed=2000),
        Trained("a", {CHOOSES: 0.9, "test/set_error": 0.9}, draw=0, seed=2001),
    ]
    found = budget_curves(Study(results_of(cells)), "t")
    assert found["expected"].tolist() == pytest.approx([0.3, 0.2])


def test_draws_that_are_still_to_come_do_not_count() -> None:
    done = Trained("a", {CHOOSES: 0.2, "test/set_error": 0.2}, draw=0)
    to_come = Trained("a", draw=1, status="missing")
    results = results_of([done, to_come])
    assert budget_curves(Study(results), "t")["expected"].tolist() == [0.2]


def test_a_failed_draw_counts_with_the_error_of_no_skill() -> None:
    values = {CHOOSES: 0.2, "test/set_error": 0.2, "test/no_skill_set_error": 0.8}
    done = Trained("a", values, draw=0)
    failed = Trained("a", draw=1, status="failed")
    study = Study(results_of([done, failed]))
    assert budget_curves(study, "t")["expected"].tolist() == pytest.approx([0.5, 0.2])
    table = budget_table(study, "t")
    assert table is not None
    assert "Draws failed for a (1 of 2)" in table.note


def test_a_loss_without_the_metric_has_no_curve() -> None:
    with_metric = Trained("a", {CHOOSES: 0.2, "test/set_error": 0.2, "test/nll": 1.5}, draw=0)
    without = Trained("b", {CHOOSES: 0.2, "test/set_error": 0.2}, draw=0)
    results = results_of([with_metric, without])
    assert budget_curves(Study(results), "t", "nll")["loss"].tolist() == ["a"]


def test_a_curve_is_named_as_reports_name_a_loss_with_its_network() -> None:
    values = {CHOOSES: 0.2, "test/set_error": 0.2}
    cells = [Trained("a", values, draw=0), Trained("a", values, draw=1)]
    other = Trained("b", values, draw=0, network="set-transformer")
    found = budget_curves(Study(results_of([*cells, other])), "t")
    assert found["loss"].unique().tolist() == ["a with mlp", "b with set-transformer"]


def test_the_table_has_the_best_by_all_draws_first() -> None:
    table = budget_table(Study(searched({"a": [0.3, 0.31], "b": [0.1, 0.9]})), "t")
    assert table is not None
    assert table.frame.index.tolist() == ["b", "a"]
    assert table.frame.columns.tolist() == ["1 draw", "2 draws"]
    assert str(table.frame.loc["b", "1 draw"]).startswith("50 (")


def test_the_table_says_where_more_draws_would_help() -> None:
    # For loss a the second draw lowers the expected error by 5 points, for loss b by less than 1.
    table = budget_table(Study(searched({"a": [0.3, 0.4], "b": [0.3, 0.301]})), "t")
    assert table is not None
    assert "More draws would help a: the last doubling still made more than 1 point" in table.note


def test_draws_that_gain_less_than_the_margin_of_the_spec_do_not_help() -> None:
    # The second draw lowers the expected error by 0.05.
    study = Study(searched({"a": [0.3, 0.4]}, margin={"set_error": 0.06}))
    table = budget_table(study, "t")
    assert table is not None
    assert "More draws would help" not in table.note


# All draws of the steady loss err about alike. Three of eight draws of the steep loss are good, so
# that a search needs several tries to find one.
STEADY = [0.30, 0.301, 0.302, 0.303, 0.299, 0.3015, 0.3005, 0.298]
STEEP = [0.05, 0.90, 0.91, 0.051, 0.89, 0.052, 0.90, 0.92]


def test_a_line_says_where_the_best_loss_depends_on_the_budget() -> None:
    # Each draw of the steep loss is there four times, which makes its band narrow enough.
    (line,) = budget_lines(Study(searched({"steady": STEADY, "steep": STEEP * 4})), "t")
    assert line.startswith("The order of losses on t depends on the budget, by set error.")
    assert "With one draw steady is better than steep" in line
    assert "with 8 draws steep is better" in line


def test_no_line_is_written_where_bands_overlap() -> None:
    wide = [0.05, 0.9, 0.1, 0.5]
    assert budget_lines(Study(searched({"steady": STEADY[:4], "wide": wide})), "t") == []


def test_larger_values_lead_where_the_metric_says_so() -> None:
    cells = []
    for loss, values in {"low": [0.2, 0.21], "high": [0.7, 0.9]}.items():
        for number, value in enumerate(values):
            # Validation chooses by an error, the smaller the better.
            measured = {CHOOSES: 1 - value, "test/auroc": value}
            cells.append(Trained(loss, measured, draw=number))
    table = budget_table(Study(results_of(cells, primary="auroc")), "t")
    assert table is not None
    assert table.frame.index.tolist() == ["high", "low"]
    assert "More draws would help high:" in table.note
