"""The draws of a search: points of ranges, crossed with the combinations of lists.

The points come from the seed of the search; more points begin with the same points as fewer.
"""

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
from scipy import stats

from milbench.errors import UsageError
from milbench.experiment.draws import MOST_RANGES, Space, count_draws, draws_of, points_of, space_of
from milbench.experiment.plan import Arm
from milbench.experiment.spec import Range, Search, for_task

LR = Range(low=1e-4, high=1e-1, scale="log")
DECAY = Range(low=0.0, high=1.0)
ARM = Arm("tiny", "exact")


def search(**values: Any) -> Search:
    """Return the table [tune] of a spec with these values."""
    return Search.model_validate(values)


def settings(wanted: Search, task: str = "tiny", loss: str = "exact") -> list[dict[str, Any]]:
    """Return the settings of every draw of a loss on a task."""
    draws = draws_of(wanted, space_of(wanted, task, loss), ARM)
    return [draw.settings for draw in draws]


def rates(wanted: Search, loss: str) -> list[float]:
    """Return the learning rates that a search tries for a loss, in the order of its draws."""
    return list(dict.fromkeys(one["recipe.lr"] for one in settings(wanted, loss=loss)))


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 1.0])
def test_a_log_range_is_uniform_in_the_logarithm(share: float) -> None:
    assert LR.quantile(share) == pytest.approx(10 ** (-4 + 3 * share), rel=1e-3)


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 1.0])
def test_a_linear_range_is_uniform_in_the_value(share: float) -> None:
    assert Range(low=2, high=4).quantile(share) == pytest.approx(2 + 2 * share)


def test_two_search_seeds_share_no_rate() -> None:
    first = {point["lr"] for point in points_of({"lr": LR}, 8, seed=0)}
    second = {point["lr"] for point in points_of({"lr": LR}, 8, seed=1)}
    assert not first & second


def test_many_search_seeds_share_no_point() -> None:
    # Two rates may be equal when rounded to four digits, but not the whole point.
    points = [
        (point["lr"], point["decay"])
        for seed in range(50)
        for point in points_of({"lr": LR, "decay": DECAY}, 8, seed)
    ]
    assert len(set(points)) == 50 * 8


def test_the_same_search_seed_gives_the_same_points() -> None:
    ranges = {"lr": LR, "decay": DECAY}
    assert points_of(ranges, 8, seed=3) == points_of(ranges, 8, seed=3)


@pytest.mark.parametrize(("few", "more"), [(4, 8), (3, 20), (16, 33)])
def test_more_points_begin_with_those_of_fewer(few: int, more: int) -> None:
    ranges = {"lr": LR, "decay": DECAY}
    assert points_of(ranges, more, seed=1)[:few] == points_of(ranges, few, seed=1)


def test_eight_draws_of_a_list_begin_with_four() -> None:
    space = {"lr": LR, "head_init": ["prior", "paper"]}
    four = settings(search(draws=4, recipe=space))
    eight = settings(search(draws=8, recipe=space))
    assert eight[: len(four)] == four


def share_of_log_range(rate: float) -> float:
    """Return how far a rate is, by its logarithm, from the low end of `LR` to the high end.

    The ends are 10^-4 and 10^-1.
    """
    return (math.log10(rate) + 4) / 3


def share_of_linear_range(decay: float) -> float:
    """Return how far a value is from the low end of `DECAY`, 0, to the high end, 1."""
    return decay


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("setting", "share_of"),
    [
        pytest.param("lr", share_of_log_range, id="log"),
        pytest.param("decay", share_of_linear_range, id="linear"),
    ],
)
def test_points_fill_every_range_evenly(
    setting: str, share_of: Callable[[float], float], seed: int
) -> None:
    points = points_of({"lr": LR, "decay": DECAY}, 64, seed)
    parts = sorted(math.floor(share_of(point[setting]) * 64) for point in points)
    # Of 64 points of a Sobol sequence, one lies in each of 64 equal parts of every axis. Rounding
    # to four digits may move a point into the next part.
    assert parts == pytest.approx(range(64), abs=1)


