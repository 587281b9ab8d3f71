"""The variance that the choice of settings by a search adds to the mean of a loss.

Estimates are compared with simulated searches, whose truth is known. They are in the unit of the
variance between seeds, which is 1.
"""

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import special

from milbench.report.statistics.contenders import contenders
from milbench.report.statistics.pairs import Scale, compare_all, put_on_scale, searches_on_scale
from milbench.report.statistics.selection import Search, SearchVariances, search_variances
from tests._helpers.scenes import most_by_chance
from tests._helpers.simulated_searches import SELECTION_SEEDS, SHAPES, mean_choice, searches_of

Floats = NDArray[np.float64]


def left_out(
    shape: str, spread: float, losses: int, seeds: int, repetitions: int, with_search: bool = True
) -> float:
    """Return how often the first loss is no contender, where losses differ by their searches alone.

    Args:
        shape, spread: how the true values of draws are distributed, see `searches_of`.
        losses, seeds: how many of them a comparison has.
        repetitions: how many comparisons are simulated.
        with_search: whether the statistics are told of the searches.
    """
    rng = np.random.default_rng([SHAPES.index(shape), round(10 * spread), losses, seeds])
    count = 0
    for _ in range(repetitions):
        searched = searches_of(rng, shape, spread, losses)
        chosen = np.array([one.chosen for one in searched])
        # The comparison has seeds of its own. Errors between 0 and 1 would be compared as logits,
        # and other positive values as logarithms: far below zero they are compared as they are.
        values = chosen[:, None] + rng.normal(size=(losses, seeds)) - 1000
        searches = [one.search if with_search else None for one in searched]
        count += first_is_excluded(values, searches)
    return count / repetitions


def first_is_excluded(values: Floats, searches: Sequence[Search | None]) -> bool:
    """Return whether the first loss is no contender.

    `contenders` would say so as well; its bounds on differences take most of its time.
    """
    lower_is_better = True
    on_scale = put_on_scale(values, lower_is_better, noise=None)
    no_overlap = 0.0
    pairs = compare_all(on_scale, no_overlap, searches_on_scale(searches, values, on_scale))
    is_worse = pairs.difference > pairs.widths()
    return bool(is_worse[0].any())


@pytest.mark.parametrize("scale", ["logit", "log"])
def test_a_search_keeps_values_below_those_of_the_comparison(scale: Scale) -> None:
    """Draws with a twentieth of the error keep their distance on the scale of the comparison.

    Half the square of log 20 is 4.5. If the values were cut off at the errors of the comparison,
    the variance would be far smaller.
    """
    errors = np.linspace(0.010, 0.013, 8).reshape(2, 4)
    draws: Floats = np.tile(np.array([[0.0005], [0.010]]), (4, 1))
    worse = np.linspace(0.1, 0.2, 8)[:, None]
    found = searches_on_scale(
        [Search(worse, draws)], errors, put_on_scale(errors[:1], True, None, scale)
    )
    to_scale = special.logit if scale == "logit" else np.log
    truth = search_variances([Search(worse, to_scale(draws))])
    assert found.values[0] == pytest.approx(truth.values[0])
    assert found.values[0] > 1


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("spread", [2.0, 5.5])
def test_the_variance_of_a_choice_is_not_underestimated(shape: str, spread: float) -> None:
    rng = np.random.default_rng(0)
    searched = [searches_of(rng, shape, spread, 1)[0] for _ in range(600)]
    truth = np.var([one.chosen for one in searched], ddof=1)
    found = [search_variances([one.search]).values[0] for one in searched]
    most = {"normal": 1.5, "same settings": 1.5, "pairs": 2.0, "one side": 5.0}[shape]
    assert truth < np.mean(found) < most * truth


def test_equal_settings_add_little() -> None:
    """For scale: the mean of five seeds has the variance 1 / 5 = 0.2."""
    rng = np.random.default_rng(1)
    found = []
    for _ in range(100):
        searched = searches_of(rng, "normal", 0.0, 6)
        found.append(search_variances([one.search for one in searched]).values)
    assert np.median(found) < 0.25


def test_a_loss_without_a_search_gets_no_variance() -> None:
    rng = np.random.default_rng(2)
    searched = searches_of(rng, "normal", 3.0, 2)
    found = search_variances([searched[0].search, None, searched[1].search])
    assert found.values[1] == 0
    assert (found.values[[0, 2]] > 0).all()
    assert np.isfinite(found.freedom).tolist() == [True, False, True]


