"""The tables of a report: frames of text that pandas writes as HTML, Markdown and LaTeX."""

import math
import re
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment
from markupsafe import Markup

from milbench.contracts.metric_info import BASELINE_NAME, Metric, describe
from milbench.report.formatting import (
    NOTHING,
    at_most,
    counted,
    interval,
    measured,
    number,
    readable,
    significant,
)
from milbench.report.statistics.differences import LEVEL, holm, is_within
from milbench.report.statistics.ranking import mean_ranks, scores, win_rates
from milbench.report.study import Study
from milbench.report.values import STEP, rows_of

YES, NO = "✓", "–"
BEST = "may be the best"
NO_SKILL = "no skill"
COSTS = {
    STEP: ("step (ms)", 1e3), "cost/loss_seconds_min": ("loss alone (ms)", 1e3),
    "cost/peak_bytes": ("peak memory (GB)", 1e-9), "cost/train_seconds": ("training (min)", 1 / 60),
}  # fmt: skip
"""What is measured beside errors: the head of its column, and by what seconds and bytes are multiplied."""
MEANS = "Mean ± standard deviation over seeds."
BOUND = " Worse by at most: than the best loss, of those that may be the best; for all at once with 95 % confidence."
BOUNDS = " ✓: may be the best; ≤: then worse than the best by at most so much, in the unit of the metric."
FEWEST_BLOCKS = 5  # of fewer tasks the intervals hold less than they promise
RANKS = (
    "Mean rank: 1 is the best; in brackets its 95 % interval, a bootstrap over tasks and seeds. Win rate: how often a "
    "loss beats another one, by task and seed. Tasks on the same data count as one; tasks where no loss beats no skill "
    "do not count."
)
SCORE = " Score: 0 is the no-skill line or worse, 1 the best loss of a task."
_HTML = Environment(autoescape=True).from_string("""\
<table class="sortable"><caption>{{ table.title }}</caption>
<thead><tr><th scope="col">{{ table.frame.index.name or "" }}</th>
{%- for head in table.frame.columns %}<th scope="col">{{ head }}</th>{% endfor %}</tr></thead><tbody>
{%- for row in table.frame.itertuples(name=None) %}
<tr{% if loop.index0 in table.marked %} class="marked"{% endif %}><th scope="row">{{ row[0] }}</th>
{%- for text in row[1:] %}<td{% if text | length > 44 %} class="long"{% endif %}>{{ text }}</td>{% endfor %}</tr>
{%- endfor %}</tbody></table>""")


@dataclass(frozen=True)
class Table:
    """A table of text; the index is the head of each row, and its name that of the first column."""

    title: str
    frame: pd.DataFrame
    note: str = ""  # what a reader has to know, below the table
    marked: frozenset[int] = field(
        default_factory=frozenset
    )  # the numbers of the rows to be emphasised

    def html(self) -> Markup:
        """Return the table as HTML, with heads that a screen reader knows."""
        return Markup(_HTML.render(table=self))  # noqa: S704 the template escapes every text

    def markdown(self) -> str:
        """Return the table in Markdown."""
        heads, rows = (
            [markdown(head) for head in axis] for axis in (self.frame.columns, self.frame.index)
        )
        escaped = self.frame.map(markdown).set_axis(heads, axis=1).set_axis(rows)
        return escaped.rename_axis(index=str(self.frame.index.name or "")).to_markdown(
            disable_numparse=True
        )

    def latex(self) -> str:
        """Return the table in LaTeX, for the package booktabs."""
        return str(self.frame.to_latex(escape=True, caption=self.title))


