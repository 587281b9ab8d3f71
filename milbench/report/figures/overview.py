"""The picture that a report opens with: a row a loss, every seed a dot, the mean and its interval; a column a task."""

from __future__ import annotations

import math

import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from milbench._utils.palette import INK, MUTED
from milbench._utils.pictures import literal
from milbench.report.figures.style import NO_SKILL, WIDTH, colours, nearby_line, no_skill_line, value_axis, wrapped
from milbench.report.formatting import at_most
from milbench.report.literature import published_values
from milbench.report.study import Study

MOST_TASKS = 6
"""Of more tasks a heat map is drawn."""
CAPTION = (
    "Every dot is a seed, the diamond their mean with its 95 % interval. In colour: contenders, which may be the best; "
    "grey: losses that are worse."
)
ONE_SEED = "The diamond is the only seed, with its 95 % interval where test items are known."
WORSE = " On the right: by how much a contender may be worse than the best."
PUBLISHED = " Rings: published values; whether they are comparable is said beside them, under each task."


def overview_figure(study: Study) -> Figure | None:
    """Draw every seed of every loss on every task; None without values."""
    tasks = [task for task in study.tasks if study.table(task).notna().any(axis=None)][:MOST_TASKS]
    if not tasks:
        return None
    order = study.order()
    with_bounds = len(tasks) == 1 and bool(study.colours)
    width = 5.8 + 1.1 * with_bounds if len(tasks) == 1 else max(WIDTH, 2.6 + 1.65 * len(tasks))
    figure = Figure(figsize=(width, max(2.2, 0.9 + 0.27 * len(order))), layout="constrained")
    row = figure.subplots(1, len(tasks), squeeze=False, sharey=True)[0]
    for axes, task in zip(row, tasks, strict=True):
        _draw(axes, study, task, order)
        if len(study.tasks) > 1:
            axes.set_title(literal(wrapped(task, 20)))
    if with_bounds:
        _write_bounds(row[0], study, tasks[0], order)
    row[0].set_yticks(range(len(order)), [literal(wrapped(v, 24)) for v in order], color=INK, fontsize=9)
    return figure


def captioned(study: Study) -> str:
    """Return how the picture is read."""
    line = any(nearby_line(study, task, float(study.table(task).max().max())) for task in study.tasks)
    published = any(_published(study, task) for task in study.tasks)
    no_set = not any(study.summary(task)["contender"].any() for task in study.tasks)
    with_set = CAPTION + (WORSE if len(study.tasks) == 1 else "")
    text = ONE_SEED if no_set else with_set
    return text + (NO_SKILL if line else "") + (PUBLISHED if published else "")


def _draw(axes: Axes, study: Study, task: str, order: list[str]) -> None:
    table, found, metric = study.table(task), study.summary(task), study.metric(task)
    palette = colours(study, task)
    known = [variant for variant in order if variant in table.index]
    places = {variant: number for number, variant in enumerate(order)}
    long = table.reset_index().melt("variant", var_name="seed", value_name="value").dropna()
    spread = long.groupby("variant").cumcount() % 3 - 1  # so that equal seeds do not hide each other
    long["place"] = long["variant"].map(places) + 0.11 * spread
    sns.scatterplot(
        long, x="value", y="place", hue="variant", hue_order=known, palette=palette, ax=axes, legend=False, s=22,
        alpha=0.55, linewidth=0, zorder=2,
    )  # fmt: skip
    for variant in known:
        mean, low, high = (float(found[name][variant]) for name in ("mean", "low", "high"))
        if math.isnan(mean):
            continue
        axes.plot([low, high], [places[variant]] * 2, color=palette[variant], lw=2.2, zorder=3, solid_capstyle="butt")
        axes.plot(mean, places[variant], "D", color=palette[variant], ms=6.5, mec=INK, mew=0.8, zorder=4)
    marks = []
    for value, variant in _published(study, task):
        axes.plot(value, places[variant] + 0.32, "o", mfc="none", mec=INK, mew=1.1, ms=6, zorder=5)
        marks.append(value)
    shown = [float(v) for v in long["value"]]
    marks.append(no_skill_line(axes, study, task, "x", max(shown)))
    highest = max(*shown, *marks, *found["high"].dropna(), 0.0)
    value_axis(axes, "x", metric, float(np.nanmin(found["mean"])), highest)
    axes.set(ylabel="", ylim=(len(order) - 0.4, -0.6))
    axes.grid(visible=False, axis="y")


def _write_bounds(axes: Axes, study: Study, task: str, order: list[str]) -> None:
    """Write beside each contender by how much it may be worse than the best."""
    found, metric, palette = study.summary(task), study.metric(task), colours(study, task)
    unit = " points" if metric.percent else ""
    for place, variant in enumerate(order):
        if found["contender"].get(variant, False):
            text = f"{at_most(found['worse_by'][variant], metric)}{unit}"
            axes.text(1.02, place, text, transform=axes.get_yaxis_transform(), va="center", color=palette[variant])
    axes.text(1.02, 1.01, "worse by at most", transform=axes.transAxes, va="bottom", color=MUTED)


def _published(study: Study, task: str) -> list[tuple[float, str]]:
    """Return every published value of the primary metric with the loss that it is of."""
    found = published_values(study, task)
    return [(one.mean, variant) for one, variants in found if one.metric == study.primary(task) for variant in variants]
