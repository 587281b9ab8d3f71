"""The values of the leaderboard: each task of a published report as a table of losses by uses.

All values are those of the reports: nothing is computed here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pandas as pd

from milbench.contracts.metric_info import Metric
from milbench.report.draws import arms_of_cells, draws_of_arms
from milbench.report.formatting import NOTHING, readable, slug
from milbench.report.judge import judge
from milbench.report.learning import no_skill_line
from milbench.report.lengths import lengths_of
from milbench.report.sentences import difference_text
from milbench.report.study import Study
from milbench.report.tables import missing_seeds, ticked, with_lines
from milbench.report.use_verdicts import UseVerdict
from milbench.report.uses import USES
from milbench.report.values import rows_of
from milbench.report.verdict import NotToldApart

STEPS = "cost/steps"
NO_SEARCH = "no settings tried"


@dataclass(frozen=True, eq=False)
class Column:
    """A column of a table: all variants, judged by the metric of a use."""

    use: str
    metric_name: str
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
    columns: tuple[Column, ...]
    """The columns of `shown`."""

    @property
    def results(self) -> pd.DataFrame:
        """The rows of leaderboard.csv."""
        frames = [column.results for column in self.columns]
        return pd.concat(frames) if frames else pd.DataFrame()

    @property
    def anchor(self) -> str:
        """The name of the table in links."""
        return slug(f"{self.report} {self.task} {self.facts[0]}")

    @property
    def trained(self) -> str:
        """The length of training, if it tells the table from others of its task; else ""."""
        return f", {self.facts[0]}" if self.is_one_of_lengths else ""


def boards_of(name: str, study: Study) -> list[Board]:
    """Return the tables of a published report, given by its name and its results."""
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
    metrics = {column.heading: (task, column.metric_name) for column in columns}
    all_rows = with_lines(shown, study, metrics)
    budget = _budget(draws[cell] for cell in study.cells_of(task)["cell"] if cell in draws)
    length = trained or _length(study, task, steps)
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
        columns=tuple(columns),
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
    task = verdict.judgement.task
    metric = verdict.judgement.metric
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
        metric_name=metric,
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
