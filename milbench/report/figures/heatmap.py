"""Heat maps: losses by tests with the distance from their marks, losses by tasks, differences, and equivalence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Patch

from milbench._utils.palette import BAD_SOFT, BETTER, GOOD_SOFT, INK, LINE, MUTED, PAPER, SAME, WARN_SOFT, WORSE
from milbench._utils.pictures import literal
from milbench.api.metric_info import Metric, describe
from milbench.report.equivalence import VERDICTS, equivalence_frame
from milbench.report.figures.style import WIDTH, wrapped
from milbench.report.formatting import decimals, number, scaled
from milbench.report.marks import bound_in_words, marks_frame
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
    "The first loss less the other one, means over common seeds in the unit of the metric. Yellow ≈: equivalent, the "
    "90 % interval is within the margin of the spec (two one-sided tests at 5 %). Else blue ✓: the first is better, or "
    "orange ✗: it is worse; the 95 % interval leaves out 0, but may hold differences smaller than the margin. Grey: "
    "not settled. Each cell is judged alone, without adjustment for their number."
)
TASKS = "Means over seeds. Green: the loss may be the best on that task."
MOST_PAIRS = 20
_CODES = {"pass": 1.0, "open": 2.0, "fail": 3.0}
_VERDICTS = {"better": (BETTER, "✓"), "equivalent": (SAME, "≈"), "worse": (WORSE, "✗"), "open": (LINE, "")}
_SIGNS = {"pass": "✓", "open": "", "fail": "✗"}


def _draw(codes: pd.DataFrame, text: pd.DataFrame, width: float) -> Figure:
    """Draw codes 0 (none), 1 (good), 2 (open), 3 (bad) as colours, and text on them."""
    figure = Figure(figsize=(width, 0.9 + 0.27 * len(codes) + 0.055 * max(len(str(c)) for c in codes.columns)),
                    layout=ConstrainedLayoutEngine(h_pad=0.15))  # fmt: skip
    axes = figure.subplots()
    size = 8.0 if codes.shape[1] <= 12 else 6.2
    _fill(axes, codes, text, ["none", GOOD_SOFT, WARN_SOFT, BAD_SOFT], size, linewidths=0.8, linecolor=LINE)
    heads = [literal(wrapped(str(c), 18)) for c in codes.columns]
    axes.set_xticks(np.arange(len(heads)) + 0.5, heads, rotation=90, color=INK, fontsize=7.5)
    axes.tick_params(axis="y", labelsize=8.5)
    return figure


def _fill(axes: Axes, codes: pd.DataFrame, text: pd.DataFrame, colours: list[str], size: float, **lines: Any) -> None:
    sns.heatmap(
        codes, annot=text.to_numpy(), fmt="", cmap=ListedColormap(colours), vmin=-0.5, vmax=3.5, cbar=False, ax=axes,
        annot_kws={"size": size, "color": INK}, **lines,
    )  # fmt: skip
    axes.set(xlabel="", ylabel="")
    axes.grid(visible=False)
    rows = [literal(str(label)) for label in codes.index]
    axes.set_yticks(np.arange(len(rows)) + 0.5, rows, rotation=0, color=INK)
    axes.xaxis.tick_top()


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
    """Draw the first loss against each other one, a panel each; None where `equivalence_frame` has nothing."""
    frame, metric = equivalence_frame(study), study.metric(study.tasks[0])
    if frame.empty:
        return None
    frame = frame.assign(
        code=frame["verdict"].map(lambda name: float([*VERDICTS].index(name))),
        text=[f"{_shown(row.difference, metric)} {_VERDICTS[row.verdict][1]}" for row in rows_of(frame)],
    )
    panels = list(frame.groupby("other", sort=False))
    rows = frame["row"].nunique()
    height = 0.6 + len(panels) * (0.95 + 0.34 * rows)
    figure = Figure(figsize=(WIDTH, height), layout=ConstrainedLayoutEngine(w_pad=0.15))
    colours = [colour for colour, _ in _VERDICTS.values()]
    for axes, (other, own) in zip(figure.subplots(len(panels), squeeze=False)[:, 0], panels, strict=True):
        codes, text = (own.set_index(["row", "column"])[name].unstack(sort=False) for name in ("code", "text"))  # noqa: PD010
        _fill(axes, codes, text.fillna(""), colours, 9.5, linewidths=1.5, linecolor=PAPER)
        axes.set_title(literal(f"{own['first'].iloc[0]} against {other}"), pad=8)
        heads = [literal(str(c).replace(", ", "\n")) for c in codes.columns]
        axes.set_xticks(np.arange(len(heads)) + 0.5, heads, rotation=0, color=INK, fontsize=8.5)
    words = [f"{VERDICTS[name]} {sign}".strip() for name, (_, sign) in _VERDICTS.items()]
    figure.legend([Patch(color=colour) for colour in colours], words, loc="outside lower center", ncols=len(words))
    return figure
