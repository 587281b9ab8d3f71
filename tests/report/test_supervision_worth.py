"""What more supervision is worth in bags, read off made-up and simulated learning curves.

A loss that learns from more than label sets reaches an error with fewer bags. Its bags are worth as
many as the other loss needs for the same error.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from milbench.experiment.cell import Cell
from milbench.report.formatting import slug
from milbench.report.study import Study
from milbench.report.supervision_worth import Series, equivalent_amount, series_of, worth_table
from milbench.report.table import Table
from milbench.store.results import Results
from tests._helpers.report_data import make_results, with_cells

AMOUNTS = np.array([100, 200, 400, 800, 1600, 3200])

ERRORS_AT_ONE_BAG = {"weak": 40, "strong": 20}
"""Loss -> its error with one bag.

Errors fall as 1 / number of bags: 100 bags of the strong loss are worth 200 of the weak one.
"""


def on_one_task(tasks: Mapping[str, Mapping[str, Any]], **changes: Any) -> Results:
    """Return results on the task "sounds" with different parameters; `bags` is the amount.

    Args:
        tasks: label -> parameters.
        changes: other arguments of `make_results`.
    """

    def on_sounds(cell: Cell) -> Cell:
        return replace(cell, task=replace(cell.task, name="sounds"))

    made = make_results(
        tasks=dict.fromkeys(tasks, "set_error"), info={"amount": "bags"}, params=tasks, **changes
    )
    return with_cells(made, on_sounds)


def halving_errors(**changes: Any) -> Results:
    """Return results whose errors halve with twice the bags, and grow a little with each seed."""
    bags = {"sounds bags=400": 400, "sounds bags=100": 100, "sounds bags=200": 200}
    arguments: dict[str, Any] = {"supervision": {"strong": "position"}} | changes
    made = on_one_task(
        {task: {"bags": count} for task, count in bags.items()},
        losses={"weak": 0.4, "strong": 0.2},
        epochs=1,
        **arguments,
    )
    frame = made.frame
    at_one_bag = frame["loss"].map(ERRORS_AT_ONE_BAG)
    factor_of_seed = 1 + 0.01 * frame["seed"]
    errors = at_one_bag / frame["task"].map(bags) * factor_of_seed
    return replace(made, frame=frame.assign(value=errors))


def only_series(study: Study) -> Series:
    """Return the series of a study that has only one series."""
    (found,) = series_of(study)
    return found


def worth_of_halving_errors(**changes: Any) -> Table:
    """Return the table of what supervision is worth, where errors halve with twice the bags."""
    study = Study(halving_errors(**changes))
    table = worth_table(study, only_series(study))
    assert table is not None
    return table


def test_a_series_has_its_tasks_by_their_bags() -> None:
    series = only_series(Study(halving_errors()))
    assert series.tasks == {
        100: "sounds bags=100",
        200: "sounds bags=200",
        400: "sounds bags=400",
    }
    assert list(series.tasks) == [100, 200, 400]


def test_two_amounts_are_no_series() -> None:
    tasks = {"few": {"bags": 1}, "many": {"bags": 2}}
    assert series_of(Study(on_one_task(tasks))) == []


def test_tasks_that_differ_in_more_are_series_of_their_own() -> None:
    tasks = {}
    for bags in (1, 2, 3):
        for level in (-1, 1):
            tasks[f"t{bags}{level}"] = {"bags": bags, "level": level}
    series = series_of(Study(on_one_task(tasks)))
    assert [one.name for one in series] == ["sounds level=-1", "sounds level=1"]
    assert list(series[0].tasks.values()) == ["t1-1", "t2-1", "t3-1"]


def test_names_of_series_are_names_of_different_files() -> None:
    names = ["x level=-1", "x level=1", "鳥", "魚", "a" * 99, "a" * 98]
    assert len({slug(name) for name in names}) == len(names)


def test_bags_of_more_supervision_are_read_off_the_other_curve() -> None:
    worths = worth_of_halving_errors().frame["as many bags for weak"]
    assert worths["strong, 100 bags"].startswith("200 [")
    assert worths["strong, 100 bags"].endswith("× 2")


def test_an_error_below_all_of_the_curve_is_worth_more_bags() -> None:
    worths = worth_of_halving_errors().frame["as many bags for weak"]
    assert worths["strong, 400 bags"] == "> [>, >]"


def test_the_table_has_the_errors_that_are_to_be_reached() -> None:
    frame = worth_of_halving_errors().frame
    # With 100 bags: 20 % times 1, 1.01 and 1.02 for the three seeds.
    assert frame.loc["strong, 100 bags", "set error (%) ↓"] == "20.2 ± 0.2"


def test_one_seed_has_no_interval_in_the_table() -> None:
    worths = worth_of_halving_errors(seeds=1).frame["as many bags for weak"]
    assert worths["strong, 100 bags"] == "200 × 2"


def test_one_kind_of_supervision_has_no_table() -> None:
    study = Study(halving_errors(supervision={}))
    assert worth_table(study, only_series(study)) is None


STRAIGHT = np.array([[0.40, 0.20], [0.42, 0.22], [0.38, 0.18]])
"""The errors of three seeds at 100 and 400 bags; all seeds fall by the same amount."""


def worth(target: float, **options: Any) -> tuple[float, float, float]:
    """Return the amount at which the curves of STRAIGHT reach a mean target, and its interval.

    The targets of the three seeds differ as the curves of the seeds do.
    """
    targets = target + np.array([0.0, 0.02, -0.02])
    return equivalent_amount([100, 400], STRAIGHT, targets, **options)


def test_where_two_lines_meet_by_hand() -> None:
    # 25 % lies three quarters of the way from 40 % to 20 %. The interval is a point, since each
    # seed's target lies as far above its curve.
    expected = 100 * 4**0.75
    assert worth(0.25) == pytest.approx((expected, expected, expected), rel=2e-3)


def test_scores_that_rise_meet_where_errors_that_fall_do() -> None:
    targets = 1 - (0.25 + np.array([0.0, 0.02, -0.02]))
    found = equivalent_amount([100, 400], 1 - STRAIGHT, targets, lower_is_better=False)
    assert found == pytest.approx(worth(0.25), rel=2e-3)


def test_a_target_below_the_curve_needs_more_than_was_measured() -> None:
    found = equivalent_amount([100, 400], STRAIGHT, [0.1, 0.12, 0.1])
    assert found == (math.inf, math.inf, math.inf)


def test_a_target_above_the_curve_needs_less_than_was_measured() -> None:
    found = equivalent_amount([100, 400], STRAIGHT, [0.9, 0.92, 0.9])
    assert found == (0, 0, 0)


def test_two_seeds_have_no_interval() -> None:
    amount, low, high = equivalent_amount([100, 400], STRAIGHT[:2], [0.25, 0.27])
    assert amount == pytest.approx(100 * 4**0.75, rel=2e-3)
    assert math.isnan(low)
    assert math.isnan(high)


def test_an_interval_goes_on_beyond_what_was_measured() -> None:
    # Seeds that vary so much exclude no amount.
    targets = 0.3 + np.array([0.5, -0.5, 0.0])
    _, low, high = equivalent_amount([100, 400], STRAIGHT, targets)
    assert (low, high) == (0, math.inf)


TRIALS = 1500
NOISE = 0.03
"""The standard deviation of an error, between seeds and between amounts alike."""
DOUBLINGS = 2.3
"""How often the smallest amount is doubled until the mean curve reaches the mean target."""


def interval_of_simulated_seeds(
    rng: np.random.Generator, seeds: int, overlap: float
) -> tuple[float, float]:
    """Return the interval of an amount from random curves and targets.

    The means of the errors fall by 10 points with every doubling of the bags. Seeds that share data
    have errors in common, which their spread does not show.
    """
    means = 0.5 - 0.1 * np.log2(AMOUNTS / AMOUNTS[0])
    luck = rng.normal(scale=NOISE, size=(seeds, 1))
    curve = means + luck + rng.normal(scale=NOISE, size=(seeds, len(AMOUNTS)))
    # Between two amounts the curve is a weighted mean of their values. At 2.3 doublings the weights
    # are 0.7 and 0.3. The 1 stands for the variance of the target.
    spread = NOISE * math.sqrt(1 + 0.3**2 + 0.7**2)
    shared = rng.normal(scale=spread * math.sqrt(overlap))
    target = 0.5 - 0.1 * DOUBLINGS + luck[:, 0] + rng.normal(scale=NOISE, size=seeds) + shared
    _, low, high = equivalent_amount(AMOUNTS, curve, target, overlap=overlap)
    return low, high


@pytest.mark.parametrize(
    ("seeds", "overlap"),
    [
        pytest.param(3, 0.0, id="three seeds"),
        pytest.param(5, 0.0, id="five seeds"),
        pytest.param(5, 0.2, id="five seeds that share data"),
    ],
)
def test_the_interval_covers_the_true_amount(seeds: int, overlap: float) -> None:
    rng = np.random.default_rng(seeds)
    truth = AMOUNTS[0] * 2**DOUBLINGS
    hits = 0
    for _ in range(TRIALS):
        low, high = interval_of_simulated_seeds(rng, seeds, overlap)
        if low <= truth <= high:
            hits += 1
    assert hits / TRIALS == pytest.approx(0.95, abs=0.02)