@pytest.mark.parametrize("second", [0.0, 0.1, 1.0, 5.0])
def test_a_sum_of_variances_is_known_no_better_than_independent_ones(second: float) -> None:
    """Independent estimates would have the degrees of freedom of Satterthwaite's formula.

    The least are those of the first variance alone.
    """
    freedom = np.array([4.0, 9.0])
    values = np.array([1.0, second])
    satterthwaite = values.sum() ** 2 / (values**2 / freedom).sum()
    found = SearchVariances(values, freedom, 4.0).freedom_of_pair(0, 1)
    assert 4.0 <= found <= satterthwaite + 1e-9


def test_one_draw_is_no_choice() -> None:
    found = search_variances([Search(np.array([[0.1, 0.2]]), np.array([[0.1, 0.2]]))])
    assert found.values.tolist() == [0]
    assert found.typical_freedom == math.inf


def test_failed_draws_are_left_out() -> None:
    searched = searches_of(np.random.default_rng(3), "normal", 3.0, 1)[0].search
    failed = np.full((5, SELECTION_SEEDS), np.nan)
    with_failed = Search(
        np.vstack([failed, searched.validation]), np.vstack([failed, searched.test])
    )
    np.testing.assert_array_equal(
        search_variances([with_failed]).values, search_variances([searched]).values
    )


def test_two_draws_have_half_their_squared_distance_as_variance() -> None:
    """Each half of the search is one draw. With one seed no noise between seeds is subtracted."""
    search = Search(np.array([[0.1], [0.3]]), np.array([[2.0], [5.0]]))
    assert search_variances([search]).values.tolist() == [(5.0 - 2.0) ** 2 / 2]


def test_the_variance_is_the_mean_over_all_pairs_of_halves() -> None:
    """Both halves of the draws choose one draw each, by validation.

    The two choices differ on test bags: half the square of the difference is a variance. With one
    seed no noise between seeds is subtracted.
    """
    rng = np.random.default_rng(5)
    validation = rng.normal(size=(8, 1))
    test = rng.normal(size=(8, 1))
    squares = []
    for half in combinations(range(8), 4):
        other = [draw for draw in range(8) if draw not in half]
        first = min(half, key=lambda draw: validation[draw, 0])
        second = min(other, key=lambda draw: validation[draw, 0])
        squares.append((test[first, 0] - test[second, 0]) ** 2 / 2)
    found = search_variances([Search(validation, test)])
    assert found.values[0] == pytest.approx(np.mean(squares))


def test_draws_at_one_point_stay_in_one_half() -> None:
    """Four points with two draws each: a half has all draws of two points."""
    rng = np.random.default_rng(8)
    validation = rng.normal(size=(8, 1))
    test = rng.normal(size=(8, 1))
    points = np.array([2, 0, 1, 1, 3, 2, 0, 3])
    squares = []
    for half in combinations(range(4), 2):
        in_half = np.isin(points, half)
        first = np.where(in_half, validation[:, 0], np.inf).argmin()
        second = np.where(in_half, np.inf, validation[:, 0]).argmin()
        squares.append((test[first, 0] - test[second, 0]) ** 2 / 2)
    found = search_variances([Search(validation, test, points)])
    assert found.values[0] == pytest.approx(np.mean(squares))


def test_a_wider_search_gets_more_variance_known_less_well() -> None:
    rng = np.random.default_rng(6)
    wide = searches_of(rng, "normal", 20.0, 1)
    others = searches_of(rng, "normal", 1.0, 5)
    found = search_variances([one.search for one in wide + others])
    assert found.values[0] > 5 * found.values[1:].max()
    assert found.freedom[0] < found.freedom[1:].min()


def test_several_searches_show_a_variance_better_than_one() -> None:
    searched = [one.search for one in searches_of(np.random.default_rng(7), "normal", 2.0, 6)]
    assert search_variances(searched[:1]).freedom[0] == 1
    assert search_variances(searched).typical_freedom > 5


def test_a_search_widens_the_set() -> None:
    rng = np.random.default_rng(4)
    # Logits around -2; the second and third loss lie 0.2 above the first.
    levels = np.array([[0.0], [0.2], [0.2]])
    errors = special.expit(-2 + 0.02 * rng.normal(size=(3, 5)) + levels)
    searches = []
    for one in searches_of(rng, "normal", 4.0, 3):
        validation = special.expit(-2 + 0.1 * one.search.validation)
        test = special.expit(-2 + 0.1 * one.search.test)
        searches.append(Search(validation, test))
    alone = contenders(errors)
    searched = contenders(errors, searches=searches)
    assert alone.contender.tolist() == [True, False, False]
    assert searched.contender.all()
    assert (searched.worse_by[1:] > alone.worse_by[1:]).all()


