"""Heat maps: losses by tests with the distance from their marks, losses by many tasks, and differences of pairs."""

from __future__ import annotations

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from milbench._utils.palette import BAD_SOFT, GOOD_SOFT, INK, LINE, MUTED, WARN_SOFT
from milbench.api.metric_info import describe
from milbench.report.figures.style import WIDTH, literal, wrapped
from milbench.report.formatting import decimals, number, scaled
from milbench.report.marks import marks_frame, shown_bound
from milbench.report.study import Study
from milbench.report.tables import pairs_frame

MARKS = (
    "How far the mean over seeds is from the mark, in points; minus: on the passing side. ✓ passes: the 95 % interval of "
    "the mean is on the passing side and no seed is missing. ✗ fails: it is on the other side. The rest is open."
)
PAIRS = (
    "Row less column, in the unit of the metric, of means over common seeds. Green: the row is better beyond the 95 % "
    "interval of this pair; red: it is worse. Intervals stand for themselves."
)
TASKS = "Means over seeds. Green: the loss may be the best on that task."
MOST_PAIRS = 20
_CODES = {"pass": 1.0, "open": 2.0, "fail": 3.0}
_SIGNS = {"pass": "✓", "open": "", "fail": "✗"}


def _draw(codes: pd.DataFrame, text: pd.DataFrame, width: float, cell: float = 0.27) -> Figure:
    """Draw codes 0 (none), 1 (good), 2 (open) and 3 (bad) as colours, and text on them."""
    figure = Figure(figsize=(width, 0.9 + cell * len(codes) + 0.055 * max(len(str(c)) for c in codes.columns)),
                    layout="constrained")  # fmt: skip
    axes = figure.subplots()
    size = 8.0 if codes.shape[1] <= 12 else 6.2
    sns.heatmap(
        codes, annot=text.to_numpy(), fmt="", cmap=ListedColormap(["none", GOOD_SOFT, WARN_SOFT, BAD_SOFT]), vmin=-0.5,
        vmax=3.5, cbar=False, ax=axes, linewidths=0.8, linecolor=LINE, annot_kws={"size": size, "color": INK},
    )  # fmt: skip
    axes.set(xlabel="", ylabel="")
    axes.grid(visible=False)
    axes.set_yticks(np.arange(len(codes)) + 0.5, [literal(str(label)) for label in codes.index], rotation=0, color=INK,
                    fontsize=8.5)  # fmt: skip
    axes.set_xticks(np.arange(codes.shape[1]) + 0.5, [literal(wrapped(str(c), 22)) for c in codes.columns], rotation=90,
                    color=INK, fontsize=7.5)  # fmt: skip
    axes.xaxis.tick_top()
    return figure


def marks_figures(study: Study) -> list[tuple[str, Figure]]:
    """Draw losses by tests, a figure for each metric of the marks; tests are in the rows, since they are many."""
    frame, figures = marks_frame(study), []
    if frame.empty:
        return []
    for name, own in frame.groupby("metric", sort=False):
        metric = describe(str(name))
        own = own.assign(row=[f"{test} ({shown_bound(row).removeprefix(metric.label + ' ')})"
                              for test, (_, row) in zip(own["test"], own.iterrows(), strict=True)])  # fmt: skip
        own = own.drop_duplicates(["row", "variant"])
        codes = own.assign(code=own["verdict"].map(_CODES)).pivot(index="row", columns="variant", values="code")
        shown = [f"{number(d, 0 if abs(scaled(d, metric)) >= 10 else 1, metric, True)}{_SIGNS[v]}"
                 for d, v in zip(own["distance"], own["verdict"], strict=True)]  # fmt: skip
        text = own.assign(text=shown).pivot(index="row", columns="variant", values="text")
        passes = (codes == 1).sum().sort_values(ascending=False, kind="stable").index
        rows = list(dict.fromkeys(own["row"]))
        figures.append((metric.label, _draw(codes.loc[rows, passes].fillna(0), text.loc[rows, passes].fillna(""), WIDTH)))
    return figures


def tasks_figure(study: Study) -> Figure:
    """Draw the mean of every loss on many tasks."""
    order = study.order()
    found = {task: study.summary(task).reindex(order) for task in study.tasks}
    codes = pd.DataFrame({task: one["contender"].eq(True).astype(float) for task, one in found.items()}, index=order)  # noqa: FBT003
    text = pd.DataFrame({
        task: [number(m, decimals(m, s, study.metric(task)), study.metric(task)) for m, s in zip(one["mean"], one["sd"],
               strict=True)]
        for task, one in found.items()
    }, index=order)  # fmt: skip
    return _draw(codes, text, WIDTH)


def pairs_figure(study: Study, task: str) -> Figure | None:
    """Draw the difference of every two losses; None for fewer than two or too many."""
    frame, metric = pairs_frame(study, task), study.metric(task)
    order = [v for v in study.summary(task).index if study.table(task).loc[v].notna().any()]
    if not 2 < len(order) <= MOST_PAIRS or frame["difference"].isna().all():
        return None
    codes = pd.DataFrame(0.0, index=order, columns=order)
    text = pd.DataFrame("", index=order, columns=order)
    for row in frame.itertuples():
        if row.first not in codes.index or row.second not in codes.index:
            continue
        known = not np.isnan(row.low)
        better = known and (row.high < 0 if metric.lower_is_better else row.low > 0)
        worse = known and (row.low > 0 if metric.lower_is_better else row.high < 0)
        codes.loc[row.first, row.second], codes.loc[row.second, row.first] = (1, 3) if better else (3, 1) if worse else (0, 0)
        digits = 0 if abs(scaled(row.difference, metric)) >= 10 else 1 if metric.percent else 3
        text.loc[row.first, row.second] = number(row.difference, digits, metric, True)
        text.loc[row.second, row.first] = number(-row.difference, digits, metric, True)
    figure = _draw(codes, text, min(WIDTH, 3.4 + 0.52 * len(order)))
    figure.axes[0].tick_params(axis="x", colors=MUTED)
    return figure
