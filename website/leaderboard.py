"""The leaderboard: every published report and task as a table of losses by uses.

docs/leaderboard.md has its words. The tables, the form that filters them and leaderboard.csv are
made from the frames of the reports. All values are those of the reports: nothing is computed here.
Without scripts the page is its tables; docs/assets/leaderboard.js filters and sorts them.
"""

from __future__ import annotations

import hashlib
import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from milbench.contracts.metric_info import Metric
from milbench.contracts.registry import losses
from milbench.report.draws import arms_of_cells, draws_of_arms
from milbench.report.formatting import NOTHING, readable, slug
from milbench.report.judge import judge
from milbench.report.learning import no_skill_line
from milbench.report.lengths import lengths_of
from milbench.report.published_reports import read
from milbench.report.sentences import difference_text
from milbench.report.study import Study
from milbench.report.tables import NO_SKILL, missing_seeds, ticked, with_lines
from milbench.report.use_verdicts import UseVerdict
from milbench.report.uses import USES
from milbench.report.values import rows_of
from milbench.report.verdict import NotToldApart
from website import reports

PAGE = "leaderboard.md"
CSV = "leaderboard.csv"
STEPS = "cost/steps"
PLACEHOLDER = (
    "<p><em>The tables are on the site only, which <code>make docs</code> builds.</em></p>"
)
"""The paragraph of docs/leaderboard.md that the tables replace."""
DOWNLOAD = f'<p>All values in one file: <a href="{CSV}">{CSV}</a>.</p>'
SCRIPT = '<script src="assets/leaderboard.js"></script>'
NO_SEARCH = "no settings tried"
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
<tr><th scope="row">smallest difference usually found</th>{resolutions}</tr>
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


@dataclass(frozen=True, eq=False)
class Column:
    """A column of a table: all variants, judged by the metric of a use."""

    use: str
    name: str
    """The name of the metric in results."""
    metric: Metric
    texts: list[str]
    """The text of each variant."""
    resolution: str
    """The smallest difference that would show in four of five comparisons, in words.

    If no loss has a tick, it ends with the reason.
    """
    results: pd.DataFrame
    """The rows of leaderboard.csv."""

    @property
    def heading(self) -> str:
        """The head of the column as text."""
        return f"{self.use}: {self.metric.heading}"

    @property
    def head(self) -> str:
        """The head of the column in HTML, which says what the metric means."""
        meaning = html.escape(self.metric.definition)
        metric = f'<abbr title="{meaning}">{html.escape(self.metric.heading)}</abbr>'
        return f'<th scope="col" data-use="{self.use}">{self.use}: {metric}</th>'


@dataclass(frozen=True, eq=False)
class Board:
    """The table of a task of a report, at one length of training."""

    report: str
    title: str
    """The title of the report."""
    task: str
    """The name of the task in the report."""
    kind: str
    """The name of the task among all tasks: what kind of bags it has."""
    command: str
    facts: tuple[str, ...]
    """The length of training, the settings tried, and the seeds, in words."""
    steps: float
    """NaN: not kept."""
    budget: str
    """How many settings were tried for each loss, in words."""
    is_one_of_lengths: bool
    """Whether the report has the task at several lengths of training."""
    supervisions: int
    """How many kinds of supervision the losses have."""
    shown: pd.DataFrame
    """The text of each variant (rows) for each use (columns)."""
    last: pd.DataFrame
    """The rows below these: the simple baseline, if it is known, and no skill."""
    heads: tuple[str, ...]
    """The head of each column of `shown`, in HTML."""
    resolutions: tuple[str, ...]
    """The field below each head."""
    results: pd.DataFrame
    """The rows of leaderboard.csv."""

    @property
    def anchor(self) -> str:
        """The name of the table in links."""
        return slug(f"{self.report} {self.task} {self.facts[0]}")

    @property
    def trained(self) -> str:
        """The length of training, if it tells the table from others of its task; else ""."""
        return f", {self.facts[0]}" if self.is_one_of_lengths else ""


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