def test_searched_losses_are_seldom_left_out() -> None:
    share = left_out("normal", 2.0, losses=4, seeds=5, repetitions=150)
    assert share <= most_by_chance(150)


def test_without_the_variance_of_searches_the_best_loss_is_often_left_out() -> None:
    share = left_out("normal", 2.0, losses=4, seeds=5, repetitions=150, with_search=False)
    assert share > 0.2


@pytest.mark.simulation
@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    ("shape", "spread"),
    [
        *(("normal", spread) for spread in (0.0, 0.7, 1.4, 5.5)),
        *(("one side", spread) for spread in (1.4, 5.5)),
        ("same settings", 1.4),
        *(("pairs", spread) for spread in (1.4, 5.5)),
    ],
)
def test_searches_in_full(shape: str, spread: float) -> None:
    """Prints a line of a table: how often the best loss is left out.

    The numbers in brackets are for statistics that are not told of the searches.
    """
    repetitions = 400
    rng = np.random.default_rng(0)
    noise = np.std([searches_of(rng, shape, spread, 1)[0].chosen for _ in range(2000)])
    columns = []
    highest = 0.0
    for seeds in (3, 5, 10):
        with_search = []
        without = []
        for losses in (2, 6, 20):
            with_search.append(left_out(shape, spread, losses, seeds, repetitions))
            without.append(left_out(shape, spread, losses, seeds, repetitions, with_search=False))
        columns.append(f"{percentages(with_search, 1)} ({percentages(without, 0)})")
        highest = max(highest, *with_search)
    print(f"|{shape}, {spread}|{noise:.1f}|{'|'.join(columns)}|", flush=True)
    assert highest <= most_by_chance(repetitions)


def percentages(shares: Sequence[float], digits: int) -> str:
    """Return shares in percent, such as 4.8/3.9/5.1."""
    return "/".join(f"{100 * share:.{digits}f}" for share in shares)


def left_out_with_a_wide_search(
    factor: float, spread: float, losses: int, seeds: int, repetitions: int
) -> float:
    """Return how often the first loss, whose search is wide, is no contender.

    Its draws spread `factor` times as much as the draws of other losses.
    """
    rng = np.random.default_rng([losses, seeds, round(10 * factor), round(10 * spread)])
    mean_of_wide = mean_choice(rng, factor * spread)
    mean_of_others = mean_choice(rng, spread)
    count = 0
    for _ in range(repetitions):
        wide = searches_of(rng, "normal", factor * spread, 1)
        others = searches_of(rng, "normal", spread, losses - 1)
        # With the mean of all choices taken away, losses are alike on average over searches.
        chosen = np.array([one.chosen for one in wide + others]) - mean_of_others
        chosen[0] += mean_of_others - mean_of_wide
        values = chosen[:, None] + rng.normal(size=(losses, seeds)) - 1000
        count += first_is_excluded(values, [one.search for one in wide + others])
    return count / repetitions


def test_a_loss_with_a_wide_search_is_seldom_left_out() -> None:
    share = left_out_with_a_wide_search(4, 1.4, losses=12, seeds=5, repetitions=150)
    assert share <= most_by_chance(150)


@pytest.mark.simulation
@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    ("spread", "factor"), [(0.7, 4), (1.4, 2), (1.4, 4), (1.4, 8), (5.5, 4), (5.5, 8)]
)
def test_a_loss_with_a_wide_search_in_full(spread: float, factor: float) -> None:
    """Prints a line of a table: how often the best loss, whose search is wide, is left out."""
    repetitions = 400
    columns = []
    for seeds in (3, 5, 10):
        shares = []
        for losses in (2, 6, 20):
            share = left_out_with_a_wide_search(factor, spread, losses, seeds, repetitions)
            shares.append(share)
        columns.append(percentages(shares, 1))
        # With three seeds a little more than the usual 5 % is allowed.
        promised = 0.07 if seeds == 3 else 0.05
        assert max(shares) <= most_by_chance(repetitions, promised)
    print(f"|{spread}, {factor} times|{'|'.join(columns)}|", flush=True)
