"""Lines: learning curves, error against cost with the Pareto front, and error against the number of bags."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Annotation
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator
from matplotlib.transforms import Bbox, BboxBase
from numpy.typing import ArrayLike, NDArray

from milbench._utils.palette import COLOURS, INK, MUTED, distinct
from milbench._utils.pictures import literal
from milbench.report.figures.style import WIDTH, colours, label_colour, label_ends, no_skill_line, value_axis
from milbench.report.formatting import readable, significant
from milbench.report.study import Study, rows_of

CURVES = "Means over seeds, the band from the smallest to the largest seed; test bags. Colours as above."
PARETO = (
    "Means over seeds. On the line: losses that no other one beats in one of the two without losing in the other. "
    "The least time of a training step, which other work on the machine disturbs least."
)
AMOUNTS = "Means over seeds with their 95 % intervals, losses side by side."
_HALF = 5.4
MOST_NAMED = 12
"""Of more dots those on the front have names."""


def curves_figure(study: Study, task: str) -> Figure | None:
    """Draw the primary metric over epochs; None where it was computed at one epoch alone."""
    name, metric = study.primary(task), study.metric(task)
    own = study.history(task)
    own = own[own["status"] == "done"]
    own = own[(own["metric"] == f"test/{name}") & np.isfinite(own["value"])]
    if own["epoch"].nunique() < 2:
        return None
    palette = colours(study, task)
    order = [str(v) for v in study.summary(task).index if v in set(own["variant"])]
    figure = Figure(figsize=(_HALF, max(3.4, 0.9 + 0.14 * len(order))), layout="constrained")
    axes = figure.subplots()
    data = own.assign(epoch=own["epoch"].astype(int))
    sns.lineplot(
        data, x="epoch", y="value", hue="variant", hue_order=order[::-1], palette=palette, errorbar=("pi", 100),
        err_kws={"alpha": 0.12, "lw": 0}, ax=axes, legend=False, lw=1.6,
    )  # fmt: skip
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    means = data.groupby(["variant", "epoch"])["value"].mean()
    line = no_skill_line(axes, study, task, "y", float(data["value"].max()))
    value_axis(axes, "y", metric, float(means.min()), max(line, float(data["value"].max())))
    last = {v: float(means[v].index.max()) for v in order}
    label_ends(axes, {v: (last[v], float(means[v, last[v]])) for v in order}, palette)
    return figure


def pareto_figure(study: Study, task: str) -> Figure | None:
    """Draw the primary metric against the time of a step; None where fewer than two losses have both."""
    found, metric = study.summary(task).dropna(subset=["mean", "step"]), study.metric(task)
    if len(found) < 2:
        return None
    palette = colours(study, task)
    figure = Figure(figsize=(_HALF, 3.4), layout="constrained")
    axes = figure.subplots()
    sign = 1 if metric.lower_is_better else -1
    front = found.iloc[pareto_front(1000 * found["step"], sign * found["mean"])]
    axes.plot(1000 * front["step"], front["mean"], color=MUTED, lw=1.2, drawstyle="steps-post", zorder=1)
    data = found.assign(ms=1000 * found["step"]).reset_index()
    sns.scatterplot(data, x="ms", y="mean", hue="variant", palette=palette, ax=axes, legend=False, s=55, zorder=3,
                    edgecolor=INK, linewidth=0.7)  # fmt: skip
    if data["ms"].max() > 5 * data["ms"].min():
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: significant(value)))
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        axes.set_xlim(0, 1.15 * data["ms"].max())
    line = no_skill_line(axes, study, task, "y", float(found["mean"].max()))
    value_axis(axes, "y", metric, float(found["mean"].min()), max(line, float(found["mean"].max())))
    axes.set(xlabel="training step (ms)")
    named = set(found.index if len(found) <= MOST_NAMED else front.index)
    middle = 0.6 * float(data["ms"].max())
    labels = []
    for row in rows_of(data[data["variant"].isin(named)]):
        left = row.ms > middle  # the label stays inside the figure
        labels.append(axes.annotate(
            literal(readable(row.variant)), (row.ms, row.mean), xytext=(-5 if left else 5, 5), fontsize=7.5,
            textcoords="offset points", ha="right" if left else "left", color=label_colour(palette[row.variant]),
        ))  # fmt: skip
    _move_apart(axes, labels, data[["ms", "mean"]].to_numpy())
    return figure


def pareto_front(first: ArrayLike, second: ArrayLike) -> list[int]:
    """Return the indices of the points that no other beats in one quantity without losing in the other, by the first.

    Smaller is better in both; equal points do not beat one another.
    """
    x, y = np.asarray(first, float), np.asarray(second, float)
    front: list[int] = []
    for i in np.lexsort((y, x)).tolist():
        last = front[-1] if front else None
        if last is None or y[i] < y[last] or (x[i], y[i]) == (x[last], y[last]):
            front.append(i)
    return front


def _move_apart(axes: Axes, labels: Sequence[Annotation], dots: NDArray[np.float64]) -> None:
    """Move labels up or down, by as little as is needed, until none covers a dot (x, y) or an earlier label."""
    axes.figure.draw_without_rendering()  # type: ignore[union-attr]  # only then extents are known
    taken: list[BboxBase] = [Bbox.from_bounds(x - 4, y - 4, 8, 8) for x, y in axes.transData.transform(dots)]
    for label in labels:
        across, _ = label.xyann
        for down in (5, -11, 15, -21, 25, -31, 35):
            label.xyann = (across, down)
            extent = label.get_window_extent()
            if not any(extent.overlaps(other) for other in taken):
                break
        taken.append(extent)


def amounts_figure(study: Study, amounts: dict[float, str]) -> Figure | None:
    """Draw the primary metric against the number of training bags, to which `amounts` gives the task.

    None where no cell has a result.
    """
    found = pd.concat({amount: study.summary(task) for amount, task in amounts.items()}, names=["bags"])
    data = found.dropna(subset="mean").reset_index()
    if data.empty:
        return None
    order = [v for v in study.order() if v in set(data["variant"])]
    palette = dict(zip(order, distinct(COLOURS, len(order)), strict=True))
    aside = (max(amounts) / min(amounts)) ** min(0.01, 0.06 / len(order))  # so that no interval hides another one
    data["x"] = data["bags"] * aside ** data["variant"].map(order.index)
    figure = Figure(figsize=(WIDTH, 4), layout="constrained")
    axes = figure.subplots()
    sns.lineplot(data, x="x", y="mean", hue="variant", hue_order=order, palette=palette, style="variant",
                 style_order=order, markers=True, dashes=False, errorbar=None, ax=axes, legend=False,
                 lw=1.8)  # fmt: skip
    axes.vlines(data["x"], data["low"], data["high"], colors=[palette[v] for v in data["variant"]], lw=1.8)
    axes.set_xscale("log")
    axes.set_xticks(list(amounts), [f"{amount:,.0f}" for amount in amounts])
    axes.xaxis.set_minor_locator(NullLocator())
    metric = study.metric(next(iter(amounts.values())))
    value_axis(axes, "y", metric, float(data["mean"].min()), float(np.nanmax(data[["mean", "high"]])))
    axes.set(xlabel="training bags")
    last = data.sort_values("x").groupby("variant").last()
    named = {v: f"{v}: {study.supervision[v]} supervision" if len(study.kinds) > 1 else v for v in order}
    ends = {named[str(row.Index)]: (row.x, row.mean) for row in rows_of(last)}
    label_ends(axes, ends, {named[v]: palette[v] for v in order})
    return figure
