"""A comparison in Python shows what its report does."""

from __future__ import annotations

from pathlib import Path

import pytest
from scipy import stats

from milbench.comparison import Comparison
from tests._helpers.report_data import ONE, make_results


def found(**fields: object) -> Comparison:
    return Comparison(make_results(**fields), Path("reports"))  # type: ignore[arg-type]


def test_it_says_how_much_is_done_and_a_notebook_shows_the_sentence_and_the_table() -> None:
    one = found(tasks=ONE, statuses={("exact", "extended-digits", 0): ("failed", "no memory")})
    assert repr(one) == "<milbench.Comparison 'demo': 11 of 12 cells done>"
    assert one.sentences[0] in one._repr_html_()
    assert "<caption>All losses" in one._repr_html_()


def test_tables_and_differences_agree_with_the_frame() -> None:
    one = found()
    frame = one.frame
    own = frame[(frame["task"] == "synthetic-bags") & (frame["metric"] == "test/auroc") & (frame["epoch"] == 4)]
    means = own.groupby("loss")["value"].mean()
    table = one.table("synthetic-bags", "auroc")
    assert table["mean"].to_dict() == pytest.approx(means.to_dict())
    wide = own.pivot_table(index="loss", columns="seed", values="value")
    row = one.differences("synthetic-bags", "auroc").iloc[0]
    assert row["p"] == pytest.approx(stats.ttest_rel(wide.loc[row["first"]], wide.loc[row["second"]]).pvalue, rel=1e-3)


def test_the_figure_has_a_panel_a_task_and_the_report_is_a_page(tmp_path: Path) -> None:
    one = found()
    assert len(one.figure().axes) == 2
    assert one.report(tmp_path).name == "index.html"
