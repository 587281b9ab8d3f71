"""The page of the leaderboard: the tables of all published reports, and a form that filters them.

docs/leaderboard.md has its words; `website.boards` has the values. Without scripts the page is its
tables; docs/assets/leaderboard.js filters and sorts them.
"""

import html
import math
from collections.abc import Sequence

import pandas as pd

from milbench.contracts.registry import losses
from milbench.report.formatting import readable
from milbench.report.tables import NO_SKILL
from milbench.report.use_verdicts import RESOLUTION
from milbench.report.uses import USES
from website import reports
from website.boards import NO_SEARCH, Board, Column

PAGE = "leaderboard.md"
CSV = "leaderboard.csv"
PLACEHOLDER = (
    "<p><em>The tables are on the site only, which <code>make docs</code> builds.</em></p>"
)
"""The paragraph of docs/leaderboard.md that the tables replace."""
DOWNLOAD = f'<p>All values in one file: <a href="{CSV}">{CSV}</a>.</p>'
SCRIPT = '<script src="assets/leaderboard.js"></script>'
UNKNOWN_LENGTH = "steps not kept"
LENGTHS = {
    1_000: "up to 1,000 steps",
    5_000: "1,001 to 5,000 steps",
    math.inf: "more than 5,000 steps",
}
"""The lengths of training by which tables are filtered: the largest number of steps of each."""
TABLE = """
<section class="board" id="{anchor}" data-search-exclude data-kind="{kind}" data-length="{length}"
 data-budget="{budget}">
<h2>{task}{trained} · {report}</h2>
<p>{facts} · <a href="reports/{report}/index.html">{title}</a></p>
<div class="scrolled"><table>
<thead>
<tr><th scope="col">loss</th>{heads}</tr>
<tr><th scope="row">{resolution}</th>{resolutions}</tr>
</thead>
<tbody>
{rows}
</tbody>
<tfoot>
{last_rows}
</tfoot>
</table></div>
{note}<details><summary>The command that reproduces it</summary>
<p><code>{command}</code></p></details>
</section>
"""
OTHER_SUPERVISION = (
    "<p>Losses have a ✓ among those whose labels say as much; with which labels, "
    "the report says.</p>\n"
)


def files() -> dict[str, str | bytes]:
    """Return the values of all tables as one file."""
    values = pd.concat([board.results for board in boards()])
    return {CSV: values.to_csv(index=False, float_format="%.6g")}


def filled(page: str) -> str:
    """Return the page, in HTML, with the form and the tables in their place.

    Raises:
        ValueError: docs/leaderboard.md has lost the paragraph that they replace.
    """
    if PLACEHOLDER not in page:
        raise ValueError(f"docs/{PAGE} lacks the paragraph: {PLACEHOLDER}")
    tables = "".join(_table(board) for board in boards())
    return page.replace(PLACEHOLDER, DOWNLOAD + _links() + _form() + tables + SCRIPT)


def boards() -> list[Board]:
    """Return the tables of all published reports, in the order of their list."""
    return [board for report in reports.drawn().values() for board in report.boards]


def _band(board: Board) -> str:
    """Return the length of training by which a table is filtered."""
    for most, words in LENGTHS.items():
        if board.steps <= most:
            return words
    return UNKNOWN_LENGTH


def _table(board: Board) -> str:
    """Return a table in HTML, below its heading."""
    return TABLE.format(
        anchor=board.anchor,
        kind=board.kind,
        length=_band(board),
        budget=board.budget,
        task=html.escape(board.task),
        trained=board.trained,
        facts=" · ".join(board.facts),
        report=board.report,
        title=html.escape(board.title),
        heads="".join(_head(column) for column in board.columns),
        resolution=RESOLUTION,
        resolutions=_fields([column.resolution for column in board.columns]),
        rows=_rows(board.shown),
        last_rows=_rows(board.last),
        note=OTHER_SUPERVISION if board.supervisions > 1 else "",
        command=html.escape(board.command),
    )


def _head(column: Column) -> str:
    """Return the head of a column in HTML, which says what its metric means."""
    meaning = html.escape(column.metric.definition)
    metric = f'<abbr title="{meaning}">{html.escape(column.metric.heading)}</abbr>'
    return f'<th scope="col" data-use="{column.use}">{column.use}: {metric}</th>'


def _rows(frame: pd.DataFrame) -> str:
    """Return the rows of a table in HTML. Each loss leads to its page."""
    lines = []
    for name, *texts in frame.itertuples(name=None):
        lines.append(f'<tr><th scope="row">{_linked(str(name))}</th>{_fields(texts)}</tr>')
    return "\n".join(lines)


def _fields(texts: Sequence[str]) -> str:
    return "".join(f"<td>{html.escape(text)}</td>" for text in texts)


def _linked(variant: str) -> str:
    """Return the name of a variant in HTML, with its loss linked to its page."""
    shown = html.escape(readable(variant))
    loss = variant.split(maxsplit=1)[0]
    # The name of a row below the losses, such as no skill, is not that of a loss.
    if variant == NO_SKILL or loss not in losses().names():
        return shown
    return f'<a href="reference/losses/{loss}.html">{loss}</a>{shown.removeprefix(loss)}'


def _links() -> str:
    """Return a list with a link to every table, report by report."""
    lines = []
    for name in reports.listed():
        links = [
            f'<a href="#{board.anchor}">{html.escape(board.task)}{board.trained}</a>'
            for board in boards()
            if board.report == name
        ]
        lines.append(f"<li>{name}: {' · '.join(links)}</li>")
    return (
        f"<details data-search-exclude><summary>All {len(boards())} tables, report by report"
        f"</summary><ul>{''.join(lines)}</ul></details>"
    )


def _form() -> str:
    """Return the form that filters tables. The script shows it."""
    kinds = sorted({board.kind for board in boards()})
    budgets = sorted({board.budget for board in boards()}, key=_budget_order)
    lengths = [*LENGTHS.values(), UNKNOWN_LENGTH]
    return (
        '<form id="filters" hidden>'
        + _choice("kind", "Kind of bags", kinds)
        + _choice("use", "Use", [use.name for use in USES])
        + _choice("length", "Training", lengths)
        + _choice("budget", "Settings tried", budgets)
        + "<label>Losses or networks, by commas "
        '<input name="text" type="search" placeholder="exact, set transformer"></label>'
        + '<output role="status"></output>'
        '<button type="button" class="md-button" hidden>Clear the filters</button></form>'
    )


def _choice(name: str, label: str, texts: Sequence[str]) -> str:
    options = "".join(f"<option>{text}</option>" for text in texts)
    return (
        f'<label>{label} <select name="{name}"><option value="">all</option>'
        f"{options}</select></label>"
    )


def _budget_order(budget: str) -> int:
    """Return the least number of settings that a budget names; 0 for none."""
    return 0 if budget == NO_SEARCH else int(budget.split(maxsplit=1)[0])
