"""A comparison in Python shows what its report does."""

from __future__ import annotations

from pathlib import Path

import pytest
from scipy import stats

from milbench.comparison import Comparison
from tests._helpers.report_data import ONE, make_results


def comparison(**fields: object) -> Comparison:
    return Comparison(make_results(**fields), Path("reports"))  # type: ignore[arg-type]


def test_it_says_how_much_is_done_and_a_notebook_shows_the_sentence_and_the_table() -> None:
    opened = comparison(tasks=ONE, statuses={("exact", "extended-digits", 0): ("failed", "no memory")})
    assert repr(opened) == "<milbench.Comparison 'demo': 11 of 12 cells done>"
    assert opened.sentences[0] in opened._repr_html_()
    assert "<caption>All losses" in opened._repr_html_()


def test_tables_and_differences_agree_with_the_frame() -> None:
    opened = comparison()
    frame = opened.frame
    own = frame[(frame["task"] == "synthetic-bags") & (frame["metric"] == "test/auroc") & (frame["epoch"] == 4)]
    means = own.groupby("loss")["value"].mean()
    table = opened.table("synthetic-bags", "auroc")
    assert table["mean"].to_dict() == pytest.approx(means.to_dict())
    wide = own.pivot_table(index="loss", columns="seed", values="value")
    row = opened.differences("synthetic-bags", "auroc").iloc[0]
    assert row["p"] == pytest.approx(stats.ttest_rel(wide.loc[row["first"]], wide.loc[row["second"]]).pvalue, rel=1e-3)


def test_the_figure_has_a_panel_a_task_and_the_report_is_a_page(tmp_path: Path) -> None:
    opened = comparison()
    assert len(opened.figure().axes) == 2
    assert opened.report(tmp_path).name == "index.html"
