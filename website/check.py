"""Check the built site: no link is broken, and no page fetches anything from another host.

    python -m website.check site

mkdocs checks only the links of Markdown. This program reads the pages that mkdocs has made, as a
browser does.
"""

import re
import sys
from collections.abc import Iterable
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

FETCHED = {
    "link": "href",
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
}
"""Tags for which a browser fetches something by itself, and the attribute that has its address."""
NOT_FETCHED = {"next", "prev", "canonical", "alternate"}
"""Kinds of <link> for which a browser fetches nothing by itself."""


class Page(HTMLParser):
    """The anchors of a page, its links, and the addresses that a browser fetches for it.

    Args:
        path: the HTML file.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.anchors: set[str] = {""}
        self.links: set[str] = set()
        self.fetched: set[str] = set()
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep the names and the addresses of a tag."""
        given = {name: value or "" for name, value in attrs}
        for name in ("id", "name"):
            if name in given:
                self.anchors.add(given[name])
        if tag == "a" and "href" in given:
            self.links.add(given["href"])
        is_fetched = tag in FETCHED and given.get("rel") not in NOT_FETCHED
        if is_fetched and FETCHED[tag] in given:
            self.fetched.add(given[FETCHED[tag]])
        if tag in ("source", "img") and given.get("srcset"):
            for candidate in given["srcset"].split(","):
                # A candidate is an address and, after a space, a width.
                address = candidate.split()[0]
                self.fetched.add(address)


def problems(site: Path) -> list[str]:
    """Return a line for every problem of the pages and style sheets in a folder.

    A problem is a broken link, or something that a browser would fetch from another host.
    """
    # 404.html is left out: a server sends it at any address, so its links begin at the root of the
    # host.
    paths = set(site.rglob("*.html")) - {site / "404.html"}
    pages = {path: Page(path) for path in sorted(paths)}
    lines = []
    for path, page in pages.items():
        where = str(path.relative_to(site))
        lines += _fetches(where, sorted(page.fetched))
        for link in sorted(page.links | page.fetched):
            if _is_broken(link, page, pages):
                lines.append(f"{where}: broken link {link}")
    for path in sorted(site.rglob("*.css")):
        addresses = re.findall(r"url\(\s*['\"]?([^'\")]+)", path.read_text("utf-8"))
        lines += _fetches(str(path.relative_to(site)), addresses)
    return lines


def _fetches(where: str, addresses: Iterable[str]) -> list[str]:
    """Return a line for every address on another host, of those that the file `where` fetches."""
    return [f"{where}: fetches {address}" for address in addresses if _is_elsewhere(address)]


def _is_elsewhere(address: str) -> bool:
    return bool(urlsplit(address).netloc)


def _is_broken(link: str, page: Page, pages: dict[Path, Page]) -> bool:
    """Return whether a link leads to no file of the site, or to no anchor in its page.

    A link to another host counts as good.
    """
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return False
    target = page.path
    if parts.path:
        target = (page.path.parent / unquote(parts.path)).resolve()
    if target.is_dir():
        target /= "index.html"
    if target in pages:
        return unquote(parts.fragment) not in pages[target].anchors
    return not target.is_file()


def main() -> int:
    """Print the problems of the site in the folder that the command line names.

    Returns the exit code: 1 if there are problems, else 0.
    """
    site = Path(sys.argv[1]).resolve()
    faults = problems(site)
    for fault in faults:
        print(fault)
    pages = list(site.rglob("*.html"))
    files = [path for path in site.rglob("*") if path.is_file()]
    megabytes = sum(path.stat().st_size for path in files) / 1e6
    print(f"{len(pages)} pages, {megabytes:.0f} MB, {len(faults)} problems")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