@cache
def boards() -> list[Board]:
    """Return the tables of all published reports, in the order of their list."""
    names = reports.listed()
    # The tables depend on this file too.
    code = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    found = reports.kept(boards_of, names, "making the tables of", code)
    return [board for of_report in found for board in of_report]


def boards_of(name: str, digest: str) -> list[Board]:  # noqa: ARG001
    """Return the tables of a published report. The digest says when to make them again."""
    study = Study(read(reports.REPORTS / name))
    by_task = {one.task: one for one in lengths_of(study)}
    found = []
    for task in study.tasks:
        draws = _draws(study, task)
        if task not in by_task:
            found.append(_board(name, study, task, draws))
            continue
        one = by_task[task]
        for length, of_length in one.studies.items():
            trained = f"{length:,.0f} {one.unit}"
            found.append(_board(name, of_length, task, draws, trained))
    return found


def _board(name: str, study: Study, task: str, draws: dict[str, int], trained: str = "") -> Board:
    """Return the table of a task.

    Args:
        name: the report.
        study: the losses to compare.
        task: one of its tasks.
        draws: cell -> how many settings were tried for its loss.
        trained: the length of training, if the report has several.
    """
    order = study.summary(task).index.rename("loss")
    cells = study.cells_of(task).drop_duplicates("variant").set_index("variant").loc[order]
    names = [_with_head(study, cells["cell"][variant], str(variant)) for variant in order]
    steps = _steps(study, task)
    about = pd.DataFrame(
        {
            "report": name,
            "task": task,
            "loss": [readable(name) for name in names],
            "settings": [_settings(study, cell) for cell in cells["cell"]],
            "network": [_network(study, cell) for cell in cells["cell"]],
            "steps": steps.reindex(order),
            "draws": cells["cell"].map(draws),
        },
        index=order,
    )
    columns = _columns(study, task, about)
    shown = pd.DataFrame({column.heading: column.texts for column in columns}, index=order)
    metrics = {column.heading: (task, column.name) for column in columns}
    all_rows = with_lines(shown, study, metrics)
    budget = _budget(draws[cell] for cell in study.cells_of(task)["cell"] if cell in draws)
    length = trained or _length(study, task, steps)
    values = [column.results for column in columns]
    return Board(
        report=name,
        title=study.plan.spec.title or name,
        task=readable(task),
        kind=study.cell_of(task).task.name,
        command=study.plan.command,
        facts=(length, budget, _seeds(study, task)),
        steps=float(steps.mean()),
        budget=budget,
        is_one_of_lengths=bool(trained),
        supervisions=cells["supervision"].nunique(),
        shown=shown.set_axis(names),
        last=all_rows.iloc[len(shown) :],
        heads=tuple(column.head for column in columns),
        resolutions=tuple(column.resolution for column in columns),
        results=pd.concat(values) if values else pd.DataFrame(),
    )


def _columns(study: Study, task: str, about: pd.DataFrame) -> list[Column]:
    """Return a column for each use that a metric of the task belongs to.

    `about` says of each variant what it is, for leaderboard.csv.
    """
    columns = []
    for use in USES:
        metric = study.metric_of_use(task, use)
        if metric is not None:
            verdict = UseVerdict(use, judge(study, task, metric), study.summary(task, metric))
            columns.append(_column(study, verdict, about))
    return columns


def _column(study: Study, verdict: UseVerdict, about: pd.DataFrame) -> Column:
    """Return the column of a use, with the variants in the order of `about`."""
    task, metric = verdict.judgement.task, verdict.judgement.metric
    summary = verdict.summary.reindex(about.index)
    shown = verdict.ticked_summary.reindex(about.index)
    resolution = study.resolution(task, metric)
    is_judged = bool(study.contenders(task, metric))
    results = about.assign(
        use=verdict.use.name,
        metric=metric,
        mean=summary["mean"],
        sd=summary["sd"],
        seeds=summary["seeds"],
        may_be_best=summary["contender"] if is_judged else None,
        worse_by_at_most=summary["worse_by"],
        resolution=resolution,
        no_skill=float(no_skill_line(study, task, metric).mean()),
    )
    return Column(
        use=verdict.use.name,
        name=metric,
        metric=verdict.metric,
        texts=[_text(row, verdict.metric) for row in rows_of(shown)],
        resolution=_resolution(verdict, resolution),
        results=results[results["mean"].notna()],
    )


