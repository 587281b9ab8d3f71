"""Links: docs/ is read on GitHub and on the site, where some files have another place."""

from __future__ import annotations

import posixpath
import re

from website.outside import COPIES

LINK = re.compile(r"(\]\()([^()\s#:]+)((?:#[^()\s]*)?\))")
"""A link of Markdown to a file, without the addresses of other hosts: they have a colon."""
REPORT = re.compile(r"reports/([^/]+)/report\.md")


def lead_to_the_site(markdown: str, page: str) -> str:
    """Return the text of a page with links that hold on the site.

    Args:
        markdown: of the page, whose links are those of the file that it comes from.
        page: its path on the site, such as "running.md".
    """
    sources = {copy: source for source, copy in COPIES.items()}
    source = sources.get(page, f"docs/{page}")

    def replaced(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link[2]))
        there = posixpath.relpath(place(target), posixpath.dirname(page) or ".")
        return f"{link[1]}{there}{link[3]}"

    return LINK.sub(replaced, markdown)


def place(path: str) -> str:
    """Return where a file of the repository is on the site.

    Args:
        path: from the root of the repository, such as "docs/running.md".

    Examples:
        >>> place("docs/running.md"), place("CONTRIBUTING.md"), place("reports/classic/report.md")
        ('running.md', 'contributing.md', 'reports/classic/index.html')
    """
    if path in COPIES:
        return COPIES[path]
    if path == "README.md":
        return "index.md"  # which says on the site what the README says on GitHub
    if published := REPORT.fullmatch(path):
        return f"reports/{published[1]}/index.html"
    return path if path.startswith("reports/") else posixpath.relpath(path, "docs")
