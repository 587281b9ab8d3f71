"""The page of a report in a real browser: with and without scripts, on small and large screens."""

import atexit
import csv
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from milbench.report.render import render
from tests._helpers.report_data import PUBLISHED, make_results

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: apt-get install chromium"),
    pytest.mark.timeout(120),
]


@contextmanager
def opened(page: Path, **context: Any) -> Iterator[Any]:
    """Yield a page in a tab of a browser; fail if it logs an error or requests another file.

    `context` are options of Playwright's `new_context`.
    """
    complaints: list[str] = []

    def note_logged_error(message: Any) -> None:
        if message.type == "error":
            complaints.append(message.text)

    def note_uncaught_error(error: Any) -> None:
        complaints.append(str(error))

    def note_foreign_request(request: Any) -> None:
        if not request.url.startswith((page.as_uri(), "data:")):
            complaints.append(request.url)

    options = {"viewport": {"width": 1200, "height": 900}} | context
    window = _browser().new_context(**options)
    try:
        tab = window.new_page()
        tab.on("console", note_logged_error)
        tab.on("pageerror", note_uncaught_error)
        tab.on("request", note_foreign_request)
        tab.goto(page.as_uri())
        yield tab
    finally:
        window.close()
    assert not complaints


@cache
def _browser() -> Any:
    """Return the one browser of all tests of a process, since it takes seconds to start.

    It ends with the process.
    """
    from playwright.sync_api import sync_playwright

    playwright = sync_playwright().start()
    atexit.register(playwright.stop)
    return playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])


