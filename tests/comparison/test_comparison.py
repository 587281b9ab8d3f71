"""A comparison in Python shows what its report does."""

from dataclasses import replace
from pathlib import Path

import pytest
from scipy import stats

from milbench.comparison import Comparison
from milbench.contracts.metric_info import describe
from milbench.errors import UsageError
from tests._helpers.report_data import ONE, constant, make_results


def comparison(**fields: object) -> Comparison:
    return Comparison(make_results(**fields), Path("reports"))  # type: ignore[arg-type]


def test_it_says_how_much_is_done_and_a_notebook_shows_the_sentence_and_the_table() -> None:
    opened = comparison(
        tasks=ONE, statuses={("exact", "extended-digits", 0): ("failed", "no memory")}
    )
    assert repr(opened) == "<milbench.Comparison 'demo': 11 of 12 cells done>"
    assert opened.sentences[0] in opened._repr_html_()
    assert "<caption>All losses" in opened._repr_html_()


def test_tables_and_differences_agree_with_the_frame_at_the_epoch_that_counts() -> None:
    opened = comparison()
    own = opened.frame.query("final and metric == 'test/auroc'")
    assert set(own["epoch"]) == {4}
    means = own.groupby(["task", "loss"])["value"].mean()
    assert opened.table(metric="auroc")["mean"].to_dict() == pytest.approx(means.to_dict())
    one = own[own["task"] == "synthetic-bags"]
    assert opened.table("synthetic-bags", "auroc")["mean"].to_dict() == pytest.approx(
        means["synthetic-bags"].to_dict()
    )
    wide = one.pivot_table(index="loss", columns="seed", values="value")
    row = opened.differences("synthetic-bags", "auroc").iloc[0]
    assert row["p"] == pytest.approx(
        stats.ttest_rel(wide.loc[row["first"]], wide.loc[row["second"]]).pvalue, rel=1e-3
    )
    assert len(opened.differences()) == 2 * 6, "tasks, pairs of four losses"


def test_the_verdict_is_the_first_column_of_a_printed_table() -> None:
    table = Comparison(make_results(tasks=ONE), Path("reports")).table()
    assert list(table.columns[:2]) == ["contender", "worse_by"]
    assert "contender" in repr(table)


def test_the_frame_has_a_column_a_setting_and_draws_stand_apart() -> None:
    results = constant(
        {("a", seed): [(0.1, 0.3), (0.2, 0.2)] for seed in range(2)}, selection="validation"
    )
    draws = results.frame["seed"] == 1
    opened = Comparison(
        replace(results, frame=results.frame.assign(draw=draws.map({True: 0}))), Path("reports")
    )
    assert opened.frame.query("final")["value"].tolist() == [0.1, 0.3]
    settings = opened.frame[["network", "recipe.epochs", "task.digits_per_bag"]].drop_duplicates()
    assert settings.to_numpy().tolist() == [["mlp", 1, 2]]
    assert (set(opened.frame["seed"]), set(opened.draws["seed"])) == ({0}, {1})


def test_the_figure_has_a_panel_a_task_and_the_report_is_a_page(tmp_path: Path) -> None:
    opened = comparison()
    assert len(opened.figure().axes) == 2
    (panel,) = opened.figure("synthetic-bags", "auroc").axes
    assert panel.get_xlabel() == describe("auroc").label
    with pytest.raises(
        UsageError, match="unknown metric of this comparison 'auroc_'; did you mean 'auroc'"
    ):
        opened.table(metric="auroc_")
    assert opened.report(tmp_path).name == "index.html"
