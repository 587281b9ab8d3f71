"""Heat maps: losses by tests with the distance from their marks, losses by tasks, differences, and equivalence."""

from __future__ import annotations

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from milbench._utils.palette import BAD_SOFT, GOOD_SOFT, INK, LINE, MUTED, WARN_SOFT
from milbench.api.metric_info import Metric, describe
from milbench.report.figures.style import WIDTH, literal, wrapped
from milbench.report.formatting import decimals, number, scaled
from milbench.report.marks import bound_in_words, marks_frame
from milbench.report.statistics.differences import pair_parts
from milbench.report.statistics.equivalence import verdict
from milbench.report.study import Study, rows_of
from milbench.report.tables import pairs_frame

MARKS = (
    "How far the mean over seeds is from the mark, in points; minus: on the passing side. ✓ passes: the 95 % interval "
    "of the mean is on the passing side and no seed is missing. ✗ fails: it is on the other side. The rest is open."
)
PAIRS = (
    "Row less column, in the unit of the metric, of means over common seeds. Green: the row is better beyond the 95 % "
    "interval of this pair; red: it is worse. Each pair is judged alone, and contenders by all at once: one "
    "of them may be worse in a pair."
)
EQUIVALENCE = (
    "The first loss less the other one, means over common seeds in the unit of the metric. Green ✓: the first is "
    "better; red ✗: it is worse (95 % interval); yellow ≈: equivalent within the margin of the spec (two one-sided "
    "tests at 5 %); grey: not settled. Each cell is judged alone."
)
TASKS = "Means over seeds. Green: the loss may be the best on that task."
MOST_PAIRS = 20
_CODES = {"pass": 1.0, "open": 2.0, "fail": 3.0}
_VERDICTS = {"better": (1.0, "✓"), "equivalent": (2.0, "≈"), "worse": (3.0, "✗"), "open": (4.0, "")}
_SIGNS = {"pass": "✓", "open": "", "fail": "✗"}


def _draw(codes: pd.DataFrame, text: pd.DataFrame, width: float, cell: float = 0.27) -> Figure:
    """Draw codes 0 (none), 1 (good), 2 (open, equivalent), 3 (bad), 4 (not settled) as colours, and text on them."""
    figure = Figure(figsize=(width, 0.9 + cell * len(codes) + 0.055 * max(len(str(c)) for c in codes.columns)),
                    layout=ConstrainedLayoutEngine(h_pad=0.15))  # fmt: skip
    axes = figure.subplots()
    size = 8.0 if codes.shape[1] <= 12 else 6.2
    colours = ListedColormap(["none", GOOD_SOFT, WARN_SOFT, BAD_SOFT, LINE])
    sns.heatmap(
        codes, annot=text.to_numpy(), fmt="", cmap=colours, vmin=-0.5, vmax=4.5, cbar=False,
        ax=axes, linewidths=0.8, linecolor=LINE, annot_kws={"size": size, "color": INK},
    )  # fmt: skip
    axes.set(xlabel="", ylabel="")
    axes.grid(visible=False)
    axes.set_yticks(np.arange(len(codes)) + 0.5, [literal(str(label)) for label in codes.index], rotation=0, color=INK,
                    fontsize=8.5)  # fmt: skip
    axes.set_xticks(np.arange(codes.shape[1]) + 0.5, [literal(wrapped(str(c), 18)) for c in codes.columns], rotation=90,
                    color=INK, fontsize=7.5)  # fmt: skip
    axes.xaxis.tick_top()
    return figure


def _shown(difference: float, metric: Metric) -> str:
    digits = 0 if abs(scaled(difference, metric)) >= 10 else 1 if metric.percent else 3
    return number(difference, digits, metric, signed=True)


def marks_figures(study: Study) -> list[tuple[str, Figure]]:
    """Draw losses by tests, a figure for each metric of the marks; tests are in the rows, since they are many."""
    frame, figures = marks_frame(study), []
    if frame.empty:
        return []
    for name, of_metric in frame.groupby("metric", sort=False):
        metric = describe(str(name))
        own = of_metric.assign(
            row=[f"{row.test} ({bound_in_words(row.metric, row.bound, row.at_most)})" for row in rows_of(of_metric)],
            code=of_metric["verdict"].map(_CODES),
            text=[_shown(row.distance, metric) + _SIGNS[row.verdict] for row in rows_of(of_metric)],
        ).drop_duplicates(["row", "variant"])
        codes, text = (own.set_index(["row", "variant"])[name].unstack(sort=False) for name in ("code", "text"))  # noqa: PD010
        passes = (codes == 1).sum().sort_values(ascending=False, kind="stable").index
        figures.append((metric.label, _draw(codes[passes].fillna(0), text[passes].fillna(""), WIDTH)))
    return figures


