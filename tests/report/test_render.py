"""The files of a report: what they say, where numbers are found, and what they ask of a reader's machine."""

import html
import re
from pathlib import Path

import pytest

from milbench.experiment.questions import Mark
from milbench.report.render import render
from tests._helpers.report_data import ONE, PUBLISHED, make_results

TASK = "extended-digits"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    statuses = {("max-pooling", TASK, 1): ("failed", "FloatingPointError: <not finite>")}
    contrasts = [{"name": "the joint", "first": "exact", "second": "noisy-or"}]
    results = make_results(folder / "cells", tasks=ONE, statuses=statuses, title="A <title>", contrasts=contrasts,
                           notes=["A limit."], info={"published": PUBLISHED, "chance": 0.9})  # fmt: skip
    render(results, folder / "out")
    return folder / "out"


def text_of(page: Path) -> str:
    return html.unescape(
        re.sub(r"<(script|style).*?</\1>|<[^>]*>", " ", page.read_text("utf-8"), flags=re.DOTALL)
    )


def test_the_page_opens_with_the_sentence_the_picture_the_table_and_the_limits(
    report: Path,
) -> None:
    page = (report / "index.html").read_text("utf-8")
    places = [page.index(part) for part in (
        "A &lt;title&gt;", "Best on extended-digits: ",
        "One-instance error of each loss on test bags, 3 seeds", "<caption>All losses",
        "What limits this", "What each loss finds where", "One-instance error of each loss, epoch by epoch",
        "Differences in one-instance error between every two losses",
        "Published numbers beside ours", f"Every cell on {TASK}",
    )]  # fmt: skip
    assert places == sorted(places)


def test_what_failed_is_told_with_its_reason_and_nothing_is_markup(report: Path) -> None:
    for name in ("index.html", "report.md"):
        assert "<not finite>" not in (report / name).read_text("utf-8").replace(
            "&lt;not finite&gt;", ""
        )
    assert (
        "failed: max-pooling on extended-digits, seed 1 (FloatingPointError: <not finite>)"
        in text_of(report / "index.html")
    )


def test_cells_that_are_not_done_are_counted_in_a_line(report: Path) -> None:
    for name in ("index.html", "report.md"):
        assert "11 of 12 cells are done (1 failed)." in text_of(report / name)


def test_every_number_is_traced_to_its_cell_and_run(report: Path) -> None:
    results = make_results(tasks=ONE)
    said = text_of(report / "index.html")
    for cell, run in (
        results.frame[["cell", "run"]].drop_duplicates().itertuples(index=False, name=None)
    ):
        assert str(cell) in said
        assert str(run) in said


def test_the_page_asks_nothing_of_a_network(report: Path) -> None:
    page = (report / "index.html").read_text("utf-8")
    without_namespaces = re.sub(r'xmlns(:xlink)?="[^"]*"', "", page)
    assert not re.findall(r'(?:src|href)="(?!#|data:)[^"]*"|https?://|@import', without_namespaces)


def test_markdown_shows_the_pictures_beside_it(report: Path) -> None:
    text = (report / "report.md").read_text("utf-8")
    pictures = re.findall(r"\]\((pictures/[^)]+\.png)\)", text)
    assert 0 < len(pictures) <= 8
    assert {f"pictures/{path.name}" for path in (report / "pictures").iterdir()} == set(pictures)
    assert r"\begin{tabular}" in (report / "table.tex").read_text("utf-8")


def test_galleries_are_left_out_on_request_and_old_pictures_go(
    report: Path, tmp_path: Path
) -> None:
    results = make_results(tmp_path / "cells", tasks=ONE)
    assert "What each loss finds where" in render(results, tmp_path / "out").read_text("utf-8")
    page = render(results, tmp_path / "out", gallery=False).read_text("utf-8")
    assert "What each loss finds where" not in page
    assert not list((tmp_path / "out/pictures").glob("gallery-*"))


def test_earlier_reliability_diagrams_are_kept(tmp_path: Path) -> None:
    earlier = tmp_path / "pictures" / f"reliability-{TASK}.png"
    earlier.parent.mkdir()
    earlier.write_bytes(b"a picture")
    page = render(make_results(tasks=ONE), tmp_path)
    assert earlier.read_bytes() == b"a picture"
    assert "How often classes are present" in page.read_text("utf-8")


def test_every_task_is_told_while_it_is_drawn(tmp_path: Path) -> None:
    told: list[str] = []
    render(make_results(), tmp_path, tell=told.append)
    assert "drawing extended-digits, task 1 of 2" in told
    assert "drawing synthetic-bags, task 2 of 2" in told


def test_the_same_results_give_the_same_bytes(tmp_path: Path) -> None:
    pages = [
        render(make_results(tasks=ONE, seeds=2), tmp_path / name).read_bytes()
        for name in ("one", "two")
    ]
    assert pages[0] == pages[1]


def test_many_tasks_are_a_heat_map_and_marks_another(tmp_path: Path) -> None:
    losses, many = {"a": 0.01, "b": 0.4, "c": 0.3}, {f"t{k}": "set_error" for k in range(7)}
    page = render(make_results(losses=losses, tasks=many), tmp_path / "many").read_text("utf-8")
    assert "Set error of each loss on each task" in page
    marks = [Mark("easy", "t", at_most={"set_error": 0.05})]
    results = make_results(losses=losses, tasks={"t": "set_error"}, info={"marks": marks})
    said = text_of(render(results, tmp_path / "marks"))
    assert "Which losses pass which tests, by set error" in said
    assert "easy (at most 5 %)" in said


def test_nothing_computed_is_a_page_too(tmp_path: Path) -> None:
    lost = {(loss, TASK, seed): ("missing", "") for loss in ("a", "b") for seed in range(3)}
    said = text_of(
        render(make_results(losses={"a": 0.1, "b": 0.1}, tasks=ONE, statuses=lost), tmp_path)
    )
    assert "No cell of this comparison has a result yet." in said
