"""The gallery of published reports, and their pages."""

from __future__ import annotations

import re
from pathlib import Path

from website import REPOSITORY

REPORTS = REPOSITORY / "reports"
LISTED = re.compile(r"\]\(([^/)]+)/report\.md\)")
EARLIER = "made by earlier rules"
"""In reports/README.md, above the reports of which that is said."""
# Links are those of reports/README.md, whose page this is.
CARD = """<div class="card wide" markdown>
**[{name}]({name}/report.md)**

[![Every seed of every loss in {name}]({name}/picture.png)]({name}/report.md)

*{question}*

{finding}

<span class="quiet">{rules}{size:.1f} MB, one file that needs no network</span>
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
    names, earlier = (LISTED.findall(text) for text in (listed, listed.partition(EARLIER)[2]))
    cards = "\n".join(_card(name, "made by earlier rules, see below; " if name in earlier else "") for name in names)
    made: dict[str, str | bytes] = {"gallery.md": PAGE.format(cards=cards, notes=listed.partition("\n")[2].strip())}
    for name in names:
        made[f"reports/{name}/index.html"] = (REPORTS / name / "index.html").read_bytes()
        made[f"reports/{name}/picture.png"] = _picture(name).read_bytes()
    return made


def _card(name: str, rules: str) -> str:
    text = (REPORTS / name / "report.md").read_text("utf-8")
    question = re.search(r"^\*(.+)\*$", text, re.MULTILINE)
    finding = re.search(r"^- (\*\*.+)$", text, re.MULTILINE)
    if question is None or finding is None:
        raise ValueError(f"reports/{name}/report.md has no question in italics, or no finding for a task in bold")
    size = (REPORTS / name / "index.html").stat().st_size / 1e6
    return CARD.format(name=name, question=question[1], finding=finding[1], rules=rules, size=size)


def _picture(name: str) -> Path:
    return min((REPORTS / name / "figures").glob("seeds-*.png"))
