"""What a report says of the baseline "pooled features, extra trees", which is no loss."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from milbench.comparison import Comparison
from milbench.report.render import sentence
from milbench.report.study import Study
from milbench.report.tables import main_table
from milbench.store.results import Results
from tests._helpers.report_data import results_by_epoch

NAME = "pooled features, extra trees"
LOSSES = {"a": [0.40, 0.42, 0.41], "b": [0.60, 0.61, 0.62]}


def with_baseline(line: list[float]) -> Results:
    """Return results of two losses with three seeds, and a baseline with a value for each."""
    results = results_by_epoch(
        {(loss, k): [(0.5, v)] for loss, own in LOSSES.items() for k, v in enumerate(own)}
    )
    tested = results.frame[results.frame["metric"] == "test/set_error"]
    extra = tested.assign(
        metric="test/pooled_trees_set_error", value=[line[seed] for seed in tested["seed"]]
    )
    return replace(results, frame=pd.concat([results.frame, extra], ignore_index=True))


def test_a_better_baseline_is_named_after_the_verdict() -> None:
    assert sentence(with_baseline([0.3, 0.32, 0.31])).endswith(
        " A simple baseline, pooled features with extra trees, has a lower set error: 31 %."
    )


def test_a_worse_baseline_is_not_in_the_verdict() -> None:
    assert "baseline" not in sentence(with_baseline([0.5, 0.5, 0.5]))


def test_the_baseline_is_never_the_best_loss() -> None:
    without = Study(replace(with_baseline([0.1] * 3), frame=results_by_epoch({
        (loss, k): [(0.5, v)] for loss, own in LOSSES.items() for k, v in enumerate(own)
    }).frame))  # fmt: skip
    study = Study(with_baseline([0.1] * 3))
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


def test_cells_of_before_have_no_baseline(tmp_path: Path) -> None:
    results = results_by_epoch({(loss, k): [(0.5, 0.4)] for loss in "ab" for k in range(3)})
    assert NAME not in main_table(Study(results)).frame.index
    assert NAME not in Comparison(results, tmp_path).table().index
