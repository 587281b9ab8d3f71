"""The space of a search and its draws."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
from pydantic import ValidationError
from scipy import stats

from milbench.engine.search_space import Dimension, Range, Search, draw

LR = Range(low=1e-4, high=1e-1, scale="log")


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 1.0])
def test_a_log_range_is_uniform_in_the_logarithm(share: float) -> None:
    assert LR.at(share) == pytest.approx(10 ** (-4 + 3 * share), rel=1e-3)
    assert Range(low=2, high=4).at(share) == pytest.approx(2 + 2 * share)


@pytest.mark.parametrize(
    ("space", "counts"),
    [
        (Range(low=1, high=3, integer=True), {1: 400, 2: 400, 3: 400}),
        (Range(low=0.2, high=3.9, integer=True), {1: 400, 2: 400, 3: 400}),
        # Of the logarithms from 0.5 to 4.5: log 3, log 5/3, log 7/5 and log 9/7 of log 9.
        (Range(low=1, high=4, scale="log", integer=True), {1: 600, 2: 279, 3: 184, 4: 137}),
    ],
)
def test_whole_numbers_have_equal_shares(space: Range, counts: dict[int, int]) -> None:
    assert Counter(space.at((i + 0.5) / 1200) for i in range(1200)) == counts
    assert (space.at(0.0), space.at(1.0)) == (min(counts), max(counts))


def test_draws_fill_the_space_evenly_and_a_value_is_as_probable_as_it_is_often() -> None:
    space: dict[str, Dimension] = {"lr": LR, "head": ["prior", "prior", "prior", "paper"]}
    drawn = [chosen for (chosen,) in draw([space], 64)]
    logs = [math.log10(chosen["lr"]) for chosen in drawn]
    # 64 points of a Sobol sequence have one in each of 64 equal parts of every axis.
    assert sorted(math.floor((value + 4) / 3 * 64 - 1e-3) for value in logs) == pytest.approx(range(64), abs=1)
    assert Counter(chosen["head"] for chosen in drawn) == {"prior": 48, "paper": 16}
    assert abs(stats.spearmanr(logs, [chosen["head"] == "paper" for chosen in drawn]).statistic) < 0.2


@pytest.mark.parametrize(("few", "more"), [(3, 20), (16, 33)])
def test_a_larger_budget_begins_with_the_draws_of_a_smaller_one(few: int, more: int) -> None:
    spaces: list[dict[str, Dimension]] = [{"lr": LR, "epochs": [1, 2, 3]}, {"rule": ["a", "b"]}]
    assert draw(spaces, more)[:few] == draw(spaces, few)


def test_losses_share_the_draws_of_the_space_they_have_in_common() -> None:
    own: dict[str, Dimension] = {"rule": ["a", "b"]}
    with_own, without = draw([{"lr": LR}, own], 8, coordinates=2), draw([{"lr": LR}, {}], 8, coordinates=2)
    assert [recipe for recipe, _ in with_own] == [recipe for recipe, _ in without]
    assert len({str(recipe) for recipe, _ in with_own}) == 8


def test_the_settings_of_one_task_are_added_to_those_of_all() -> None:
    search = Search.model_validate({"recipe": {"lr": [0.1, 0.2], "epochs": [5], "digits": {"epochs": [9]}}})
    assert search.recipe_of("digits") == {"lr": [0.1, 0.2], "epochs": [9]}
    assert search.recipe_of("bags") == {"lr": [0.1, 0.2], "epochs": [5]}


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"recipe": {"lr": {"low": 0.2, "high": 0.1}}}, "low = 0.2 must be less than high = 0.1"),
        ({"recipe": {"lr": {"low": 0, "high": 0.1, "scale": "log"}}}, "low = 0 has no logarithm"),
        ({"recipe": {"lr": []}}, r"lr = \[\] has no values"),
        ({"recipe": {"digits": {"lr": []}}}, r"lr = \[\] has no values"),
        ({"loss": {"exact": {"rule": []}}}, r"rule = \[\] has no values"),
        ({"draws": 0}, "greater than or equal to 1"),
    ],
)
def test_a_space_that_makes_no_sense_is_refused(given: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        Search.model_validate(given)