OVERLAPS = """() => {
  const found = [];
  for (const svg of document.querySelectorAll("figure svg")) {
    const labels = [];
    for (const text of svg.querySelectorAll("text")) {
      const box = text.getBoundingClientRect();
      if (text.textContent.trim() && box.width) labels.push([text.textContent, box]);
    }
    labels.forEach(([one, a], number) => {
      for (const [other, b] of labels.slice(number + 1)) {
        const width = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const height = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        // The boxes of letters have a little air around them, so that 2 px across or 3 px down
        // hide nothing.
        if (width > 2 && height > 3) found.push(`${one} | ${other}`);
      }
    });
  }
  return found;
}"""
"""JavaScript that returns the texts of every two labels of a figure that overlap."""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the page of a report on four losses and two tasks, with one failed cell."""
    folder = tmp_path_factory.mktemp("page")
    # Loss -> its one-instance error. The losses are not in the order of their errors.
    losses = {
        "exact": 0.006,
        "max-pooling": 0.08,
        "noisy-or head=softmax": 0.007,
        "one-vs-rest": 0.021,
    }
    # (loss, task, seed) -> the status of the cell, and why it has this status.
    statuses = {("max-pooling", "extended-digits", 1): ("failed", "FloatingPointError: not finite")}
    results = make_results(
        folder / "cells", losses, statuses=statuses, info={"published": PUBLISHED}
    )
    return render(results, folder / "out")


def column(tab: Any, index: int) -> list[str]:
    """Return the texts of a column of the table of all losses; the first column is 1."""
    rows = tab.locator("table:has(caption:text-is('All losses')) tbody tr")
    return list(rows.locator(f":nth-child({index})").all_inner_texts())


def test_everything_is_there_without_scripts(page: Path) -> None:
    with opened(page, java_script_enabled=False) as tab:
        assert tab.locator(".answer").first.is_visible()
        names_of_losses = column(tab, 1)
        assert len(names_of_losses) == 4
        assert tab.get_by_text("sometimes collapse").is_visible()
        # The click opens a section, and a sentence of this section is seen.
        tab.locator("summary", has_text="What the metrics mean").click()
        assert tab.get_by_text("Share of the bags whose").first.is_visible()


def test_a_table_is_sorted_by_the_numbers_of_a_column(page: Path) -> None:
    """The first click sorts upwards, and the second one downwards."""
    with opened(page) as tab:
        head = tab.locator("table:has(caption:text-is('All losses')) thead th:nth-child(2)")
        head.locator("button").click()
        assert head.get_attribute("aria-sort") == "ascending"
        values = means_of_errors(tab)
        assert values == sorted(values)
        head.locator("button").click()
        assert head.get_attribute("aria-sort") == "descending"
        assert means_of_errors(tab) == sorted(values, reverse=True)


def means_of_errors(tab: Any) -> list[float]:
    """Return the means in the second column, such as 0.52 of "0.52 ± 0.04"."""
    return [float(text.split("±")[0]) for text in column(tab, 2)]


CLIPBOARD = ["clipboard-read", "clipboard-write"]


def copied_by(tab: Any, name: str) -> str:
    """Click on the button with this name, and return what is in the clipboard then."""
    tab.get_by_role("button", name=name).click()
    tab.get_by_text("copied").wait_for()
    return str(tab.evaluate("navigator.clipboard.readText()"))


def test_a_table_is_copied_as_csv_in_the_order_shown(page: Path) -> None:
    with opened(page, permissions=CLIPBOARD) as tab:
        copied = copied_by(tab, "copy as CSV: All losses")
        losses_shown = column(tab, 1)
    head, *rows = csv.reader(copied.splitlines())
    assert head[0] == "loss"
    assert [row[0] for row in rows] == losses_shown
    assert {len(row) for row in rows} == {len(head)}


def test_a_table_is_copied_as_markdown(page: Path) -> None:
    with opened(page, permissions=CLIPBOARD) as tab:
        copied = copied_by(tab, "copy as Markdown: All losses")
        losses_shown = column(tab, 1)
    head, line, *rows = copied.splitlines()
    assert head.startswith("| loss |")
    assert set(line) == set("| -")
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows] == losses_shown


def test_a_page_without_scripts_has_no_dead_buttons(page: Path) -> None:
    with opened(page, java_script_enabled=False) as tab:
        assert tab.locator("button").count() == 0


def test_every_entry_of_the_contents_leads_to_its_section(page: Path) -> None:
    with opened(page, java_script_enabled=False) as tab:
        entries = tab.locator("nav a")
        anchors = [entries.nth(k).get_attribute("href") for k in range(entries.count())]
        assert "#task-extended-digits" in anchors
        assert [anchor for anchor in anchors if tab.locator(anchor).count() != 1] == []


def test_contents_are_open_beside_a_wide_page_and_folded_above_a_narrow_one(page: Path) -> None:
    for width, is_open in ((1280, True), (390, False)):
        with opened(page, viewport={"width": width, "height": 900}) as tab:
            assert tab.get_by_role("link", name="The answer").is_visible() is is_open


def test_contents_name_the_section_that_is_read(page: Path) -> None:
    with opened(page, viewport={"width": 1280, "height": 900}) as tab:
        tab.get_by_role("link", name="Where this comes from").click()
        tab.locator("nav [aria-current]", has_text="Where this comes from").wait_for()


def test_an_entry_of_the_contents_opens_a_folded_section(page: Path) -> None:
    with opened(page, viewport={"width": 1280, "height": 900}) as tab:
        limits: Any = tab.locator("summary", has_text="What limits this")
        limits.click()
        assert not tab.get_by_text("sometimes collapse").is_visible()
        tab.get_by_role("link", name="What limits this").click()
        assert tab.get_by_text("sometimes collapse").is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_to_complain_of(page: Path, scheme: Any) -> None:
    """Axe checks that people who see badly or use no mouse can read a page."""
    from axe_playwright_python.sync_playwright import Axe

    open_all_details = "document.querySelectorAll('details').forEach((d) => { d.open = true; })"
    with opened(page, color_scheme=scheme) as tab:
        tab.evaluate(open_all_details)
        violations = Axe().run(tab).response["violations"]
    # A failed test shows the rule of each violation, and the element.
    found = [(violation["id"], violation["nodes"][0]["html"][:120]) for violation in violations]
    assert found == []


SCREENS = pytest.mark.parametrize("width", [390, 1280], ids=["telephone", "laptop"])


@SCREENS
def test_nothing_is_wider_than_the_screen(page: Path, width: int) -> None:
    with opened(page, viewport={"width": width, "height": 900}) as tab:
        assert tab.evaluate("document.documentElement.scrollWidth") <= width


@SCREENS
def test_no_label_of_a_figure_lies_on_another(page: Path, width: int) -> None:
    with opened(page, viewport={"width": width, "height": 900}) as tab:
        assert tab.evaluate(OVERLAPS) == []