def tasks_figure(study: Study) -> Figure:
    """Draw the mean of every loss on many tasks."""
    order = study.order()
    found = {task: study.summary(task).reindex(order) for task in study.tasks}
    codes = pd.DataFrame(
        {task: one["contender"].eq(other=True).astype(float) for task, one in found.items()}, index=order
    )
    text = pd.DataFrame({
        task: [number(m, decimals(m, s, study.metric(task)), study.metric(task)) for m, s in zip(one["mean"], one["sd"],
               strict=True)]
        for task, one in found.items()
    }, index=order)  # fmt: skip
    return _draw(codes, text, WIDTH)


def pairs_figure(study: Study, task: str) -> Figure | None:
    """Draw the difference of every two losses; None without intervals, for two losses and for many."""
    frame, metric = pairs_frame(study, task), study.metric(task)
    order = [v for v in study.summary(task).index if study.table(task).loc[v].notna().any()]
    if not 2 < len(order) <= MOST_PAIRS or frame["low"].isna().all():
        return None
    codes = pd.DataFrame(0.0, index=order, columns=order)
    text = pd.DataFrame("", index=order, columns=order)
    for row in rows_of(frame):
        if row.first not in codes.index or row.second not in codes.index:
            continue
        known = not np.isnan(row.low)
        better = known and (row.high < 0 if metric.lower_is_better else row.low > 0)
        worse = known and (row.low > 0 if metric.lower_is_better else row.high < 0)
        colours = (1, 3) if better else (3, 1) if worse else (0, 0)
        codes.loc[row.first, row.second], codes.loc[row.second, row.first] = colours
        text.loc[row.first, row.second] = _shown(row.difference, metric)
        text.loc[row.second, row.first] = _shown(-row.difference, metric)
    figure = _draw(codes, text, min(WIDTH, 3.4 + 0.52 * len(order)))
    figure.axes[0].tick_params(axis="x", colors=MUTED)
    return figure


def equivalence_figure(study: Study) -> Figure | None:
    """Draw the first loss against each other one on tasks that cross parameters, by the margin of the spec.

    Rows are the pairs of losses under the first half of the parameters, columns the combinations of the others. None
    without a margin for the primary metric, with one loss, or where no two parameters are crossed.
    """
    cells = {cell.id: cell for cell in study.plan.cells}
    params = {
        task: cells[first].task_params
        for task, first in study.cells.groupby("task", sort=False)["cell"].first().items()
    }
    names = {study.primary(task) for task in study.tasks}
    varied = [key for key in next(iter(params.values())) if len({str(p.get(key)) for p in params.values()}) > 1]
    name, order = min(names), list(study.supervision)
    if len(names) > 1 or name not in study.plan.margin or len(varied) < 2 or len(order) < 2:
        return None
    margin, metric, half = study.plan.margin[name], describe(name), len(varied) // 2
    places = {task: [", ".join(f"{k}={p[k]}" for k in keys) for keys in (varied[:half], varied[half:])]
              for task, p in params.items()}  # fmt: skip
    rows = [
        f"{order[0]} less {other}, {row}" for other in order[1:] for row in dict.fromkeys(p[0] for p in places.values())
    ]
    columns = list(dict.fromkeys(column for _, column in places.values()))
    codes, text = pd.DataFrame(0.0, index=rows, columns=columns), pd.DataFrame("", index=rows, columns=columns)
    for task in study.tasks:
        row, column = places[task]
        table, overlap = study.table(task), study.info(task).overlap
        noise = study.noise(task, name, table)
        for other in order[1:]:
            if not {order[0], other} <= {*table.index}:
                continue
            first, second = ([*table.index].index(variant) for variant in (order[0], other))
            parts = pair_parts(table.to_numpy(), noise, first, second)
            code, sign = _VERDICTS[verdict(parts, margin, metric.lower_is_better, overlap)]
            if parts.seeds:
                place = f"{order[0]} less {other}, {row}", column
                codes.loc[place], text.loc[place] = code, f"{_shown(parts.difference, metric)}{sign}"
    return _draw(codes, text, WIDTH)
