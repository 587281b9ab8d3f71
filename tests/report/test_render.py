"""The files of a report: the page, Markdown, LaTeX and pictures."""

import html
import re
from pathlib import Path

import pytest

from milbench.experiment.questions import Mark
from milbench.report.published_reports import read, save
from milbench.report.render import render
from tests._helpers.report_data import ONE, PUBLISHED, make_results

TASK = "extended-digits"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    statuses = {("max-pooling", TASK, 1): ("failed", "FloatingPointError: <not finite>")}
    contrasts = [{"name": "the joint", "first": "exact", "second": "noisy-or"}]
    results = make_results(
        folder / "cells",
        tasks=ONE,
        statuses=statuses,
        title="A <title>",
        contrasts=contrasts,
        notes=["A limit."],
        info={"published": PUBLISHED, "chance": 0.9},
    )
    render(results, folder / "out")
    return folder / "out"


SCRIPTS_STYLES_AND_TAGS = re.compile(r"<(script|style).*?</\1>|<[^>]*>", re.DOTALL)


def text_of(page: Path) -> str:
    """Return what a reader sees of a page."""
    return html.unescape(SCRIPTS_STYLES_AND_TAGS.sub(" ", page.read_text("utf-8")))


def test_the_page_has_its_parts_in_the_order_of_their_weight(report: Path) -> None:
    page = (report / "index.html").read_text("utf-8")
    parts = [
        "A &lt;title&gt;",
        "Best on extended-digits: ",
        "One-instance error of each loss on test bags, 3 seeds",
        "<caption>All losses",
        "<summary>What limits this",
        # The contents, which come before all others, name these pictures too.
        "<b>What each loss finds where",
        "<b>One-instance error of each loss, epoch by epoch",
        "<b>Differences in one-instance error between every two losses",
        "Published numbers beside ours",
        f"Every cell on {TASK}",
    ]
    starts = [page.index(part) for part in parts]
    assert starts == sorted(starts)


BOTH_FILES = pytest.mark.parametrize("name", ["index.html", "report.md"])


@BOTH_FILES
def test_the_reason_of_a_failure_is_not_read_as_markup(report: Path, name: str) -> None:
    assert "<not finite>" not in (report / name).read_text("utf-8")


def test_what_failed_is_told_with_its_reason(report: Path) -> None:
    failed = "failed: max-pooling on extended-digits, seed 1 (FloatingPointError: <not finite>)"
    assert failed in text_of(report / "index.html")


@BOTH_FILES
def test_cells_that_are_not_done_are_counted_in_a_line(report: Path, name: str) -> None:
    assert "11 of 12 cells are done (1 failed)." in text_of(report / name)


def text_of_published(tmp_path: Path, status: tuple[str, str]) -> str:
    """Return the text of a page that was published with one cell that is not done."""
    results = make_results(tasks=ONE, statuses={("exact", TASK, 1): status})
    save(results, tmp_path / "published")
    return text_of(render(read(tmp_path / "published"), tmp_path / "out"))


def test_a_published_page_says_calmly_how_many_planned_cells_it_has(tmp_path: Path) -> None:
    said = text_of_published(tmp_path, ("missing", ""))
    assert "This report has 11 of 12 planned cells." in said
    assert "not run: exact on extended-digits, seed 1" in said
    page = (tmp_path / "out" / "index.html").read_text("utf-8")
    every_cell = page.partition('class="cells"')[2].partition("</table>")[0]
    assert 'class="marked"' not in every_cell


def test_a_published_page_still_tells_what_failed(tmp_path: Path) -> None:
    said = text_of_published(tmp_path, ("failed", "FloatingPointError: not finite"))
    assert "11 of 12 cells are done (1 failed)." in said
    assert "failed: exact on extended-digits, seed 1 (FloatingPointError: not finite)" in said


def test_every_number_is_traced_to_its_cell_and_run(report: Path) -> None:
    cells = make_results(tasks=ONE).frame.drop_duplicates("cell")
    said = text_of(report / "index.html")
    for cell, run in zip(cells["cell"], cells["run"], strict=True):
        assert cell in said
        assert run in said


