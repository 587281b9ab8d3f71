"""A table of a report: a frame of text that is written as HTML, Markdown and LaTeX."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import pandas as pd
from jinja2 import Environment
from markupsafe import Markup

from milbench._utils.words import readable

LONG_TEXT = 44
"""A longer text in a table may be broken into lines."""

_HTML = Environment(autoescape=True).from_string("""\
<table class="sortable"><caption>{{ table.title }}</caption>
<thead><tr><th scope="col">{{ table.frame.index.name or "" }}</th>
{%- for head in table.frame.columns -%}
<th scope="col">{{ head }}</th>
{%- endfor %}</tr></thead><tbody>
{%- for row in table.frame.itertuples(name=None) %}
<tr{% if loop.index0 in table.marked %} class="marked"{% endif %}><th scope="row">{{ row[0] }}</th>
{%- for text in row[1:] -%}
<td{% if text | length > long %} class="long"{% endif %}>{{ text }}</td>
{%- endfor %}</tr>
{%- endfor %}</tbody></table>""")


@dataclass(frozen=True)
class Table:
    """A table of text.

    The index of the frame has the heads of the rows. Its name is the head of the first column.
    """

    title: str
    frame: pd.DataFrame
    note: str = ""
    """What a reader has to know. The page writes it below the table; these methods leave it out."""
    marked: frozenset[int] = field(default_factory=frozenset)
    """The numbers of the rows to be emphasised, from 0."""

    def html(self) -> Markup:
        """Return the table as HTML, with heads that a screen reader knows."""
        page = _HTML.render(table=self, long=LONG_TEXT)
        return Markup(page)  # noqa: S704 the template escapes every text

    def markdown(self) -> str:
        """Return the table in Markdown."""
        escaped = self.frame.map(escaped_markdown)
        escaped.columns = pd.Index([escaped_markdown(head) for head in self.frame.columns])
        escaped.index = pd.Index([escaped_markdown(head) for head in self.frame.index])
        escaped.index.name = str(self.frame.index.name or "")
        return escaped.to_markdown(disable_numparse=True)

    def latex(self) -> str:
        """Return the table in LaTeX, for the package booktabs."""
        return str(self.frame.to_latex(escape=True, caption=self.title))


def escaped_markdown(text: object) -> str:
    """Return text escaped for Markdown, so that it may stand in a table, too."""
    line = str(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|#~$])", r"\\\1", line)


def named_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table with readable heads of rows.

    "noisy-or head=softmax" becomes "noisy-or (softmax)".
    """
    return frame.rename(index=lambda label: readable(str(label)))
