"""The picture that a report opens with: a row a loss, every seed a dot, the mean and its interval; a column a task."""

from __future__ import annotations

import math

import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from milbench._utils.palette import INK, MUTED
from milbench.api.published import Published
from milbench.report.figures.style import WIDTH, colours, literal, value_axis, wrapped
from milbench.report.study import Study

MOST_TASKS = 6
"""Of more tasks a heat map is drawn."""
CAPTION = (
    "Every dot is a seed, the diamond their mean with its 95 % interval. In colour: contenders, which may be the best; "
    "grey: losses that are worse."
)
PUBLISHED = " Rings: published values; whether they are comparable is said beside them, under each task."
CHANCE = " Dashed: guessing."


def overview_figure(study: Study) -> Figure | None:
    """Draw every seed of every loss on every task; None without values."""
    tasks = [task for task in study.tasks if study.table(task).notna().any(axis=None)][:MOST_TASKS]
    if not tasks:
        return None
    order = study.order()
    width = 5.8 if len(tasks) == 1 else max(WIDTH, 2.6 + 1.65 * len(tasks))
    figure = Figure(figsize=(width, max(2.2, 0.9 + 0.27 * len(order))), layout="constrained")
    row = figure.subplots(1, len(tasks), squeeze=False, sharey=True)[0]
    for axes, task in zip(row, tasks, strict=True):
        _draw(axes, study, task, order)
        if len(study.tasks) > 1:
            axes.set_title(literal(wrapped(task, 20)))
    row[0].set_yticks(range(len(order)), [literal(wrapped(v, 24)) for v in order], color=INK, fontsize=9)
    return figure


def captioned(study: Study) -> str:
    """Return how the picture is read."""
    chance = any(_chance(study, task) is not None for task in study.tasks)
    published = any(_published(study, task) for task in study.tasks)
    no_set = not any(study.summary(task)["contender"].any() for task in study.tasks)
    text = CAPTION if not no_set else "The diamond is the only seed, with its 95 % interval where test items are known."
    return text + (CHANCE if chance else "") + (PUBLISHED if published else "")


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
        floor, top = (0.0, 1.0) if metric.percent and mean >= 0 else (-np.inf, np.inf)
        axes.plot([max(low, floor), min(high, top)], [places[variant]] * 2, color=palette[variant], lw=2.2, zorder=3,
                  solid_capstyle="butt")  # fmt: skip
        axes.plot(mean, places[variant], "D", color=palette[variant], ms=6.5, mec=INK, mew=0.8, zorder=4)
    for published in _published(study, task):
        for variant in _matching(study, task, published, known):
            axes.plot(published.mean, places[variant] + 0.32, "o", mfc="none", mec=INK, mew=1.1, ms=6, zorder=5)
    shown = [float(v) for v in long["value"]]
    marks = [p.mean for p in _published(study, task)]
    if (chance := _chance(study, task)) is not None:
        axes.axvline(chance, color=MUTED, ls="--", lw=1)
        marks.append(chance)
    highest = max(*shown, *marks, *found["high"].clip(upper=1.2 * max(shown)).dropna(), 0.0)
    value_axis(axes, "x", metric, float(np.nanmin(found["mean"])), highest)
    axes.set(ylabel="", ylim=(len(order) - 0.4, -0.6))
    axes.grid(visible=False, axis="y")


def _chance(study: Study, task: str) -> float | None:
    """Return the value of guessing where some seed comes near it, so that it does not squeeze what is shown."""
    chance, worst = study.chance(task), float(study.table(task).max().max())
    near = chance is not None and study.metric(task).lower_is_better and worst > 0.4 * chance
    return chance if near else None


def _published(study: Study, task: str) -> list[Published]:
    found = map(Published.from_dict, study.info(task).published)
    return [one for one in found if one.loss and one.metric == study.primary(task)]


def _matching(study: Study, task: str, published: Published, known: list[str]) -> list[str]:
    names = {cell.id: cell.loss for cell in study.plan.cells}
    own = study.cells[study.cells["task"] == task]
    return [v for v, cell, loss in own[["variant", "cell", "loss"]].drop_duplicates("variant").itertuples(index=False)
            if v in known and published.loss in (loss, names[cell])]  # fmt: skip
