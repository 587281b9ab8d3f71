"""The gallery of published reports, and their pages, made from what is kept of them."""

import re
import shutil
import sys
import tempfile
from pathlib import Path

from milbench._utils.console import write_line
from milbench.report.published_reports import read
from milbench.report.render import PICTURES, render
from website import REPOSITORY

REPORTS = REPOSITORY / "reports"
LISTED = re.compile(r"\]\(([^/)]+)/report\.md\)")
# Links are those of reports/README.md, whose page this is.
CARD = """<div class="card wide" markdown>
**[{name}]({name}/report.md)**

[![{name}: the losses and what they reach]({name}/{picture})]({name}/report.md)

*{title}*

{sentence}
</div>
"""
PAGE = """---
hide: [toc]
---
# Published reports

A report is what `milbench report` writes: one page with its tables and figures in it. What its numbers mean:
[statistics of a report](../docs/statistics.md).

<div class="cards wide" markdown>
{cards}
</div>

## What was run

{notes}"""


def files() -> dict[str, str | bytes]:
    """Return the gallery, the page and the first picture of every published report, and those that documents show."""
    listed = (REPORTS / "README.md").read_text("utf-8")
    made: dict[str, str | bytes] = {}
    cards = []
    names = LISTED.findall(listed)
    for number, name in enumerate(names, start=1):
        write_line(sys.stderr, f"drawing {name}, report {number} of {len(names)}")
        with tempfile.TemporaryDirectory() as parent:
            folder = Path(parent) / name
            shutil.copytree(
                REPORTS / name / PICTURES, folder / PICTURES
            )  # with galleries that cannot be drawn again
            made[f"reports/{name}/index.html"] = render(read(REPORTS / name), folder).read_bytes()
            text = (folder / "report.md").read_text("utf-8")
            picture = re.findall(r"\]\(([^)]+\.png)\)", text)[0]
            made[f"reports/{name}/{picture}"] = (folder / picture).read_bytes()
        title, sentence = (
            re.findall(start, text, re.MULTILINE)[0] for start in (r"^# (.*)", r"^\*\*(.*)\*\*")
        )
        cards.append(CARD.format(name=name, title=title, picture=picture, sentence=sentence))
    pages = "".join(page.read_text("utf-8") for page in (REPOSITORY / "docs").glob("*.md"))
    made |= {
        path: (REPOSITORY / path).read_bytes()
        for path in re.findall(r"\]\(\.\./(reports/\S+\.png)\)", pages)
    }
    notes = listed.partition("\n")[2].strip()
    return made | {"gallery.md": PAGE.format(cards="\n".join(cards), notes=notes)}