def test_values_of_two_ranges_are_not_correlated() -> None:
    points = points_of({"lr": LR, "decay": DECAY}, 64, seed=0)
    drawn_rates = [point["lr"] for point in points]
    drawn_decays = [point["decay"] for point in points]
    rank = stats.spearmanr(drawn_rates, drawn_decays)
    assert abs(rank.statistic) < 0.2


def test_values_have_four_significant_digits() -> None:
    for point in points_of({"lr": LR}, 16, seed=0):
        assert point["lr"] == float(f"{point['lr']:.3e}")


def test_lists_are_crossed_with_the_points() -> None:
    wanted = search(draws=3, recipe={"lr": LR, "head_init": ["prior", "paper"], "epochs": [2, 3]})
    tried = [
        (one["recipe.lr"], one["recipe.head_init"], one["recipe.epochs"])
        for one in settings(wanted)
    ]
    three_rates = rates(wanted, "exact")
    assert len(three_rates) == 3
    crossed = itertools.product(three_rates, ["prior", "paper"], [2, 3])
    assert sorted(tried) == sorted(crossed)


def test_two_starts_and_eight_rates_are_sixteen_draws() -> None:
    wanted = search(draws=8, recipe={"lr": LR, "head_init": ["prior", "paper"]})
    assert count_draws(wanted, space_of(wanted, "tiny", "exact")) == 16
    assert len(settings(wanted)) == 16


def test_without_ranges_every_combination_is_drawn_once() -> None:
    wanted = search(draws=16, recipe={"epochs": [2, 3], "lr": [0.1, 0.2, 0.3]})
    found = [(one["recipe.epochs"], one["recipe.lr"]) for one in settings(wanted)]
    assert sorted(found) == [(2, 0.1), (2, 0.2), (2, 0.3), (3, 0.1), (3, 0.2), (3, 0.3)]


def test_a_loss_without_a_space_has_one_draw() -> None:
    wanted = search(draws=4, loss={"exact": {"weight": DECAY}})
    assert settings(wanted, loss="noisy-or") == [{}]


def test_losses_share_the_rates_whatever_settings_of_their_own_they_have() -> None:
    own = {
        "exact": {"rule": ["sum", "exact"]},
        "log-sum-exp": {"sharpness": Range(low=1, high=9), "other": Range(low=0, high=1)},
    }
    wanted = search(draws=5, recipe={"lr": LR}, loss=own)
    plain = rates(wanted, "noisy-or")
    assert len(plain) == 5
    assert rates(wanted, "exact") == plain
    assert rates(wanted, "log-sum-exp") == plain


def test_a_range_of_a_loss_changes_no_rate() -> None:
    before = search(draws=5, recipe={"lr": LR})
    after = search(draws=5, recipe={"lr": LR}, loss={"exact": {"weight": DECAY}})
    assert rates(before, "noisy-or") == rates(after, "exact")


def test_draws_are_numbered_point_by_point() -> None:
    wanted = search(draws=2, recipe={"lr": LR, "epochs": [2, 3]})
    draws = draws_of(wanted, space_of(wanted, "tiny", "exact"), ARM)
    assert [draw.number for draw in draws] == [0, 1, 2, 3]
    assert [draw.point for draw in draws] == [0, 0, 1, 1]


def test_settings_of_one_task_override_settings_of_all_tasks() -> None:
    wanted = search(recipe={"lr": [0.1, 0.2], "epochs": [5], "digits": {"epochs": [9]}})
    assert for_task(wanted.recipe, "digits") == {"lr": [0.1, 0.2], "epochs": [9]}
    assert for_task(wanted.recipe, "bags") == {"lr": [0.1, 0.2], "epochs": [5]}


def test_too_many_draws_are_refused() -> None:
    wanted = search(draws=4096, recipe={"lr": LR, "epochs": [2, 3]})
    with pytest.raises(UsageError, match=r"8,192 draws of exact on tiny are too many"):
        settings(wanted)


def test_too_many_ranges_are_refused() -> None:
    ranges = {f"setting {number}": DECAY for number in range(MOST_RANGES + 1)}
    space = Space(ranges, lists={})
    wanted = search(recipe={"lr": LR})
    with pytest.raises(UsageError, match="65 ranges are too many, expected at most 64"):
        draws_of(wanted, space, ARM)
