"""The gallery of published reports, and their pages."""

from __future__ import annotations

import re
from pathlib import Path

from website import REPOSITORY

REPORTS = REPOSITORY / "reports"
LISTED = re.compile(r"\]\(([^/)]+)/report\.md\)")
# Links are those of reports/README.md, whose page this is.
CARD = """<div class="card wide" markdown>
**[{name}]({name}/report.md)**

[![Every seed of every loss in {name}]({name}/picture.png)]({name}/report.md)

*{question}*

{finding}

<span class="quiet">{size:.1f} MB, {files} no network</span>
</div>
"""
PAGE = """# Published reports

A report is what `milbench report` writes: one page with its tables and figures in it. What its numbers mean:
[statistics of a report](../docs/reports.md).

<div class="cards" markdown>
{cards}
</div>

## What was run

{notes}"""


def files() -> dict[str, str | bytes]:
    """Return the gallery, and the page and the picture of every published report."""
    listed = (REPORTS / "README.md").read_text("utf-8")
    names = LISTED.findall(listed)
    cards = "\n".join(map(_card, names))
    made: dict[str, str | bytes] = {"gallery.md": PAGE.format(cards=cards, notes=listed.partition("\n")[2].strip())}
    for name in names:
        made |= {f"reports/{name}/{file}": (REPORTS / name / file).read_bytes() for file in _files_of(name)}
        made[f"reports/{name}/picture.png"] = _picture(name).read_bytes()
    return made


def _files_of(name: str) -> list[str]:
    """Return the pages of a report and the files beside them to which they link."""
    pages = _pages_of(name)
    text = "".join(page.read_text("utf-8") for page in pages)
    return [*(page.name for page in pages), *dict.fromkeys(re.findall(r'href="(figures/[^"]+)"', text))]


def _pages_of(name: str) -> list[Path]:
    """Return the page of a report, and those of its tasks where they have pages of their own."""
    folder = REPORTS / name
    return [folder / "index.html", *sorted(folder.glob("task-*.html"))]


def _card(name: str) -> str:
    text = (REPORTS / name / "report.md").read_text("utf-8")
    question = re.search(r"^\*(.+)\*$", text, re.MULTILINE)
    finding = re.search(r"^## Which loss should I use\?\n\n(.+)$", text, re.MULTILINE)
    if question is None or finding is None:
        raise ValueError(f"reports/{name}/report.md has no question in italics, or no answer: render it again")
    pages = _pages_of(name)
    size = sum(page.stat().st_size for page in pages) / 1e6
    files = "one file that needs" if len(pages) == 1 else f"{len(pages)} files that need"
    return CARD.format(name=name, question=question[1], finding=finding[1], size=size, files=files)


def _picture(name: str) -> Path:
    return min((REPORTS / name / "figures").glob("seeds-*.png"))
