"""Pages from files outside docs/, the links to them, and the style and script of the site."""

import posixpath
import re

from website import REPOSITORY

LINK = re.compile(r"(\]\()([^()\s#:]+)((?:#[^()\s]*)?\))")
"""A pattern of a Markdown link to a file. Links to other hosts have a colon and do not match."""
COPIES = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "examples/README.md": "examples/index.md",
    "reports/README.md": "gallery.md",
}
"""For each file of the repository outside docs/, the path of its page on the site."""
ONLY_IN_THE_REPOSITORY = "<!-- only in the repository -->"
"""Below this line of a file is what its page leaves out."""


def lead_to_the_site(markdown: str, page: str) -> str:
    """Return the text of a page with links that are right on the site.

    Args:
        markdown: the text of the page, with the links of the file that it comes from.
        page: the path of the page on the site, such as "running.md".
    """
    sources = {copy: source for source, copy in COPIES.items()}
    # `website.notebooks` makes the other pages of examples/, one for each file there.
    of_page = page if page.startswith("examples/") else f"docs/{page}"
    source = sources.get(page, of_page)

    def replaced(link: re.Match[str]) -> str:
        before, linked_file, after = link.groups()
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), linked_file))
        on_site = posixpath.relpath(place(target), posixpath.dirname(page) or ".")
        return f"{before}{on_site}{after}"

    return LINK.sub(replaced, markdown)


def place(path: str) -> str:
    """Return the path on the site of a file of the repository.

    Args:
        path: the path from the root of the repository, such as "docs/running.md".

    Examples:
        >>> place("docs/running.md"), place("CONTRIBUTING.md"), place("reports/classic/report.md")
        ('running.md', 'contributing.md', 'reports/classic/index.html')
    """
    if path in COPIES:
        return COPIES[path]
    if path == "README.md":
        # On the site, this page takes the part that the README has on GitHub.
        return "index.md"
    if path.startswith("examples/"):
        return path.replace(".py", ".md")
    if path.startswith("reports/"):
        return path.replace("/report.md", "/index.html")
    return posixpath.relpath(path, "docs")


def files() -> dict[str, str]:
    """Return the pages, the style sheet and the script."""
    pages = {page: _for_the_site(_text(file)) for file, page in COPIES.items()}
    # `website.reports` makes the gallery from its file.
    del pages["gallery.md"]
    pages["assets/site.css"] = _text("website/site.css")
    pages["assets/site.js"] = _text("website/site.js")
    return pages


def _for_the_site(text: str) -> str:
    return text.partition(ONLY_IN_THE_REPOSITORY)[0]


def _text(path: str) -> str:
    return (REPOSITORY / path).read_text("utf-8")
