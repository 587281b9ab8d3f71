"""Pages from files outside docs/: how milbench is built, its changes, and the examples; and the style of the site."""

from __future__ import annotations

import re

from website import REPOSITORY

COPIES = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "examples/README.md": "examples.md",
    "reports/README.md": "gallery.md",
}
"""Where a file of the repository outside docs/ has its page on the site."""


def files() -> dict[str, str]:
    """Return the pages, and the style sheet."""
    return {
        "contributing.md": _text("CONTRIBUTING.md"),
        "changelog.md": _text("CHANGELOG.md"),
        "security.md": _text("SECURITY.md"),
        "examples.md": _examples(),
        "assets/site.css": _text("website/site.css"),
    }


def _examples() -> str:
    """Return the page of the examples: the list, then each in full."""
    names = sorted(path.name for path in (REPOSITORY / "examples").glob("*.py"))
    listed = re.sub(
        r"\[(\w+\.py)\]\(\1\)", lambda link: f"[{link[1]}](#{_anchor(link[1])})", _text("examples/README.md")
    )
    blocks = (f"## {name} {{ #{_anchor(name)} }}\n\n```python\n{_text(f'examples/{name}')}```\n" for name in names)
    return "\n".join([listed, *blocks])


def _anchor(file: str) -> str:
    return file.removesuffix(".py").replace("_", "-")


def _text(path: str) -> str:
    return (REPOSITORY / path).read_text("utf-8")
