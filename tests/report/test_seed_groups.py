"""Seeds in two groups: the rule, how often it is wrong, and where a report says so."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from milbench.report.pairs import findings
from milbench.report.seed_groups import least_gap
from milbench.report.statistics.groups import two_groups
from milbench.report.study import Study
from milbench.report.tables import main_table
from tests._helpers.report_data import constant

TASK = "extended-digits"


@pytest.mark.parametrize(
    ("values", "sizes"),
    [
        ([0.48, 0.49, 0.50, 0.90, 0.88], (3, 2)),
        ([0.01, 0.02, 0.015, 0.01, 0.9], (4, 1)),
        ([0.9, 0.02, 0.015, 0.01], None),  # four seeds are too few
        ([1.0, 2.0, 3.0, 7.0, 8.0, 9.0], None),  # the gap is twice the range of a part
        ([0.10, 0.10, 0.10, 0.10, 0.14], None),  # too near to matter
        ([0.5] * 6, None),
    ],
)
def test_the_rule_by_hand(values: list[float], sizes: tuple[int, int] | None) -> None:
    found = two_groups(values, least=0.05)
    assert (None if found is None else (len(found[0]), len(found[1]))) == sizes


def test_small_folds_that_are_equal_by_chance_are_one_group() -> None:
    """Folds of twelve bags that are all drawn alike, each wrong with probability 0.6, hardly ever look like two."""
    rng = np.random.default_rng(0)
    errors = rng.binomial(12, 0.6, size=(4000, 5)) / 12
    alarms = [sum(two_groups(values, least) is not None for values in errors) for least in (0.05, least_gap(12))]
    assert alarms[0] > 40, "more than 1 % without that floor"
    assert alarms[1] <= 4


@pytest.mark.parametrize(("n", "share"), [(5, 0.032), (6, 0.009), (8, 0.001)])
def test_normal_values_show_two_groups_as_rarely_as_reports_say(n: int, share: float) -> None:
    rng = np.random.default_rng(n)
    alarms = sum(two_groups(values) is not None for values in rng.normal(size=(4000, n)))
    low, high = stats.binom.ppf([0.001, 0.999], 4000, share)
    assert alarms <= high
    assert alarms >= low or n == 8, "of 8 it is fewer"


def test_groups_stand_beside_the_mean_and_in_the_sentence_where_guessing_is_not_known() -> None:
    errors = {"a": [48, 49, 50, 49, 90, 88], "b": [47, 49, 48, 50, 49, 48]}
    values = {(loss, seed): [(0.1, 0.5), (0.2, n / 100)] for loss, ns in errors.items() for seed, n in enumerate(ns)}
    study = Study(constant(values))
    words = "4 seeds at 48.0 to 50.0 %, 2 at 88.0 to 90.0 %"
    assert f"seeds in two groups, which the mean hides: a ({words})." in findings(study)[0][1]
    table = main_table(study)
    rows = {row[0].text: row[1] for _, group in table.groups for row in group}
    assert (rows["a"].warning, rows["b"].warning) == (f"two groups: {words}", "")
    assert any(note.startswith("Two groups: of 5 seeds or more") for note in table.notes)
    known = Study(constant(values, chance={TASK: 0.9}))
    assert "two groups" not in findings(known)[0][1]
    assert "nearer to guessing (90.0 %) than to the best mean: a (2 of 6 seeds)" in findings(known)[0][1]
