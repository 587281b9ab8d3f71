"""The leaderboard of the site says what the published reports say."""

import io
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from milbench.report.published_reports import read
from milbench.report.study import Study
from milbench.report.use_verdicts import uses_table
from tests._helpers.command_line import REPOSITORY
from tests.report.test_page import opened
from website import leaderboard
from website.boards import Board, boards_of

REPORT = REPOSITORY / "reports" / "mnist-bags"
NEEDS_BROWSER = pytest.mark.skipif(
    not (shutil.which("chromium") or shutil.which("chromium-browser")),
    reason="no chromium here: apt-get install chromium",
)


@pytest.fixture(scope="module")
def boards() -> Iterator[list[Board]]:
    """The tables of one report; `make docs` makes those of all reports."""
    found = boards_of(REPORT.name, Study(read(REPORT)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leaderboard, "boards", lambda: found)
        yield found


@pytest.fixture(scope="module")
def values(boards: list[Board]) -> pd.DataFrame:
    return pd.read_csv(io.StringIO(str(leaderboard.files()["leaderboard.csv"])))


@pytest.fixture(scope="module")
def page(boards: list[Board]) -> str:
    return leaderboard.filled(leaderboard.PLACEHOLDER)


def test_means_are_those_of_the_published_frame(values: pd.DataFrame) -> None:
    frame = pd.read_csv(REPORT / "results.csv.gz", keep_default_na=False, dtype=str)
    is_test = frame["metric"].str.startswith("test/")
    final = frame[is_test & (frame["final"] == "True")]
    final = final.assign(metric=final["metric"].str.removeprefix("test/"))
    variants = ["task", "metric", "loss", "network"]
    means = pd.to_numeric(final["value"]).groupby([final[name] for name in variants]).mean()
    for (task, metric), rows in values.groupby(["task", "metric"]):
        expected = means.loc[str(task), str(metric)].sort_values()
        assert list(rows["mean"].sort_values()) == pytest.approx(list(expected), rel=1e-4)


def test_ticks_are_those_of_the_study(values: pd.DataFrame) -> None:
    study = Study(read(REPORT))
    for (task, metric), rows in values.groupby(["task", "metric"]):
        summary = study.summary(str(task), str(metric))
        expected = summary.loc[summary["contender"], "mean"].sort_values()
        ticked = rows.loc[rows["may_be_best"].astype(str) == "True", "mean"].sort_values()
        assert list(ticked) == pytest.approx(list(expected), rel=1e-4)


def test_a_loss_has_its_head_even_if_its_report_leaves_it_out(values: pd.DataFrame) -> None:
    assert not (values["loss"] == "noisy-or").any()
    assert values["loss"].str.startswith("noisy-or (").any()


def test_a_cell_has_mean_spread_tick_and_bound() -> None:
    start = Study(read(REPOSITORY / "reports" / "start"))
    (board,) = boards_of("start", start)
    best = board.shown["whole label sets: set error (%) ↓"].iloc[0]
    assert re.fullmatch(r"[\d.]+ ± [\d.]+ ✓ ≤ [\d.]+", best)


def test_a_table_has_the_fields_of_the_table_by_use(boards: list[Board]) -> None:
    study = Study(read(REPORT))
    for board, task in zip(boards, study.tasks, strict=True):
        table = uses_table(study, task)
        assert table is not None
        of_losses = table.frame.iloc[: len(board.shown)]
        assert board.shown.to_numpy().tolist() == of_losses.to_numpy().tolist()


def test_the_second_row_says_where_losses_are_not_told_apart(page: str) -> None:
    assert re.search(r"<td>[\d.]+ points, most not told apart</td>", page)


def test_a_heading_names_task_and_report(page: str) -> None:
    assert "<h2>mnist-bags (train_bags=50) · mnist-bags</h2>" in page


def test_the_page_has_a_table_for_each_task(page: str) -> None:
    tasks = Study(read(REPORT)).tasks
    assert page.count("<table>") == page.count('<section class="board"') == len(tasks) > 1


def test_the_page_of_docs_has_the_placeholder_of_the_tables() -> None:
    text = (REPOSITORY / "docs" / leaderboard.PAGE).read_text("utf-8")
    words = re.sub(r"<[^>]+>", "", leaderboard.PLACEHOLDER)
    assert words in re.sub(r"[*`]", "", text)


@pytest.fixture
def site(page: str, tmp_path: Path) -> Path:
    """The page without the rest of the site, in a file."""
    script = (REPOSITORY / "docs" / "assets" / "leaderboard.js").read_text("utf-8")
    file = tmp_path / "leaderboard.html"
    inline = page.replace(leaderboard.SCRIPT, f"<script>{script}</script>")
    file.write_text(
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>x</title>{inline}', "utf-8"
    )
    return file


@NEEDS_BROWSER
def test_filters_hide_tables_columns_and_rows(site: Path) -> None:
    with opened(site) as tab:
        said: Any = tab.locator("output")
        assert said.inner_text() == "3 of 3 tables"
        tab.select_option('[name="use"]', "ranking")
        assert tab.locator(".board").first.locator("thead th:visible").all_inner_texts()[1:] == [
            tab.locator('[data-use="ranking"]').first.inner_text(),
            tab.locator("thead tr + tr th").first.inner_text(),
        ]
        tab.fill('[name="text"]', "dsmil")
        for name in tab.locator("tbody th:visible").all_inner_texts():
            assert "dsmil" in name


@NEEDS_BROWSER
def test_filters_that_no_table_fits_can_be_cleared(site: Path) -> None:
    with opened(site) as tab:
        said: Any = tab.locator("output")
        clear = tab.get_by_role("button", name="Clear the filters")
        assert clear.count() == 0
        tab.fill('[name="text"]', "no such loss")
        assert said.inner_text() == "No table fits."
        clear.click()
        assert said.inner_text() == "3 of 3 tables"
        assert tab.url == site.as_uri()


@NEEDS_BROWSER
def test_several_names_show_several_losses(site: Path) -> None:
    with opened(site) as tab:
        tab.fill('[name="text"]', "DSMIL, noisy or")
        names = tab.locator(".board").first.locator("tbody th:visible").all_inner_texts()
        assert {"dsmil" in name or "noisy-or" in name for name in names} == {True}
        assert any("dsmil" in name for name in names)
        assert any("noisy-or" in name for name in names)


@NEEDS_BROWSER
def test_the_best_for_a_use_come_first(site: Path) -> None:
    with opened(site) as tab:
        rows: Any = tab.locator(".board").first.locator("tbody tr")
        order_of_page = rows.all_inner_texts()
        tab.select_option('[name="use"]', "ranking")
        means = [float(text.split("\t")[1].split()[0]) for text in rows.all_inner_texts()]
        assert means == sorted(means, reverse=True)
        tab.select_option('[name="use"]', "")
        assert rows.all_inner_texts() == order_of_page


@NEEDS_BROWSER
def test_the_address_holds_the_filters(site: Path) -> None:
    with opened(site) as tab:
        tab.select_option('[name="use"]', "ranking")
        tab.fill('[name="text"]', "dsmil")
        said = tab.locator("output").inner_text()
        tab.goto(tab.url)
        assert tab.locator('[name="use"]').input_value() == "ranking"
        assert tab.locator('[name="text"]').input_value() == "dsmil"
        assert tab.locator("output").inner_text() == said


@NEEDS_BROWSER
def test_a_filter_that_an_address_made_up_is_left_out(site: Path) -> None:
    with opened(site) as tab:
        tab.goto(f"{site.as_uri()}?use=no-such-use")
        assert tab.locator('[name="use"]').input_value() == ""
        assert tab.locator("output").inner_text() == "3 of 3 tables"


@NEEDS_BROWSER
def test_a_click_on_a_head_sorts_by_its_column(site: Path) -> None:
    with opened(site) as tab:
        head = tab.locator('[data-use="ranking"]').first
        head.locator("button").click()
        assert head.get_attribute("aria-sort") == "descending"
        row = "tbody tr td:nth-child({})"
        column = head.evaluate("head => head.cellIndex + 1")
        cells = tab.locator(".board").first.locator(row.format(column)).all_inner_texts()
        means = [float(text.split()[0]) for text in cells]
        assert means == sorted(means, reverse=True)
        head.locator("button").click()
        assert head.get_attribute("aria-sort") == "ascending"


@NEEDS_BROWSER
def test_without_scripts_all_tables_are_shown(site: Path) -> None:
    with opened(site, java_script_enabled=False) as tab:
        assert tab.locator("table:visible").count() == 3
        assert tab.locator("form:visible").count() == 0
