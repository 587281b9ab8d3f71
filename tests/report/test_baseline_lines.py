"""What a report says of the baseline "pooled features, extra trees".

It is a classifier without a network and without a loss: reports show it beside the losses.
"""

from pathlib import Path

import pytest

from milbench.comparison import Comparison
from milbench.report.render import sentence
from milbench.report.study import Study
from milbench.report.tables import main_table
from milbench.store.results import Results
from tests._helpers.report_data import results_by_seed, with_line

NAME = "pooled features, extra trees"
WITHOUT_BASELINE = results_by_seed({"a": [0.40, 0.42, 0.41], "b": [0.60, 0.61, 0.62]})
"""Two losses with three seeds."""


def with_baseline(set_errors: list[float]) -> Results:
    """Return the results with a baseline that has these errors, one for each seed."""
    return with_line(WITHOUT_BASELINE, "pooled_trees_set_error", set_errors)


def test_a_better_baseline_is_named_after_the_verdict() -> None:
    assert sentence(with_baseline([0.3, 0.32, 0.31])).endswith(
        " A simple baseline, pooled features with extra trees, has a lower set error: 31 %."
    )


def test_a_worse_baseline_is_not_in_the_verdict() -> None:
    assert "baseline" not in sentence(with_baseline([0.5, 0.5, 0.5]))


def test_the_baseline_is_never_the_best_loss() -> None:
    without = Study(WITHOUT_BASELINE)
    study = Study(with_baseline([0.1, 0.1, 0.1]))
    assert study.ranking() == without.ranking()
    assert study.may_be_best == without.may_be_best


def test_the_table_has_a_row_of_the_baseline() -> None:
    frame = main_table(Study(with_baseline([0.3, 0.32, 0.31]))).frame
    assert list(frame.index)[-1] == NAME
    assert "31.0 ± 1.0" in list(frame.loc[NAME])


def test_python_shows_the_baseline_last_and_no_contender(tmp_path: Path) -> None:
    table = Comparison(with_baseline([0.3, 0.32, 0.31]), tmp_path).table()
    assert table.index[-1] == NAME
    assert table["mean"][NAME] == pytest.approx(0.31)
    assert not table.loc[NAME, "contender"]


def test_results_without_a_baseline_have_no_row_of_it(tmp_path: Path) -> None:
    """Cells of an older version of milbench have no baseline."""
    assert NAME not in main_table(Study(WITHOUT_BASELINE)).frame.index
    assert NAME not in Comparison(WITHOUT_BASELINE, tmp_path).table().index