def test_the_page_loads_nothing_from_elsewhere(report: Path) -> None:
    page = (report / "index.html").read_text("utf-8")
    without_namespaces = re.sub(r'xmlns(:xlink)?="[^"]*"', "", page)
    assert not re.findall(r'(?:src|href)="(?!#|data:)[^"]*"|https?://|@import', without_namespaces)


def test_markdown_shows_the_pictures_beside_it(report: Path) -> None:
    text = (report / "report.md").read_text("utf-8")
    shown = re.findall(r"\]\((pictures/[^)]+\.png)\)", text)
    written = {f"pictures/{path.name}" for path in (report / "pictures").iterdir()}
    assert 0 < len(shown) <= 8
    assert set(shown) == written


def test_a_table_is_written_for_latex(report: Path) -> None:
    assert r"\begin{tabular}" in (report / "table.tex").read_text("utf-8")


def test_a_report_without_galleries_removes_the_pictures_of_an_earlier_one(tmp_path: Path) -> None:
    results = make_results(tmp_path / "cells", tasks=ONE)
    out = tmp_path / "out"
    assert "What each loss finds where" in render(results, out).read_text("utf-8")
    page = render(results, out, gallery=False).read_text("utf-8")
    assert "What each loss finds where" not in page
    assert not list((out / "pictures").glob("gallery-*"))


def test_earlier_reliability_diagrams_are_kept(tmp_path: Path) -> None:
    earlier = tmp_path / "pictures" / f"reliability-{TASK}.png"
    earlier.parent.mkdir()
    earlier.write_bytes(b"a picture")
    page = render(make_results(tasks=ONE), tmp_path)
    assert earlier.read_bytes() == b"a picture"
    assert "How often classes are present" in page.read_text("utf-8")


def test_progress_names_every_task_that_is_drawn(tmp_path: Path) -> None:
    told: list[str] = []
    render(make_results(), tmp_path, tell=told.append)
    assert "drawing extended-digits, task 1 of 2" in told
    assert "drawing synthetic-bags, task 2 of 2" in told


def test_the_same_results_give_the_same_bytes(tmp_path: Path) -> None:
    once = render(make_results(tasks=ONE, seeds=2), tmp_path / "once")
    again = render(make_results(tasks=ONE, seeds=2), tmp_path / "again")
    assert once.read_bytes() == again.read_bytes()


THREE_LOSSES = {"a": 0.01, "b": 0.4, "c": 0.3}


def test_many_tasks_have_a_heat_map(tmp_path: Path) -> None:
    tasks = {f"t{number}": "set_error" for number in range(7)}
    page = render(make_results(losses=THREE_LOSSES, tasks=tasks), tmp_path)
    assert "Set error of each loss on each task" in page.read_text("utf-8")


def test_the_markdown_of_many_tasks_has_their_tables_by_use(tmp_path: Path) -> None:
    tasks = {f"t{number}": "set_error" for number in range(7)}
    render(make_results(losses=THREE_LOSSES, tasks=tasks), tmp_path)
    text = (tmp_path / "report.md").read_text("utf-8")
    for task in tasks:
        assert f"**By use on {task}**" in text


def test_marks_have_a_heat_map(tmp_path: Path) -> None:
    marks = [Mark("easy", "t", at_most={"set_error": 0.05})]
    results = make_results(losses=THREE_LOSSES, tasks={"t": "set_error"}, info={"marks": marks})
    said = text_of(render(results, tmp_path))
    assert "Which losses pass which tests, by set error" in said
    assert "easy (at most 5 %)" in said


def test_a_comparison_without_results_has_a_page(tmp_path: Path) -> None:
    missing = {(loss, TASK, seed): ("missing", "") for loss in "ab" for seed in range(3)}
    results = make_results(losses={"a": 0.1, "b": 0.1}, tasks=ONE, statuses=missing)
    said = text_of(render(results, tmp_path))
    assert "No cell of this comparison has a result yet." in said
