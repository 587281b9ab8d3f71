"""The gallery of published reports, and the pages of these reports, made from reports/.

To draw all reports takes most of the time of a build, so what was drawn is kept in .cache/site. A
report is drawn again if its files, the code of milbench or a drawing library have changed.
"""

import hashlib
import os
import re
import sys
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from joblib import Memory, Parallel, delayed

from milbench._utils.console import write_line
from milbench.report.published_reports import read
from milbench.report.render import PICTURES, page_html
from milbench.report.study import Study
from website import REPOSITORY, boards
from website.boards import Board, boards_of

REPORTS = REPOSITORY / "reports"
CACHE = REPOSITORY / ".cache" / "site"
"""The folder of what was drawn. It may be deleted at any time."""
DRAWING_LIBRARIES = ("matplotlib", "numpy", "pandas", "scipy", "seaborn")
DRAWN_BY = (".py", ".j2", ".css", ".js")
"""The endings of the code and the templates that draw a report. Words of advice do not."""
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
HEADER = "<header>"
"""What the page of a report begins with."""
LINKS = (
    '<p><a href="../../index.html">milbench</a> · '
    '<a href="../../leaderboard.html">leaderboard</a> · '
    '<a href="../../report.html">What a report says</a></p>'
)
"""The line that leads from the page of a report to the site."""
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
    made: dict[str, str | bytes] = {}
    cards = []
    for name, report in drawn().items():
        text = (REPORTS / name / "report.md").read_text("utf-8")
        picture = FIRST_PICTURE.findall(text)[0]
        made[f"reports/{name}/index.html"] = _with_links(report.page)
        made[f"reports/{name}/{picture}"] = (REPORTS / name / picture).read_bytes()
        cards.append(
            CARD.format(
                name=name,
                title=TITLE.findall(text)[0],
                picture=picture,
                sentence=SENTENCE.findall(text)[0],
            )
        )
    made |= _pictures_in_documents()
    notes = (REPORTS / "README.md").read_text("utf-8").partition("\n")[2].strip()
    made["gallery.md"] = PAGE.format(cards="\n".join(cards), notes=notes)
    return made


def _with_links(page: str) -> str:
    """Return the page of a report with links to the site above its title."""
    return page.replace(HEADER, HEADER + LINKS, 1)


def listed() -> list[str]:
    """Return the names of the published reports, in the order of reports/README.md."""
    return LISTED.findall((REPORTS / "README.md").read_text("utf-8"))


class Drawn(NamedTuple):
    """What the site has of a report."""

    page: str
    """The page of the report, in HTML."""
    boards: list[Board]
    """Its tables of the leaderboard."""


@cache
def drawn() -> dict[str, Drawn]:
    """Return the name of each published report -> what the site has of it."""
    names = listed()
    return dict(zip(names, _kept(names), strict=True))


def _kept(names: Sequence[str]) -> list[Drawn]:
    """Return what the site has of some reports. What is not kept is drawn, one on each core."""
    remembered = Memory(CACHE, verbose=0).cache(_drawn)
    calls = [(name, _digest_of_report(name)) for name in names]
    to_draw = [call for call in calls if not remembered.check_call_in_cache(*call)]
    if to_draw:
        said = ", ".join(name for name, _ in to_draw)
        write_line(sys.stderr, f"drawing {len(to_draw)} of {len(names)} reports: {said}")
    Parallel(n_jobs=os.cpu_count())(delayed(remembered)(*call) for call in to_draw)
    return [remembered(*call) for call in calls]


def _digest_of_report(name: str) -> str:
    """Return a digest of all that the page of a report depends on."""
    digest = hashlib.sha256(digest_of_code().encode())
    # The tables of the leaderboard depend on this file too.
    digest.update(Path(boards.__file__).read_bytes())
    for path in sorted((REPORTS / name).rglob("*")):
        if path.is_file():
            digest.update(f"{path.relative_to(REPORTS)}\n".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


@cache
def digest_of_code() -> str:
    """Return a digest of the code of milbench and the versions of the libraries that draw."""
    digest = hashlib.sha256()
    for library in DRAWING_LIBRARIES:
        digest.update(f"{library} {version(library)}\n".encode())
    for folder in ("losses", "milbench", "tasks"):
        for path in sorted((REPOSITORY / folder).rglob("*")):
            if path.suffix in DRAWN_BY:
                digest.update(path.read_bytes())
    return digest.hexdigest()


def _drawn(name: str, digest: str) -> Drawn:  # noqa: ARG001
    """Draw a published report from its folder.

    The digest is an argument only so that a report is drawn again if it has changed: what is kept
    is found by the arguments.
    """
    folder = REPORTS / name
    study = Study(read(folder))
    return Drawn(page_html(study, folder / PICTURES), boards_of(name, study))


def _pictures_in_documents() -> dict[str, bytes]:
    """Return the pictures of reports that the pages of docs/ show."""
    pages = [page.read_text("utf-8") for page in (REPOSITORY / "docs").glob("*.md")]
    paths = PICTURE_IN_DOCUMENT.findall("".join(pages))
    return {path: (REPOSITORY / path).read_bytes() for path in paths}
