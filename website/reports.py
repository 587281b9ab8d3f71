"""The gallery of published reports, and the pages of these reports, made from reports/.

To draw all reports takes most of the time of a build, so what was drawn is kept in .cache/site. A
report is drawn again if its files, the code of milbench or a drawing library have changed.
"""

import hashlib
import os
import re
import sys
from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import version
from typing import TypeVar

from joblib import Memory, Parallel, delayed

from milbench._utils.console import write_line
from milbench.report.published_reports import read
from milbench.report.render import PICTURES, page_html
from website import REPOSITORY

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
Made = TypeVar("Made")
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
    names = listed()
    for name, page in zip(names, _pages(names), strict=True):
        text = (REPORTS / name / "report.md").read_text("utf-8")
        picture = FIRST_PICTURE.findall(text)[0]
        made[f"reports/{name}/index.html"] = _with_links(page)
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


def _pages(names: Sequence[str]) -> list[str]:
    """Return the pages of published reports. Those that are not kept are drawn."""
    return kept(_page, names, "drawing")


def kept(
    make: Callable[[str, str], Made], names: Sequence[str], doing: str, code: str = ""
) -> list[Made]:
    """Return what a function makes of each report. What is not kept is made, one on each core.

    Args:
        make: a function of the name of a report and a digest of all that its answer depends on.
        names: the reports.
        doing: what the function does, for the line that says which reports are not kept.
        code: a digest of further code that the answer depends on.
    """
    remembered = Memory(CACHE, verbose=0).cache(make)
    calls = [(name, _digest_of_report(name) + code) for name in names]
    to_make = [call for call in calls if not remembered.check_call_in_cache(*call)]
    if to_make:
        said = ", ".join(name for name, _ in to_make)
        write_line(sys.stderr, f"{doing} {len(to_make)} of {len(names)} reports: {said}")
    Parallel(n_jobs=os.cpu_count())(delayed(remembered)(*call) for call in to_make)
    return [remembered(*call) for call in calls]


def _digest_of_report(name: str) -> str:
    """Return a digest of all that the page of a report depends on."""
    digest = hashlib.sha256(digest_of_code().encode())
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


def _page(name: str, digest: str) -> str:  # noqa: ARG001
    """Return the page of a published report, drawn from its folder.

    The digest is an argument only so that a report is drawn again if it has changed: what is kept
    is found by the arguments.
    """
    folder = REPORTS / name
    return page_html(read(folder), folder / PICTURES)


def _pictures_in_documents() -> dict[str, bytes]:
    """Return the pictures of reports that the pages of docs/ show."""
    pages = [page.read_text("utf-8") for page in (REPOSITORY / "docs").glob("*.md")]
    paths = PICTURE_IN_DOCUMENT.findall("".join(pages))
    return {path: (REPOSITORY / path).read_bytes() for path in paths}
