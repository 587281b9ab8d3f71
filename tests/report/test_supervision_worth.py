"""What more supervision is worth in bags, read off made-up and simulated learning curves."""

import math
from dataclasses import replace

import numpy as np
import pytest

from milbench.report.formatting import slug
from milbench.report.study import Study
from milbench.report.supervision_worth import equivalent_amount, series_of, worth_table
from milbench.store.results import Results
from tests._helpers.report_data import make_results

AMOUNTS = np.array([100, 200, 400, 800, 1600, 3200])


def halving_errors() -> Results:
    """Return errors that halve with twice the bags; 100 bags of the stronger loss are worth 200 of the weaker one."""
    amounts = {f"sounds bags={bags}": bags for bags in (400, 100, 200)}
    made = make_results(
        losses={"weak": 0.4, "strong": 0.2}, tasks=dict.fromkeys(amounts, "set_error"), epochs=1,
        supervision={"strong": "position"}, info={"amount": "bags"},
        params={task: {"bags": bags} for task, bags in amounts.items()},
    )  # fmt: skip
    frame, error = made.frame, made.frame["loss"].map({"weak": 40, "strong": 20})
    frame = frame.assign(value=error / frame["task"].map(amounts) * (1 + 0.01 * frame["seed"]))
    return of_one_task(replace(made, frame=frame))


def of_one_task(made: Results) -> Results:
    plan = replace(
        made.plan,
        cells=[replace(cell, task=replace(cell.task, name="sounds")) for cell in made.plan.cells],
    )
    ids = {old.id: new.id for old, new in zip(made.plan.cells, plan.cells, strict=True)}
    tasks = {cell.task.key: next(iter(made.plan.tasks.values())) for cell in plan.cells}
    return Results(
        replace(plan, tasks=tasks), made.frame.assign(cell=made.frame["cell"].map(ids)), {}
    )


def test_bags_of_more_supervision_are_read_off_the_curve_of_less() -> None:
    study = Study(halving_errors())
    (series,) = series_of(study)
    assert list(series.tasks) == [100, 200, 400]
    table = worth_table(study, series)
    assert table is not None
    column = table.frame["as many bags for weak"]
    assert column["strong, 100 bags"].startswith("200 [")
    assert column["strong, 100 bags"].endswith("× 2")
    assert column["strong, 400 bags"] == "> [>, >]", "more than were measured"


def test_curves_of_tasks_that_differ_in_more_have_names_of_their_own() -> None:
    params = {
        f"t{bags}{level}": {"bags": bags, "level": level} for bags in (1, 2, 3) for level in (-1, 1)
    }
    made = make_results(
        tasks=dict.fromkeys(params, "set_error"), info={"amount": "bags"}, params=params
    )
    assert [one.name for one in series_of(Study(of_one_task(made)))] == [
        "sounds level=-1",
        "sounds level=1",
    ]
    assert (
        len({slug(text) for text in ("x level=-1", "x level=1", "鳥", "魚", "a" * 99, "a" * 98)})
        == 6
    )


def test_where_two_lines_meet_by_hand() -> None:
    """Errors of 40 % and 20 % at 100 and 400 bags: 25 % lies three quarters of the way, at 100 * 4 ** 0.75 bags."""
    curve = [[0.4, 0.2], [0.42, 0.22], [0.38, 0.18]]
    found = equivalent_amount([100, 400], curve, [0.25, 0.27, 0.23])
    assert found == pytest.approx(
        (100 * 4**0.75,) * 3, rel=2e-3
    )  # seed by seed the same difference
    mirrored = equivalent_amount(
        [100, 400], 1 - np.array(curve), [0.75, 0.73, 0.77], lower_is_better=False
    )
    assert mirrored == pytest.approx(found, rel=2e-3)
    assert equivalent_amount([100, 400], curve, [0.1, 0.12, 0.1]) == (math.inf,) * 3, (
        "more than 400"
    )
    assert equivalent_amount([100, 400], curve, [0.9, 0.92, 0.9]) == (0, 0, 0)


@pytest.mark.parametrize(("seeds", "overlap"), [(3, 0.0), (5, 0.0), (5, 0.2)])
def test_the_interval_covers_the_true_amount(seeds: int, overlap: float) -> None:
    """Normal errors whose means fall along a line in the logarithm; seeds that share data share errors of their own."""
    rng = np.random.default_rng(seeds)
    mean = 0.5 - 0.1 * np.log2(AMOUNTS / 100)
    truth = 100 * 2**2.3
    hits, runs = 0, 1500
    for _ in range(runs):
        luck = rng.normal(scale=0.03, size=(seeds, 1))  # of a seed, in curve and target alike
        curve = mean + luck + rng.normal(scale=0.03, size=(seeds, len(AMOUNTS)))
        # Sharing adds to the mean difference what its spread over seeds does not show: overlap times their variance.
        spread = 0.03 * math.sqrt(
            1 + 0.3**2 + 0.7**2
        )  # at 2.3 doublings the curve mixes two of its points
        shared = rng.normal(scale=spread * math.sqrt(overlap))
        target = 0.5 - 0.23 + luck[:, 0] + rng.normal(scale=0.03, size=seeds) + shared
        _, low, high = equivalent_amount(AMOUNTS, curve, target, overlap=overlap)
        hits += low <= truth <= high
    assert hits / runs == pytest.approx(0.95, abs=0.02)
