"""The parts of the site that need no mkdocs: links, pages of reports, and the check of a site."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from milbench._utils.palette import contrast
from milbench.report.lengths import lengths_of
from milbench.report.study import Study
from tests._helpers.command_line import REPOSITORY
from tests.report.test_lengths import at_lengths, with_steps
from tests.report.test_page import opened
from website import check, lengths, reports

NEEDS_BROWSER = pytest.mark.skipif(
    not (shutil.which("chromium") or shutil.which("chromium-browser")),
    reason="no chromium here: apt-get install chromium",
)
DOCUMENTS = [
    *REPOSITORY.glob("*.md"),
    *(REPOSITORY / "docs").glob("*.md"),
    REPOSITORY / "examples" / "README.md",
]


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: page.name)
def test_links_to_files_hold_on_github(page: Path) -> None:
    links = re.findall(r"\]\(([^()\s#:]+)[)#]", page.read_text("utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.fixture(scope="module")
def one_report() -> dict[str, Any]:
    """The files of the site for one report; `make docs` makes the files of all reports."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reports, "LISTED", re.compile(r"\]\((supplementary-a)/report\.md\)"))
        return dict(reports.files())


def test_the_site_has_a_published_report(one_report: dict[str, Any]) -> None:
    assert "<caption>All losses" in one_report["reports/supplementary-a/index.html"]


def test_a_published_report_leads_to_the_site(one_report: dict[str, Any]) -> None:
    page = one_report["reports/supplementary-a/index.html"]
    for target in ("index.html", "leaderboard.html", "report.html"):
        assert f'href="../../{target}' in page


def test_the_gallery_has_a_report_with_its_sentence(one_report: dict[str, Any]) -> None:
    (card,) = str(one_report["gallery.md"]).split('<div class="card wide"')[1:]
    assert "](supplementary-a/report.md)" in card
    assert "95 % confidence" in card


def test_a_report_is_drawn_again_only_if_it_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = tmp_path / "drawn"

    def draw(name: str, digest: str) -> reports.Drawn:
        with drawn.open("a") as file:
            file.write(f"{name}\n")
        return reports.Drawn(f"{name}, drawn", [])

    monkeypatch.setattr(reports, "_drawn", draw)
    monkeypatch.setattr(reports, "REPORTS", tmp_path)
    monkeypatch.setattr(reports, "CACHE", tmp_path / "cache")
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "results.csv").write_text("0.1")
    names = ["first", "second"]
    reports._kept(names)
    (tmp_path / "second" / "results.csv").write_text("0.2")
    assert [report.page for report in reports._kept(names)] == ["first, drawn", "second, drawn"]
    assert sorted(drawn.read_text().split()) == ["first", "second", "second"]


