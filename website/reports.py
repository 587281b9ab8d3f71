"""The gallery of published reports, and their pages, made from what is kept of them."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from milbench.report.published import read
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
    """Return the gallery, and the page and the picture of every published report."""
    listed = (REPORTS / "README.md").read_text("utf-8")
    names = LISTED.findall(listed)
    cards = "\n".join(map(_card, names))
    made: dict[str, str | bytes] = {"gallery.md": PAGE.format(cards=cards, notes=listed.partition("\n")[2].strip())}
    for name in names:
        made[f"reports/{name}/index.html"] = _page(name)
        first = _first_picture(name)
        made[f"reports/{name}/{first}"] = (REPORTS / name / first).read_bytes()
    return made


def _page(name: str) -> bytes:
    """Return the page of a report with the galleries that were drawn when it was published."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / PICTURES).mkdir()
        for picture in (REPORTS / name / PICTURES).glob("gallery-*.png"):
            (Path(folder) / PICTURES / picture.name).write_bytes(picture.read_bytes())
        return render(read(REPORTS / name), Path(folder)).read_bytes()


def _card(name: str) -> str:
    lines = (REPORTS / name / "report.md").read_text("utf-8").splitlines()
    sentence = next((line for line in lines if line.startswith("**")), None)
    if sentence is None or not lines[0].startswith("# "):
        raise ValueError(f"reports/{name}/report.md has no title or no sentence: render it again")
    title = lines[0].removeprefix("# ")
    return CARD.format(name=name, title=title, picture=_first_picture(name), sentence=sentence.strip("*"))


def _first_picture(name: str) -> str:
    """Return the picture that a report opens with, by its path in the folder of the report."""
    text = (REPORTS / name / "report.md").read_text("utf-8")
    found = re.search(r"!\[[^\]]*\]\(([^)]+\.png)\)", text)
    if found is None:
        raise ValueError(f"reports/{name}/report.md shows no picture: render it again")
    return found[1]