def _resolution(verdict: UseVerdict, resolution: float) -> str:
    """Return the smallest difference that would show and, without ticks, why there are none."""
    parts = []
    if math.isfinite(resolution):
        parts.append(difference_text(resolution, verdict.metric))
    if isinstance(verdict.judgement.finding, NotToldApart):
        parts.append("most not told apart")
    elif verdict.remark:
        parts.append(verdict.remark)
    return ", ".join(parts) or NOTHING


def _text(row: Any, metric: Metric) -> str:
    """Return the mean of a loss with its tick and bound, and its seeds if it lacks some."""
    text = ticked(row, metric)
    return text if row.seeds == 0 else text + missing_seeds(row)


def _with_head(study: Study, cell: str, variant: str) -> str:
    """Return the name of a variant that says its head.

    A report leaves a setting out that all its variants share. Beside other reports it is needed.
    """
    loss = study.planned[cell].loss
    head = f"head={loss.params.get('head')}"
    if "head" not in loss.params or head in variant:
        return variant
    return variant.replace(loss.name, f"{loss.name} {head}", 1)


def _settings(study: Study, cell: str) -> str:
    """Return all settings of a loss, such as head=softmax."""
    return " ".join(f"{name}={value}" for name, value in study.planned[cell].loss.params.items())


def _network(study: Study, cell: str) -> str:
    return study.planned[cell].network.name


def _draws(study: Study, task: str) -> dict[str, int]:
    """Return cell -> how many settings a search tried for its loss; {} without a search."""
    if study.plan.search is None:
        return {}
    tried = {}
    without_network: dict[str, int] = {}
    for key, cells in draws_of_arms(study.plan.search).items():
        tried[key] = len({draw.number for draw in cells.values()})
        arm = next(iter(cells.values())).arm
        without_network[arm._replace(network="").key] = tried[key]
    # A comparison does not name its network if there is only one, but the arm of a search may.
    tried = without_network | tried
    arms = arms_of_cells(study.plan)
    return {cell: tried[arms[cell]] for cell in study.cells_of(task)["cell"] if cell in arms}


def _budget(draws: Iterable[int]) -> str:
    """Return in words how many settings were tried for each loss."""
    return _span(draws, "settings tried for each loss") or NO_SEARCH


def _seeds(study: Study, task: str) -> str:
    """Return how many seeds the losses have, or how many test folds, which are seeds too."""
    planned = study.summary(task)["planned"]
    return "1 seed" if planned.max() == 1 else _span(planned, "seeds")


def _steps(study: Study, task: str) -> pd.Series[float]:
    """Return the training steps of each variant, the mean over seeds; NaN: not kept."""
    steps = study.table(task, STEPS)
    # A training that was resumed after its last step has kept zero steps.
    return steps.where(steps > 0).mean(axis=1).round()


def _length(study: Study, task: str, steps: pd.Series[float]) -> str:
    """Return the length of training in words, in epochs if steps were not kept."""
    of_steps = _span(steps.dropna().astype(int), "training steps")
    recipes = [study.planned[cell].recipe for cell in study.cells_of(task)["cell"]]
    return of_steps or _span((recipe.epochs for recipe in recipes), "epochs")


def _span(counts: Iterable[int], noun: str) -> str:
    """Return the least and the largest count with a noun, such as 4 to 8 epochs; "" for none."""
    distinct = sorted(set(counts))
    if not distinct:
        return ""
    if len(distinct) == 1:
        return f"{distinct[0]:,} {noun}"
    return f"{distinct[0]:,} to {distinct[-1]:,} {noun}"


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
        heads="".join(board.heads),
        resolutions=_fields(board.resolutions),
        rows=_rows(board.shown),
        last_rows=_rows(board.last),
        note=OTHER_SUPERVISION if board.supervisions > 1 else "",
        command=html.escape(board.command),
    )


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
