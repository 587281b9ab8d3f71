"""The reports in the repository: what a page weighs, and what it must not hold."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests._helpers.command_line import REPOSITORY

PAGES = sorted((REPOSITORY / "reports").glob("*/*.html"))
PICTURES = re.compile(r"data:image/[^\"]*")
MOST = 1_500_000


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.name}")
def test_a_published_page_is_light_without_its_galleries(page: Path) -> None:
    text = page.read_text("utf-8")
    assert len(PICTURES.sub("", text).encode()) <= MOST


def test_there_are_pages_to_look_at() -> None:
    assert len(PAGES) >= 5