def markdown(text: object) -> str:
    """Return text escaped for Markdown, also inside a table."""
    line = str(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|#~$])", r"\\\1", line)


def main_table(study: Study) -> Table:
    """Return the mean of each loss, whether it may be the best, by how much it may be worse, its cost and its seeds."""
    index, is_known = pd.Index(study.ranking(), name="loss"), bool(study.may_be_best)
    kinds = (
        "" if len(study.kinds) == 1 else " Losses are compared with those of the same supervision."
    )
    if len(study.tasks) > 1:
        columns = {}
        for task in study.tasks:
            metric, ordered = study.metric(task), study.summary(task).reindex(index)
            columns[f"{readable(task)}: {metric.heading}"] = [
                ticked(row, metric)
                + (
                    f" ({row.seeds:.0f} of {row.planned:.0f} seeds)"
                    if row.seeds < row.planned
                    else ""
                )
                for row in rows_of(ordered)
            ]
        frame = pd.DataFrame(columns, index=index)
        ratios = pd.DataFrame(
            {task: (s := study.summary(task)["step"]) / s.min() for task in study.tasks}
        )
        steps = ratios.product(axis=1, min_count=1) ** (1 / ratios.notna().sum(axis=1))
        frame["step, × the quickest"] = [significant(value) for value in steps.reindex(index)]
        frame = _with_lines(
            frame,
            study,
            {h: (t, study.primary(t)) for h, t in zip(columns, study.tasks, strict=True)},
        )
        note = " Step: the time of a training step over that of the quickest loss, in the geometric mean over tasks."
        frame = named_rows(frame)
        return Table("All losses", frame, f"{MEANS}{BOUNDS if is_known else ''}{note}{kinds}")
    (task,) = study.tasks
    metric, rows = study.metric(task), rows_of(study.summary(task).reindex(index))
    bound = f"worse by at most{' (points)' * metric.percent}"
    # The verdict comes first: it has to be on the screen of a telephone.
    frame = pd.DataFrame({
        BEST: [YES if row.contender else NO for row in rows],
        metric.heading: [measured(row.mean, row.sd, metric) for row in rows],
        "95 % interval": [interval((row.low, row.high), row.mean, metric) for row in rows],
        bound: [at_most(row.worse_by, metric) for row in rows],
        "step (ms)": [significant(1000 * row.step) for row in rows],
        "seeds": [f"{row.seeds}" if row.seeds == row.planned else f"{row.seeds} of {row.planned}" for row in rows],
    }, index=index)  # fmt: skip
    if not is_known:
        frame = frame.drop(columns=[BEST, bound])
    frame = _with_lines(frame, study, {metric.heading: (task, study.primary(task))})
    marked = frozenset(k for k, variant in enumerate(index) if variant in study.may_be_best)
    note = f"{MEANS}{BOUND if is_known else ''}{kinds}"
    return Table("All losses", named_rows(frame), note, marked)


def named_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table whose rows are named as sentences name losses, such as noisy-or (softmax)."""
    return frame.rename(index=lambda label: readable(str(label)))


def ticked(row: Any, metric: Metric) -> str:
    """Return the mean of a row of `Study.summary`, and of a contender by how much it may be worse than the best."""
    text = measured(row.mean, row.sd, metric)
    if row.contender != True:  # noqa: E712 nan where the loss was not planned
        return text
    return (
        f"{text} {YES} ≤ {at_most(row.worse_by, metric)}" if row.worse_by > 0 else f"{text} {YES}"
    )


def _with_lines(
    frame: pd.DataFrame, study: Study, columns: dict[str, tuple[str, str]]
) -> pd.DataFrame:
    """Return a table with last rows of the simple baseline and of no skill, each where it is known.

    `columns`: head -> (task, metric).
    """
    baseline = {}
    no_skill = {}
    for head, (task, name) in columns.items():
        baseline[head] = study.baseline(task, name)
        # A threshold of a loss's own has the same line.
        no_skill[head] = study.no_skill(task, name.removeprefix("own_"))
    metrics = {head: describe(name) for head, (_, name) in columns.items()}
    for label, lines in ((BASELINE_NAME, baseline), (NO_SKILL, no_skill)):
        row = {}
        for head, line in lines.items():
            is_known = line.notna().any()
            if is_known:
                row[head] = measured(float(line.mean()), float(line.std()), metrics[head])
        if row:
            last = pd.DataFrame(row, index=pd.Index([label], name=frame.index.name))
            frame = pd.concat([frame, last.reindex(columns=frame.columns)]).fillna(NOTHING)
    return frame


def metrics_table(study: Study, task: str) -> Table:
    """Return the mean and the standard deviation of every test metric of a task, and the mean costs."""
    order, by = study.summary(task).index, study.plan.spec.compare_by
    columns = {}
    for name in study.metrics(task):
        values, metric = study.table(task, name).reindex(order), describe(name)
        flags = (
            study.summary(task, name)["contender"] if name in by else pd.Series(False, index=order)
        )
        columns[metric.heading] = [
            measured(mean, sd, metric) + (" ✓" if flags[variant] else "")
            for variant, mean, sd in zip(
                order, values.mean(axis=1), values.std(axis=1), strict=True
            )
        ]
    for cost, (label, factor) in COSTS.items():
        means = study.table(task, cost).mean(axis=1).reindex(order)
        if means.notna().any():
            columns[label] = [significant(factor * value) for value in means]
    note = MEANS + (" ✓: may be the best by this metric." if by else "")
    frame = pd.DataFrame(columns, index=order.rename("loss"))
    frame = _with_lines(
        frame, study, {describe(name).heading: (task, name) for name in study.metrics(task)}
    )
    return Table(f"Every metric on {readable(task)}", named_rows(frame), note)


def pairs_frame(study: Study, task: str, metric: str = "") -> pd.DataFrame:
    """Return a row for every two losses of a task: the first less the second, by 95 % intervals of their own.

    first, second, difference, low, high, p, seeds and items; the better mean comes first.
    """
    rows = []
    for first, second in combinations(study.summary(task, metric).index, 2):
        pair = study.compare(task, first, second, metric)
        rows.append(
            (first, second, pair.difference, *pair.interval, pair.p, pair.seeds, pair.items)
        )
    return pd.DataFrame(
        rows, columns=["first", "second", "difference", "low", "high", "p", "seeds", "items"]
    )


def contrasts_table(study: Study) -> Table | None:
    """Return the differences that the spec names, with p values adjusted for their number; None without any."""
    contrasts = [
        (contrast, task, study.compare(task, contrast.first, contrast.second))
        for contrast in study.plan.contrasts
        for task in study.tasks
        if {contrast.first, contrast.second} <= set(study.table(task).index)
    ]
    if not contrasts:
        return None
    adjusted, rows = holm([pair.p for *_, pair in contrasts]), []
    for (contrast, task, pair), p in zip(contrasts, adjusted, strict=True):
        metric, margin = study.metric(task), study.margin(task)
        rows.append({
            "question": contrast.name, "task": readable(task),
            "difference of": f"{readable(contrast.first)} less {readable(contrast.second)}",
            "difference": number(pair.difference, 2, metric, signed=True),
            "95 % interval": interval(pair.interval, pair.difference, metric, True),
            "95 %, uncorrected": interval(replace(pair, overlap=0.0).interval, pair.difference, metric, True),
            "p (Holm)": NOTHING if math.isnan(p) else "< 0.001" if p < 0.001 else f"{p:.2g}", "seeds": str(pair.seeds),
            "within the margin": NOTHING if not margin else YES if is_within(pair.interval, margin) else NO,
        })  # fmt: skip
    is_corrected = any(pair.overlap for *_, pair in contrasts)
    frame = (
        pd.DataFrame(rows)
        .set_index("question")
        .drop(columns=["95 %, uncorrected"] * (not is_corrected))
    )
    if (frame["within the margin"] == NOTHING).all():
        frame = frame.drop(columns="within the margin")
    labels = " and ".join(dict.fromkeys(study.metric(task).label for _, task, *_ in contrasts))
    note = f"In {labels}. Intervals stand for themselves; p values are adjusted for all {len(rows)} by Holm's method."
    note += (
        " Uncorrected: as if seeds shared no bags; p values are of the corrected intervals."
        * is_corrected
    )
    shown = frozenset(k for k, p in enumerate(adjusted) if p < 1 - LEVEL)
    return Table("What the comparison was made for", frame, note, shown)


def ranking_table(study: Study) -> Table | None:
    """Return how losses do over tasks where one has learnt; None with fewer than five data sets or two losses.

    Only losses with a value on every task are in it, and those with the least supervision.
    """
    tables = {
        task: study.table(task).dropna(how="all")
        for task in study.tasks
        if study.has_learnt_by(task, study.primary(task))
    }
    least = [v for v in study.ranking() if study.supervision[v] == study.kinds[0]]
    losses = [v for v in least if all(v in table.index for table in tables.values())]
    blocks: dict[tuple[str, str], list[str]] = {}
    for task in tables:
        blocks.setdefault(
            (study.cell_of(task).task.name, study.cell_of(task).task.data), []
        ).append(task)
    if len(blocks) < FEWEST_BLOCKS or len(losses) < 2:
        return None
    sign = {task: 1 if study.metric(task).lower_is_better else -1 for task in tables}
    values = [
        [sign[task] * tables[task].loc[losses].to_numpy() for task in tasks]
        for tasks in blocks.values()
    ]
    lines = [
        [sign[task] * float(study.no_skill(task).mean()) for task in tasks]
        for tasks in blocks.values()
    ]
    ranks = zip(*mean_ranks(values), strict=True)
    columns = {
        "mean rank": [f"{mean:.1f} ({low:.1f} to {high:.1f})" for mean, low, high in ranks],
        "win rate (%)": [f"{100 * rate:.0f}" for rate in win_rates(values)],
    }
    if known := not np.isnan(np.concatenate(lines)).any():
        columns["score"] = [f"{score:.2f}" for score in scores(values, lines)]
    frame = pd.DataFrame(columns, index=pd.Index(losses, name="loss"))
    return Table(f"Over {len(tables)} tasks", named_rows(frame), RANKS + (SCORE if known else ""))


def cells_table(study: Study, task: str) -> Table:
    """Return every cell of a task with its state and its run."""
    values = study.table(task)
    rows = [
        (c.variant, str(c.seed), str(c.status), c.reason or NOTHING,
         number(float(values[c.seed][c.variant]), 3, study.metric(task)), c.cell, c.run or NOTHING)
        for c in rows_of(study.cells_of(task))
    ]  # fmt: skip
    head = ["loss", "seed", "state", "reason", study.metric(task).heading, "cell", "MLflow run"]
    frame = pd.DataFrame(rows, columns=head).set_index("loss")
    if (frame["reason"] == NOTHING).all():
        frame = frame.drop(columns="reason")
    bad = frozenset(k for k, row in enumerate(rows) if row[2] != "done")
    return Table(
        f"Every cell on {readable(task)}", named_rows(frame), counted(len(rows), "cell") + ".", bad
    )
