"""The gallery of published reports, and the pages of these reports, made from reports/."""

import re
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from milbench._utils.console import write_line
from milbench.report.published_reports import read
from milbench.report.render import PICTURES, render
from website import REPOSITORY

REPORTS = REPOSITORY / "reports"
LISTED = re.compile(r"\]\(([^/)]+)/report\.md\)")
"""A pattern of a link of reports/README.md to a report."""
FIRST_PICTURE = re.compile(r"\]\(([^)]+\.png)\)")
TITLE = re.compile(r"^# (.*)", re.MULTILINE)
SENTENCE = re.compile(r"^\*\*(.*)\*\*", re.MULTILINE)
"""A pattern of the sentence of a report in bold letters, which is its answer."""
PICTURE_IN_DOCUMENT = re.compile(r"\]\(\.\./(reports/\S+\.png)\)")
"""A pattern of a link of a page of docs/ to a picture of a report."""
# The gallery is the page of reports/README.md, so links begin at its folder.
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

A report is what `milbench report` writes: one page with its tables and figures in it.
What its numbers mean: [statistics of a report](../docs/statistics.md).

<div class="cards wide" markdown>
{cards}
</div>

## What was run

{notes}"""


def files() -> dict[str, str | bytes]:
    """Return the gallery, the page and first picture of every report, and pictures for docs/."""
    listed = (REPORTS / "README.md").read_text("utf-8")
    made: dict[str, str | bytes] = {}
    cards = []
    names = LISTED.findall(listed)
    for number, name in enumerate(names, start=1):
        write_line(sys.stderr, f"drawing {name}, report {number} of {len(names)}")
        report = _rendered(name)
        made[f"reports/{name}/index.html"] = report.page
        made[f"reports/{name}/{report.picture}"] = report.content_of_picture
        cards.append(
            CARD.format(
                name=name,
                title=report.title,
                picture=report.picture,
                sentence=report.sentence,
            )
        )
    made |= _pictures_in_documents()
    notes = listed.partition("\n")[2].strip()
    made["gallery.md"] = PAGE.format(cards="\n".join(cards), notes=notes)
    return made


@dataclass(frozen=True)
class RenderedReport:
    """A report as the site shows it."""

    page: bytes
    title: str
    sentence: str
    picture: str
    """The path of its first picture in the folder of the report."""
    content_of_picture: bytes


def _rendered(name: str) -> RenderedReport:
    """Return a published report, made again from its folder."""
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / name
        # The pictures of galleries are copied: the folder lacks the bags to draw them again.
        shutil.copytree(REPORTS / name / PICTURES, folder / PICTURES)
        page = render(read(REPORTS / name), folder).read_bytes()
        text = (folder / "report.md").read_text("utf-8")
        picture = FIRST_PICTURE.findall(text)[0]
        return RenderedReport(
            page=page,
            title=TITLE.findall(text)[0],
            sentence=SENTENCE.findall(text)[0],
            picture=picture,
            content_of_picture=(folder / picture).read_bytes(),
        )


def _pictures_in_documents() -> dict[str, bytes]:
    """Return the pictures of reports that the pages of docs/ show."""
    pages = [page.read_text("utf-8") for page in (REPOSITORY / "docs").glob("*.md")]
    paths = PICTURE_IN_DOCUMENT.findall("".join(pages))
    return {path: (REPOSITORY / path).read_bytes() for path in paths}
