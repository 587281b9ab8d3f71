"""Heat maps: losses by tests with the distance from their marks, losses by tasks, differences, and equivalence."""

import math
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Patch, Rectangle

from milbench._utils.palette import (
    BAD_SOFT,
    BETTER,
    GOOD_EDGE,
    GOOD_SOFT,
    INK,
    LINE,
    PAPER,
    SAME,
    WARN_SOFT,
    WORSE,
)
from milbench._utils.pictures import literal
from milbench.contracts.metric_info import BASELINE_NAME, Metric, describe
from milbench.report.figures.style import WIDTH, wrapped
from milbench.report.formatting import decimals, measured, number, readable, scaled
from milbench.report.marks import VERDICTS, equivalence_frame, marks_frame
from milbench.report.pair_tables import pairs_frame
from milbench.report.statistics.differences import is_within
from milbench.report.study import Study
from milbench.report.tables import NO_SKILL, YES
from milbench.report.values import rows_of

MARKS = (
    "How far the mean over seeds is from the mark, in points, ± half of its 95 % interval; minus: on the passing side. "
    "✓ passes: the interval is on the passing side and no seed is missing. ✗ fails: it is on the other side. The rest "
    "is open."
)
PAIRS = (
    "Row less column, in the unit of the metric, of means over common seeds, ± half of the 95 % interval of this pair. "
    "Green ✓: the row is better beyond it; red ✗: it is worse; ≈: within the margin of the spec. Each pair is judged "
    "alone, and contenders by all at once: one of them may be worse in a pair."
)
EQUIVALENCE = (
    "The first loss less the other one, means over common seeds, ± half of the 95 % interval. Yellow ≈: equivalent, "
    "the 90 % interval is within the margin of the spec. Else blue ✓: the first is better, or orange ✗: worse, as the "
    "95 % interval leaves out 0. Grey: not settled. Each cell is judged alone, without adjustment for their number."
)
TASKS = "Means over seeds with the half width of their 95 % interval. Green ✓: the loss may be the best there."
MOST_PAIRS = 20
_VERDICTS = {
    "better": (BETTER, "✓"),
    "equivalent": (SAME, "≈"),
    "worse": (WORSE, "✗"),
    "open": (LINE, ""),
}
_MARKS = {"pass": (1.0, "✓"), "open": (2.0, ""), "fail": (3.0, "✗")}


def _draw(codes: pd.DataFrame, text: pd.DataFrame, width: float) -> Figure:
    """Draw codes 0 (none), 1 (good), 2 (open), 3 (bad) as colours, and text on them."""
    row = 0.36 if text.map(lambda cell: "\n" in cell).any(axis=None) else 0.27
    height = 0.9 + row * len(codes) + 0.055 * max(len(str(c)) for c in codes.columns)
    figure = Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(h_pad=0.15))
    axes = figure.subplots()
    size = 8.0 if codes.shape[1] <= 12 else 6.2
    _frame_good(axes, codes)
    _fill(
        axes,
        codes,
        text,
        ["none", GOOD_SOFT, WARN_SOFT, BAD_SOFT],
        size,
        linewidths=0.8,
        linecolor=LINE,
    )
    heads = [literal(wrapped(str(c), 18)) for c in codes.columns]
    axes.set_xticks(np.arange(len(heads)) + 0.5, heads, rotation=90, color=INK, fontsize=7.5)
    axes.set_yticks(
        axes.get_yticks(), [literal(wrapped(str(r), 40)) for r in codes.index], fontsize=8.5
    )
    return figure


def _frame_good(axes: Axes, codes: pd.DataFrame) -> None:
    """Draw a frame around every good cell, which can be seen where its tint cannot."""
    for row, column in np.argwhere(codes.to_numpy() == 1):
        frame = Rectangle(
            (column + 0.03, row + 0.04), 0.94, 0.92, fill=False, ec=GOOD_EDGE, lw=1, zorder=3
        )
        axes.add_patch(frame)


def _fill(
    axes: Axes,
    codes: pd.DataFrame,
    text: pd.DataFrame,
    colours: list[str],
    size: float,
    **lines: Any,
) -> None:
    sns.heatmap(codes, annot=text.to_numpy(), fmt="", cmap=ListedColormap(colours), vmin=-0.5, vmax=3.5, cbar=False,
                ax=axes, annot_kws={"size": size, "color": INK}, **lines)  # fmt: skip
    axes.set(xlabel="", ylabel="")
    axes.grid(visible=False)
    rows = [literal(readable(str(label))) for label in codes.index]
    axes.set_yticks(np.arange(len(rows)) + 0.5, rows, rotation=0, color=INK)
    axes.xaxis.tick_top()


def _shown(difference: float, metric: Metric, half: float = math.nan, sign: str = "") -> str:
    """Return a difference with a sign behind it and, below, the half width of its interval, where that is known."""
    digits = 0 if abs(scaled(difference, metric)) >= 10 else 1 if metric.percent else 3
    below = "" if math.isnan(half) else f"\n± {number(half, digits, metric)}"
    return f"{number(difference, digits, metric, signed=True)}{sign}{below}"


