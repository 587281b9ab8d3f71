"""Debian's Chromium, driven by Playwright, for tests of pages; they skip where it is missing and say so."""

from __future__ import annotations

import atexit
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: apt-get install chromium")


@contextmanager
def opened(page: Path, fragment: str = "", **context: Any) -> Iterator[Any]:
    """Yield a page in a browser; fail where it logs an error, raises one, or asks for anything but pages of its folder.

    context: options of Playwright's new_context, such as viewport, color_scheme or java_script_enabled.
    """
    complaints: list[str] = []
    window = _browser().new_context(**{"viewport": {"width": 1200, "height": 900}} | context)
    try:
        tab = window.new_page()
        tab.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.on("request", lambda request: complaints.append(request.url) if _is_foreign(request.url, page) else None)
        tab.goto(f"{page.as_uri()}{fragment}")
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


def _is_foreign(url: str, page: Path) -> bool:
    """Return whether an address is neither in the page nor another page of its folder, to which a reader went."""
    own = url.startswith(f"{page.parent.as_uri()}/") and url.partition("#")[0].endswith(".html")
    return not (own or url.startswith("data:"))
