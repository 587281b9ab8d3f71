"""The page of a report in a real browser: who can read it, on what, and that its tables sort."""

import atexit
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
    """Yield a page in a browser with options of `new_context`; fail where it logs an error or asks for another file."""
    complaints: list[str] = []
    window = _browser().new_context(**{"viewport": {"width": 1200, "height": 900}} | context)
    try:
        tab = window.new_page()
        tab.on(
            "console",
            lambda message: complaints.append(message.text) if message.type == "error" else None,
        )
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        own = page.as_uri(), "data:"
        tab.on(
            "request",
            lambda request: None if request.url.startswith(own) else complaints.append(request.url),
        )
        tab.goto(page.as_uri())
        yield tab
    finally:
        window.close()
    assert not complaints


@cache
def _browser() -> Any:
    """Return one browser for all tests of a process: it takes seconds to start. It ends with the process."""
    from playwright.sync_api import sync_playwright

    playwright = sync_playwright().start()
    atexit.register(playwright.stop)
    return playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])


OVERLAPS = """() => [...document.querySelectorAll("figure svg")].flatMap((svg) => {
  const texts = [...svg.querySelectorAll("text")].filter((t) => t.textContent.trim())
    .map((t) => [t.textContent, t.getBoundingClientRect()]).filter(([, r]) => r.width);
  return texts.flatMap(([one, a], i) => texts.slice(i + 1).filter(([, b]) =>
    Math.min(a.right, b.right) - Math.max(a.left, b.left) > 2 &&
    Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3).map(([other]) => `${one} | ${other}`));
})"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    losses = {
        "exact": 0.006,
        "max-pooling": 0.08,
        "noisy-or head=softmax": 0.007,
        "one-vs-rest": 0.021,
    }
    statuses = {("max-pooling", "extended-digits", 1): ("failed", "FloatingPointError: not finite")}
    results = make_results(
        folder / "cells", losses, statuses=statuses, info={"published": PUBLISHED}
    )
    return render(results, folder / "out")


def column(tab: Any, index: int) -> list[str]:
    rows = tab.locator("table:has(caption:text-is('All losses')) tbody tr")
    return list(rows.locator(f":nth-child({index})").all_inner_texts())


def test_everything_is_there_without_scripts(page: Path) -> None:
    with opened(page, java_script_enabled=False) as tab:
        assert tab.locator(".answer").first.is_visible()
        assert len(column(tab, 1)) == 4
        tab.get_by_text("What limits this").click()
        assert tab.get_by_text("sometimes collapse").is_visible()


def test_a_table_is_sorted_by_the_numbers_of_any_column(page: Path) -> None:
    with opened(page) as tab:
        head = tab.locator("table:has(caption:text-is('All losses')) thead th:nth-child(2)")
        for way in ("ascending", "descending"):
            head.locator("button").click()
            assert head.get_attribute("aria-sort") == way
            values = [float(text.split("±")[0]) for text in column(tab, 2)]
            assert values == sorted(values, reverse=way == "descending")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_to_complain_of(page: Path, scheme: Any) -> None:
    from axe_playwright_python.sync_playwright import Axe

    with opened(page, color_scheme=scheme) as tab:
        tab.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
        found = Axe().run(tab).response["violations"]
    assert [(one["id"], one["nodes"][0]["html"][:120]) for one in found] == []


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_wider_than_the_screen_and_no_label_lies_on_another(
    page: Path, width: int
) -> None:
    with opened(page, viewport={"width": width, "height": 900}) as tab:
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        assert tab.evaluate(OVERLAPS) == []
