"""The templates of pages, and how they are rendered."""

from __future__ import annotations

import re
from pathlib import Path

import jinja2
from markupsafe import Markup, escape

from milbench.report.formatting import markdown

TEMPLATES = Path(__file__).parent / "templates"


def environment(*, autoescape: bool) -> jinja2.Environment:
    """Return what renders the templates, with the filters that their tables use.

    Args:
        autoescape: True for HTML; Markdown is escaped by its filter `md`.
    """
    found = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=autoescape,  # noqa: S701 HTML is escaped, Markdown has its own filter
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    found.filters |= {"soft": _soft, "md": markdown}
    return found


def _soft(text: str) -> Markup:
    """Return text for HTML that a narrow column breaks behind "=", "_" and "/", and not inside of words."""
    return Markup(re.sub("([=_/])", r"\1<wbr>", str(escape(text))))  # noqa: S704 escaped
