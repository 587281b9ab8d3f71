"""Check the built site: every link leads to a page and a place in it, and nothing is fetched from another host.

    python -m website.check site

mkdocs checks the links of Markdown; this reads the pages that came out, as a browser does.
"""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

FETCHED = {"link": "href"} | dict.fromkeys(
    ("script", "img", "iframe", "source", "video", "audio"), "src"
)
NOT_FETCHED = {"next", "prev", "canonical", "alternate"}
"""Kinds of <link> that name a page, which no browser loads by itself."""


class Page(HTMLParser):
    """The anchors of a page, its links, and what a browser fetches for it.

    Args:
        path: of the HTML file.
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
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.add(given["href"])
        elif tag in FETCHED and FETCHED[tag] in given and given.get("rel") not in NOT_FETCHED:
            self.fetched.add(given[FETCHED[tag]])
        if tag in ("source", "img") and given.get("srcset"):
            # Each candidate is an address and, after a space, a width.
            self.fetched |= {one.split()[0] for one in given["srcset"].split(",")}


def problems(site: Path) -> list[str]:
    """Return a line for every broken link and every request to another host in the pages and styles of a folder."""
    # A server sends 404.html at any address: its links begin at the root of the host.
    pages = {path: Page(path) for path in sorted(site.rglob("*.html")) if path != site / "404.html"}
    lines = []
    for path, page in pages.items():
        where = path.relative_to(site)
        links = sorted(page.links | page.fetched)
        lines += [
            f"{where}: fetches {address}"
            for address in sorted(page.fetched)
            if _is_elsewhere(address)
        ]
        lines += [f"{where}: broken link {link}" for link in links if _is_broken(link, page, pages)]
    for path in sorted(site.rglob("*.css")):
        urls = re.findall(r"url\(\s*['\"]?([^'\")]+)", path.read_text("utf-8"))
        lines += [f"{path.relative_to(site)}: fetches {url}" for url in urls if _is_elsewhere(url)]
    return lines


def _is_elsewhere(address: str) -> bool:
    return bool(urlsplit(address).netloc)


def _is_broken(link: str, page: Page, pages: dict[Path, Page]) -> bool:
    """Return whether a link names no file of the site, or no place in its page; other hosts are not asked."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return False
    target = page.path if not parts.path else (page.path.parent / unquote(parts.path)).resolve()
    if target.is_dir():
        target /= "index.html"
    if target in pages:
        return unquote(parts.fragment) not in pages[target].anchors
    return not target.is_file()


def main() -> int:
    """Print the problems of the site in the folder that the command line names; exit code 1 if there are any."""
    site = Path(sys.argv[1]).resolve()
    faults = problems(site)
    print(*faults, sep="\n", end="\n" if faults else "")
    size = sum(path.stat().st_size for path in site.rglob("*") if path.is_file()) / 1e6
    print(f"{len(list(site.rglob('*.html')))} pages, {size:.0f} MB, {len(faults)} problems")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
