"""A comparison in Python has the tables, differences and figures of its report."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from scipy import stats

from milbench.comparison import Comparison
from milbench.contracts.metric_info import describe
from milbench.errors import UsageError
from tests._helpers.report_data import ONE, make_results, results_by_epoch


def comparison(**fields: object) -> Comparison:
    """Return a comparison of results made by hand; `fields` are passed to `make_results`."""
    return Comparison(make_results(**fields), Path("reports"))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def opened() -> Comparison:
    return comparison()


def test_a_comparison_says_how_many_cells_are_done() -> None:
    failed = {("exact", "extended-digits", 0): ("failed", "no memory")}
    unfinished = comparison(tasks=ONE, statuses=failed)
    assert repr(unfinished) == "<milbench.Comparison 'demo': 11 of 12 cells done>"


def test_a_notebook_shows_the_sentence_and_the_table() -> None:
    shown = comparison(tasks=ONE)
    assert shown.sentences[0] in shown._repr_html_()
    assert "<caption>All losses" in shown._repr_html_()


def final_values(opened: Comparison) -> pd.DataFrame:
    """Return the rows of the frame with the AUROC at the epoch that counts."""
    return opened.frame.query("final and metric == 'test/auroc'")


def test_the_last_epoch_counts(opened: Comparison) -> None:
    assert set(final_values(opened)["epoch"]) == {4}


def test_a_table_has_the_means_of_the_frame(opened: Comparison) -> None:
    means = final_values(opened).groupby(["task", "loss"])["value"].mean()
    assert opened.table(metric="auroc")["mean"].to_dict() == pytest.approx(means.to_dict())


def test_a_table_of_one_task_has_the_same_means(opened: Comparison) -> None:
    means = final_values(opened).groupby(["task", "loss"])["value"].mean()
    of_task = opened.table("synthetic-bags", "auroc")["mean"]
    assert of_task.to_dict() == pytest.approx(means["synthetic-bags"].to_dict())


def test_differences_agree_with_a_paired_test(opened: Comparison) -> None:
    values = final_values(opened).query("task == 'synthetic-bags'")
    by_seed = values.pivot_table(index="loss", columns="seed", values="value")
    row = opened.differences("synthetic-bags", "auroc").iloc[0]
    paired = stats.ttest_rel(by_seed.loc[row["first"]], by_seed.loc[row["second"]])
    assert row["p"] == pytest.approx(paired.pvalue, rel=1e-3)


def test_there_is_a_difference_for_every_pair_on_every_task(opened: Comparison) -> None:
    pairs_of_four_losses = 6
    assert len(opened.differences()) == 2 * pairs_of_four_losses


def test_the_verdict_is_the_first_column_of_a_printed_table() -> None:
    table = comparison(tasks=ONE).table()
    assert list(table.columns[:2]) == ["contender", "worse_by"]
    assert "contender" in repr(table)


@pytest.fixture(scope="module")
def with_a_draw() -> Comparison:
    """Return a comparison of a cell with seed 0 and a draw of a search, which has seed 1."""
    # The validation and the test error of two epochs. Validation chooses epoch 1.
    curves = {("a", seed): [(0.1, 0.3), (0.2, 0.2)] for seed in range(2)}
    results = results_by_epoch(curves, selection="validation")
    # The cell with seed 1 is draw 0. A cell that is no draw has no number of a draw.
    draw = results.frame["seed"].map({1: 0})
    return Comparison(replace(results, frame=results.frame.assign(draw=draw)), Path("reports"))


def test_validation_values_choose_the_epoch_that_counts(with_a_draw: Comparison) -> None:
    assert with_a_draw.frame.query("final")["value"].tolist() == [0.1, 0.3]


def test_the_frame_has_a_column_a_setting(with_a_draw: Comparison) -> None:
    settings = with_a_draw.frame[["network", "recipe.epochs", "task.digits_per_bag"]]
    assert settings.drop_duplicates().to_numpy().tolist() == [["mlp", 1, 2]]


def test_draws_have_a_frame_of_their_own(with_a_draw: Comparison) -> None:
    assert set(with_a_draw.frame["seed"]) == {0}
    assert set(with_a_draw.draws["seed"]) == {1}


def test_the_figure_has_a_panel_a_task(opened: Comparison) -> None:
    assert len(opened.figure().axes) == 2


def test_the_figure_of_a_task_names_the_metric(opened: Comparison) -> None:
    (panel,) = opened.figure("synthetic-bags", "auroc").axes
    assert panel.get_xlabel() == describe("auroc").label


def test_a_metric_that_is_misspelt_is_named(opened: Comparison) -> None:
    with pytest.raises(
        UsageError, match="unknown metric of this comparison 'auroc_'; did you mean 'auroc'"
    ):
        opened.table(metric="auroc_")


@pytest.mark.usefixtures("blank_figures")
def test_the_report_is_a_page(opened: Comparison, tmp_path: Path) -> None:
    page = opened.report(tmp_path)
    assert page == tmp_path / "index.html"
    assert opened.sentences[0].partition(":")[0] in page.read_text("utf-8")