@pytest.fixture
def two_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the site show results: loss a is worse than b after 2 epochs, and better after 8."""
    errors = {2: {"a": 0.3, "b": 0.1}, 8: {"a": 0.01, "b": 0.05}}
    found = lengths_of(Study(with_steps(at_lengths(errors))))
    monkeypatch.setattr(lengths, "lengths", lambda: found)


@pytest.mark.usefixtures("two_lengths")
def test_a_page_says_where_a_loss_stands_at_each_length() -> None:
    lines = lengths.section(loss="a").splitlines()
    (row,) = [line for line in lines if "extended-digits" in line]
    _, _task, after_2, after_8, *_ = row.split("|")
    assert "✓" not in after_2
    assert "✓" in after_8


@pytest.mark.usefixtures("two_lengths")
def test_a_loss_that_was_not_trained_at_two_lengths_has_no_section() -> None:
    assert lengths.section(loss="c") == ""
    assert lengths.section(network="gated-attention") == ""


def test_formulas_become_pictures_that_can_be_read_out() -> None:
    formulas = pytest.importorskip("website.formulas", exc_type=ImportError)
    page = formulas.draw(
        r'<p>a <span class="arithmatex">\(a_k &lt; 1\)</span></p>'
        r'<div class="arithmatex">\[ x \]</div>'
    )
    assert "arithmatex" not in page
    assert page.count("<svg ") == page.count('role="img"') == 2
    assert 'aria-label="a_k &lt; 1"' in page


LEAST_CONTRAST = 4.5
"""The least contrast of text: success criterion 1.4.3 of WCAG 2.2."""


@pytest.mark.parametrize(
    ("scheme", "colour_of_page"),
    [
        pytest.param("default", "#ffffff", id="light"),
        pytest.param("slate", "#1e2129", id="dark"),
    ],
)
def test_links_of_the_site_can_be_read(scheme: str, colour_of_page: str) -> None:
    """The colours behind the links are the theme's colours of a page."""
    style = (REPOSITORY / "website" / "site.css").read_text("utf-8")
    start = style.index(f'[data-md-color-scheme="{scheme}"][data-md-color-primary="teal"]')
    end = style.index("}", start)
    rules = dict(re.findall(r"--md-([\w-]+): (#\w+);", style[start:end]))
    assert contrast(rules["typeset-a-color"], colour_of_page) >= LEAST_CONTRAST
    assert contrast(rules["accent-fg-color"], colour_of_page) >= LEAST_CONTRAST
    assert contrast("#ffffff", rules["primary-fg-color"]) >= LEAST_CONTRAST


PAGES_THAT_NAME_FILES = [REPOSITORY / "CONTRIBUTING.md", *(REPOSITORY / "docs").glob("*.md")]
FILE_NAME = re.compile(r"`((?:milbench|losses|tasks|tests|website)/[\w/.-]*)`")


@pytest.mark.parametrize("page", PAGES_THAT_NAME_FILES, ids=lambda page: page.name)
def test_the_files_that_documents_name_exist(page: Path) -> None:
    # In this path, NAME stands for a name that the reader chooses.
    named = set(FILE_NAME.findall(page.read_text("utf-8"))) - {"losses/NAME.py"}
    assert [name for name in sorted(named) if not (REPOSITORY / name).exists()] == []


def test_broken_links_and_foreign_files_of_a_site_are_named(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(
        '<a href="other.html#here">a</a> <a href="other.html#nowhere">b</a> '
        '<a href="gone.html">c</a>'
        '<a href="#top">d</a> <a href="https://arxiv.org">e</a>'
        '<script src="https://cdn.example/x.js"></script> <img src="missing.png">',
        "utf-8",
    )
    (tmp_path / "other.html").write_text('<h2 id="here">x</h2>', "utf-8")
    (tmp_path / "site.css").write_text(
        "@font-face { src: url('//fonts.example/f.woff2') } a { background: url(a.png) }", "utf-8"
    )
    assert check.problems(tmp_path) == [
        "index.html: fetches https://cdn.example/x.js",
        "index.html: broken link #top",
        "index.html: broken link gone.html",
        "index.html: broken link missing.png",
        "index.html: broken link other.html#nowhere",
        "site.css: fetches //fonts.example/f.woff2",
    ]


@NEEDS_BROWSER
def test_a_keyboard_can_scroll_what_is_wider_than_the_page(tmp_path: Path) -> None:
    script = (REPOSITORY / "website" / "site.js").read_text("utf-8")
    part = '<div class="scrolled" style="overflow-x: auto"><div style="width: {}px">x</div></div>'
    page = tmp_path / "wide.html"
    page.write_text(
        f"<!doctype html><meta charset=utf-8>{part.format(9000)}{part.format(10)}"
        f"<script>{script}</script>",
        "utf-8",
    )
    with opened(page) as tab:
        tab.keyboard.press("Tab")
        assert tab.evaluate("document.activeElement.firstChild.clientWidth") == 9000
        tab.keyboard.press("ArrowRight")
        tab.wait_for_function("document.activeElement.scrollLeft > 0")
        assert tab.locator("[tabindex]").count() == 1
