"""The tables of a report: frames of text that pandas writes as HTML, Markdown and LaTeX."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from itertools import combinations

import pandas as pd
from jinja2 import Environment
from markupsafe import Markup

from milbench.api.metric_info import describe
from milbench.api.plan import Label
from milbench.report.formatting import (
    NOTHING,
    at_most,
    counted,
    interval,
    measured,
    number,
    p_value,
    significant,
    with_unit,
)  # fmt: skip
from milbench.report.statistics.differences import LEVEL, holm
from milbench.report.statistics.verdicts import is_within
from milbench.report.study import STEP, Study, rows_of

YES, NO = "✓", "–"
LINE = "no skill"
BOUND = " Worse by at most: than the best loss, for all losses at once with 95 % confidence."
BOUNDS = " ✓: may be the best; ≤: then worse than the best by at most so much, in the unit of the metric."
_LONG = 44
"""Characters of a text that is broken into lines."""
_HTML = Environment(autoescape=True).from_string("""\
<table class="sortable"><caption>{{ table.title }}</caption>
<thead><tr><th scope="col">{{ table.frame.index.name or "" }}</th>
{%- for head in table.frame.columns %}<th scope="col">{{ head }}</th>{% endfor %}</tr></thead><tbody>
{%- for row in table.frame.itertuples(name=None) %}
<tr{% if loop.index0 in table.marked %} class="marked"{% endif %}><th scope="row">{{ row[0] }}</th>
{%- for text in row[1:] %}<td{% if text | length > long %} class="long"{% endif %}>{{ text }}</td>{% endfor %}</tr>
{%- endfor %}</tbody></table>""")


@dataclass(frozen=True)
class Table:
    """A table of text; the index is the head of each row, and its name that of the first column."""

    title: str
    frame: pd.DataFrame
    note: str = ""  # what a reader has to know, below the table
    marked: frozenset[int] = field(default_factory=frozenset)  # the numbers of the rows to be emphasised

    def html(self) -> Markup:
        """Return the table as HTML, with heads that a screen reader knows."""
        return Markup(_HTML.render(table=self, long=_LONG))  # noqa: S704 the template escapes every text

    def markdown(self) -> str:
        """Return the table in Markdown."""
        heads, rows = ([markdown(head) for head in axis] for axis in (self.frame.columns, self.frame.index))
        escaped = self.frame.map(markdown).set_axis(heads, axis=1).set_axis(rows)
        return escaped.rename_axis(index=str(self.frame.index.name or "")).to_markdown(disable_numparse=True)

    def latex(self) -> str:
        """Return the table in LaTeX, for the package booktabs."""
        styler = self.frame.style.format(escape="latex")
        for axis in (0, 1):
            styler = styler.format_index(escape="latex", axis=axis)
        return str(styler.to_latex(hrules=True, caption=self.title))


def markdown(text: object) -> str:
    """Return text escaped for Markdown, also inside a table."""
    line = str(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|#~$])", r"\\\1", line)


def main_table(study: Study) -> Table:
    """Return the mean of each loss, whether it may be the best, by how much it may be worse, its cost and its seeds."""
    one = len(study.tasks) == 1
    columns, metrics = {}, {task: study.metric(task) for task in study.tasks}
    for task in study.tasks:
        found, metric = study.summary(task), metrics[task]
        ordered = found.reindex(study.order())
        bounds = [interval((one.low, one.high), one.mean, metric) for one in rows_of(ordered)]
        means = [measured(one.mean, one.sd, metric) for one in rows_of(ordered)]
        flags = [YES if flag else NO for flag in ordered["contender"].eq(other=True)]
        bound = [at_most(value, metric) for value in ordered["worse_by"]]
        seeds = [_seeds(one.seeds, one.planned) for one in rows_of(ordered)]
        if one:
            steps = [significant(1000 * value) for value in ordered["step"]]
            worse = f"worse by at most{' (points)' if metric.percent else ''}"
            columns = {metric.heading: means, "95 % interval": bounds, "may be the best": flags, worse: bound,
                       "step (ms)": steps, "seeds": seeds}  # fmt: skip
        else:
            columns[f"{task}: {metric.heading}"] = [
                mean
                + (f" ✓{'' if most == '0' else f' ≤ {most}'}" if flag == YES else "")
                + (f" ({known} seeds)" if " of " in known else "")
                for mean, flag, most, known in zip(means, flags, bound, seeds, strict=True)
            ]
    index = pd.Index(study.order(), name="loss")
    frame = pd.DataFrame(columns, index=index)
    if not one:
        frame["step, × the quickest"] = [significant(value) for value in _relative_steps(study).reindex(index)]
    is_known = bool(study.colours)  # one seed names no contenders
    if one and not is_known:
        frame = frame.drop(columns=["may be the best", worse])
    note = "Mean ± standard deviation over seeds."
    if is_known:
        note += BOUND if one else BOUNDS
    if not one:
        note += " Step: the time of a training step over that of the quickest loss, in the geometric mean over tasks."
    heads = [metric.heading if one else f"{task}: {metric.heading}" for task, metric in metrics.items()]
    frame = _with_line(frame, study, {head: (task, "") for head, task in zip(heads, study.tasks, strict=True)})
    kinds = "" if len(study.kinds) == 1 else " Losses are compared with those of the same supervision."
    contenders = frozenset(k for k, v in enumerate(index) if v in study.colours)
    return Table("All losses", frame, note + kinds, contenders if one else frozenset())


def _with_line(frame: pd.DataFrame, study: Study, columns: dict[str, tuple[str, str]]) -> pd.DataFrame:
    """Return a table with a last row of the no-skill line, which `columns` have of a task by a metric, if it is known.

    The label error with a threshold of its own has the line of the label error.
    """
    row = {}
    for head, (task, name) in columns.items():
        metric, line = describe(name or study.primary(task)), study.no_skill(task, name.removeprefix("own_"))
        if line.notna().any():
            row[head] = measured(float(line.mean()), float(line.std()), metric)
    if not row:
        return frame
    last = pd.DataFrame(row, index=pd.Index([LINE], name=frame.index.name))
    return pd.concat([frame, last.reindex(columns=frame.columns)]).fillna(NOTHING)


def _seeds(known: float, planned: float) -> str:
    if math.isnan(known):  # not planned on this task
        return NOTHING
    return f"{known:.0f}" if known == planned else f"{known:.0f} of {planned:.0f}"


def _relative_steps(study: Study) -> pd.Series[float]:
    ratios = pd.DataFrame({task: (s := study.summary(task)["step"]) / s.min() for task in study.tasks})
    return ratios.product(axis=1, min_count=1) ** (1 / ratios.notna().sum(axis=1))


def metrics_table(study: Study, task: str) -> Table:
    """Return the mean and the standard deviation of every test metric of a task."""
    order, by = study.summary(task).index, study.plan.compare_by
    columns = {}
    for name in study.metrics(task):
        values, metric = study.table(task, name).reindex(order), describe(name)
        flags = study.summary(task, name)["contender"] if name in by else pd.Series(False, index=order)
        columns[metric.heading] = [
            measured(mean, sd, metric) + (" ✓" if flags[variant] else "")
            for variant, mean, sd in zip(order, values.mean(axis=1), values.std(axis=1), strict=True)
        ]
    note = "Mean ± standard deviation over seeds." + (" ✓: may be the best by this metric." if by else "")
    frame = pd.DataFrame(columns, index=order.rename("loss"))
    frame = _with_line(frame, study, {describe(name).heading: (task, name) for name in study.metrics(task)})
    return Table(f"Every metric on {task}", frame, note)


def costs_table(study: Study, task: str) -> Table | None:
    """Return what a step, the loss alone and the training cost; None where nothing was measured."""
    units = {
        STEP: ("step (ms)", 1e3), "cost/loss_seconds_min": ("loss alone (ms)", 1e3),
        "cost/peak_bytes": ("peak memory (GB)", 1e-9), "cost/train_seconds": ("training (min)", 1 / 60),
    }  # fmt: skip
    order = study.summary(task).index
    tables = {label: (study.table(task, name).mean(axis=1), factor) for name, (label, factor) in units.items()}
    columns = {
        label: [significant(factor * value) for value in mean.reindex(order)]
        for label, (mean, factor) in tables.items()
        if mean.notna().any()
    }
    frame = pd.DataFrame(columns, index=order.rename("loss"))
    return Table(f"Costs on {task}", frame, "Means over seeds.") if columns else None


def pairs_frame(study: Study, task: str, metric: str = "") -> pd.DataFrame:
    """Return a row for every two losses of a task: the first less the second, by 95 % intervals of their own.

    Returns:
        The columns first, second, difference, low, high, p, seeds and items; the better mean comes first.
    """
    rows = []
    for first, second in combinations(study.summary(task, metric).index, 2):
        found = study.compare(task, first, second, metric)
        rows.append((first, second, found.difference, *found.interval, found.p, found.seeds, found.items))
    return pd.DataFrame(rows, columns=["first", "second", "difference", "low", "high", "p", "seeds", "items"])


def pairs_table(study: Study, task: str) -> Table | None:
    """Return the differences from the loss with the best mean; None for fewer than two losses."""
    frame, metric = pairs_frame(study, task), study.metric(task)
    if frame.empty or frame["difference"].isna().all():
        return None
    best = frame["first"].iloc[0]
    rows = frame[frame["first"] == best]
    sign = -1 if metric.lower_is_better else 1
    bounds = [sorted((sign * low, sign * high)) for low, high in zip(rows["low"], rows["high"], strict=True)]
    worse = [sign * float(d) for d in rows["difference"]]
    shown = pd.DataFrame({
        "worse by": [number(d, 2 if metric.percent else 3, metric, signed=True) for d in worse],
        "95 % interval": [interval((low, high), d, metric, True) for d, (low, high) in zip(worse, bounds, strict=True)],
        "common seeds": list(map(str, rows["seeds"])),
    }, index=pd.Index(rows["second"], name=f"beside {best}"))  # fmt: skip
    margin = study.plan.margin.get(study.primary(task))
    if margin is not None:
        shown[f"within {with_unit(margin, metric)}"] = [YES if is_within(bound, margin) else NO for bound in bounds]
    covers = f"seeds and the {rows['items'].iloc[0]:,} test items" if (rows["items"] > 0).all() else "seeds alone"
    points = " Points of a percentage." if metric.percent else ""
    note = f"Paired seed by seed; each interval stands for itself and covers {covers}.{points}"
    return Table(f"Differences in {metric.label} on {task}", shown, note)


def contrasts_table(study: Study) -> Table | None:
    """Return the differences that the spec names, with p values adjusted for their number; None without any."""
    rows = []
    for contrast in study.plan.contrasts:
        for task, names in contrast.variants.items():
            if task not in study.tasks or not set(names) <= set(study.variants(task)):
                continue
            found = study.compare(task, *names)
            margin = (study.plan.margin | contrast.margin).get(study.primary(task))
            rows.append((contrast.name, task, f"{names[0]} less {names[1]}", found, margin))
    if not rows:
        return None
    adjusted = holm([found.p for *_, found, _ in rows])
    frame = pd.DataFrame({
        "task": [task for _, task, *_ in rows],
        "difference of": [names for _, _, names, *_ in rows],
        "difference": [number(f.difference, 2, study.metric(t), signed=True) for _, t, _, f, _ in rows],
        "95 % interval": [interval(f.interval, f.difference, study.metric(t), True) for _, t, _, f, _ in rows],
        "p (Holm)": [p_value(p) for p in adjusted],
        "seeds": [str(f.seeds) for *_, f, _ in rows],
    }, index=pd.Index([name for name, *_ in rows], name="question"))  # fmt: skip
    labels = " and ".join(dict.fromkeys(study.metric(task).label for _, task, *_ in rows))
    if any(margin is not None for *_, margin in rows):
        frame["within the margin"] = [
            NOTHING if margin is None else YES if is_within(f.interval, margin) else NO for *_, f, margin in rows
        ]
    note = f"In {labels}. Intervals stand for themselves; p values are adjusted for all {len(rows)} by Holm's method."
    shown = frozenset(k for k, p in enumerate(adjusted) if p < 1 - LEVEL)
    return Table("What the comparison was made for", frame, note, shown)


def search_table(study: Study) -> Table | None:
    """Return the settings that were chosen for each loss on each task; None without a search."""
    search = study.plan.search
    if search is None:
        return None
    frame, rows = study.results.frame, []
    values = frame[frame["draw"].notna() & (frame["metric"] == search.metric)].groupby("cell")["value"].last()
    metric = describe(search.metric.partition("/")[2])
    for key, number_ in search.chosen.items():
        own = {cell: one for cell, one in search.draws.items() if "|".join(one["arm"]) == key}
        task, loss, network = next(iter(own.values()))["arm"]
        chosen = [cell for cell, one in own.items() if one["draw"] == number_]
        settings = ", ".join(f"{k} = {v}" for k, v in own[chosen[0]]["settings"].items()) if chosen else NOTHING
        value = values.reindex(chosen).mean()
        draws = len({one["draw"] for one in own.values()})
        rows.append(
            (Label(task, loss, network).variant, task, settings, measured(value, float("nan"), metric), str(draws))
        )
    if not rows:
        return None
    head = ["loss", "task", "chosen settings", f"validation {metric.heading}", "draws"]
    return Table("The search for settings", pd.DataFrame(rows, columns=head).set_index("loss"))


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
    return Table(f"Every cell on {task}", frame, counted(len(rows), "cell") + ".", bad)