def marks_figures(study: Study) -> list[tuple[str, Figure]]:
    """Draw losses by tests, a figure for each metric of the marks; tests are in the rows, since they are many."""
    frame, figures = marks_frame(study), []
    if frame.empty:
        return []
    for name, of_metric in frame.groupby("metric", sort=False):
        metric = describe(str(name))
        unit = " %" * metric.percent
        own = of_metric.assign(
            row=[
                f"{row.test} (at {'most' if row.at_most else 'least'} {scaled(row.bound, metric):g}{unit})"
                for row in rows_of(of_metric)
            ],
            code=[_MARKS[verdict][0] for verdict in of_metric["verdict"]],
            text=[
                _shown(row.distance, metric, row.half, _MARKS[row.verdict][1])
                for row in rows_of(of_metric)
            ],
        ).drop_duplicates(["row", "variant"])
        codes, text = (
            own.set_index(["row", "variant"])[name].unstack(sort=False) for name in ("code", "text")
        )
        passes = (codes == 1).sum().sort_values(ascending=False, kind="stable").index
        figures.append(
            (metric.label, _draw(codes[passes].fillna(0), text[passes].fillna(""), WIDTH))
        )
    return figures


def tasks_figure(study: Study) -> Figure:
    """Draw the mean of every loss on many tasks."""
    order, codes, text = study.ranking(), {}, {}
    lines = {NO_SKILL: {task: float(study.no_skill(task).mean()) for task in study.tasks}}
    baselines = {task: float(study.baseline(task).mean()) for task in study.tasks}
    if not all(map(math.isnan, baselines.values())):
        lines = {BASELINE_NAME: baselines, **lines}
    for task in study.tasks:
        summary, metric = study.summary(task).reindex(order), study.metric(task)
        is_best = summary["contender"].eq(other=True)
        codes[task] = [*is_best.astype(float), *[0.0] * len(lines)]
        texts = []
        for row in rows_of(summary):
            tick = f" {YES}" if is_best[row.Index] else ""
            shown = measured(row.mean, (row.high - row.low) / 2, metric)
            mean, sign, half = shown.partition(" ±")
            texts.append(f"{mean}{tick}" + (f"\n±{half}" if sign else ""))
        for of_tasks in lines.values():
            line = of_tasks[task]
            texts.append(number(line, decimals(line, math.nan, metric), metric))
        text[task] = texts
    rows = [*order, *lines]
    return _draw(pd.DataFrame(codes, index=rows), pd.DataFrame(text, index=rows), WIDTH)


def pairs_figure(study: Study, task: str) -> Figure | None:
    """Draw the difference of every two losses; None without intervals, and for many losses."""
    frame, metric = pairs_frame(study, task), study.metric(task)
    order = [v for v in study.summary(task).index if study.table(task).loc[v].notna().any()]
    if not 1 < len(order) <= MOST_PAIRS or frame["low"].isna().all():
        return None
    turned = {"first": "second", "second": "first", "low": "high", "high": "low"}
    negative = {name: -frame[name] for name in ("difference", "low", "high")}
    both = pd.concat([frame, frame.assign(**negative).rename(columns=turned)], ignore_index=True)
    better, worse = (1.0, 3.0) if metric.lower_is_better else (3.0, 1.0)
    both["code"] = np.select([both["high"] < 0, both["low"] > 0], [better, worse], 0.0)
    margin = study.margin(task)
    signs = {1.0: f" {YES}", 3.0: " ✗"}
    texts = []
    for row in rows_of(both):
        sign = signs.get(row.code, "")
        if is_within((row.low, row.high), margin):
            sign = " ≈"
        texts.append(_shown(row.difference, metric, (row.high - row.low) / 2, sign))
    both["text"] = texts
    codes, text = (
        both.set_index(["first", "second"])[name].unstack().loc[order, order]
        for name in ("code", "text")
    )
    return _draw(codes.fillna(0), text.fillna(""), min(WIDTH, 3.4 + 0.52 * len(order)))


def equivalence_figure(study: Study) -> Figure | None:
    """Draw the first loss against each other one, a panel each; None where `equivalence_frame` has nothing."""
    frame, metric = equivalence_frame(study), study.metric(study.tasks[0])
    if frame.empty:
        return None
    frame = frame.assign(
        code=frame["verdict"].map(lambda name: float([*VERDICTS].index(name))),
        text=[
            f"{_shown(row.difference, metric, row.half)} {_VERDICTS[row.verdict][1]}"
            for row in rows_of(frame)
        ],
    )
    panels = list(frame.groupby("other", sort=False))
    height = 0.6 + len(panels) * (0.95 + 0.34 * frame["row"].nunique())
    figure = Figure(figsize=(WIDTH, height), layout=ConstrainedLayoutEngine(w_pad=0.15))
    colours = [colour for colour, _ in _VERDICTS.values()]
    for axes, (other, own) in zip(
        figure.subplots(len(panels), squeeze=False)[:, 0], panels, strict=True
    ):
        codes, text = (
            own.set_index(["row", "column"])[name].unstack(sort=False) for name in ("code", "text")
        )
        _fill(axes, codes, text.fillna(""), colours, 9.5, linewidths=1.5, linecolor=PAPER)
        axes.set_title(
            literal(f"{readable(own['first'].iloc[0])} against {readable(str(other))}"), pad=8
        )
        heads = [literal(str(c).replace(", ", "\n")) for c in codes.columns]
        axes.set_xticks(np.arange(len(heads)) + 0.5, heads, rotation=0, color=INK, fontsize=8.5)
    words = [f"{VERDICTS[name]} {sign}".strip() for name, (_, sign) in _VERDICTS.items()]
    figure.legend(
        [Patch(color=colour) for colour in colours],
        words,
        loc="outside lower center",
        ncols=len(words),
    )
    return figure
