"""Figures of the metric against epochs, lengths of training, the time of a step, and bags."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator

from milbench._utils.palette import MUTED
from milbench._utils.pictures import literal
from milbench.report.figures.style import (
    CHECK_MARK,
    WIDTH,
    LossStyle,
    error_axis,
    label_ends,
    log_ticks,
    loss_styles,
    new_figure,
    panels,
    styles_without_verdict,
    wrapped,
)
from milbench.report.formatting import readable
from milbench.report.lengths import Lengths
from milbench.report.looks import Look
from milbench.report.study import Study
from milbench.report.values import rows_of

_FILLED_OR_HOLLOW = "✓: may be the best; hollow and dashed: worse than the best."
PARETO_CAPTION = (
    f"Means over seeds. {_FILLED_OR_HOLLOW} On the grey line are the losses for which no other "
    "loss is both faster and better. The time is the shortest of all training steps, since other "
    "work on the machine disturbs it least."
)
TRAINING_CAPTION = (
    "Means over seeds, in units of each loss's first epoch: losses do not compare with one "
    f"another, but show whether training still made progress at its end. {_FILLED_OR_HOLLOW}"
)
AMOUNTS_CAPTION = "Means over seeds, the band from the smallest to the largest seed; test bags."
LENGTHS_CAPTION = (
    f"{AMOUNTS_CAPTION} Every length is a whole training. ✓: may be the best after the longest; "
    "hollow and dashed: worse than the best there. Grey, dashed: no skill."
)
CURVES_CAPTION = f"{AMOUNTS_CAPTION} {_FILLED_OR_HOLLOW} Grey, dashed: no skill."
_HALF = 5.4
"""The width in inches of a figure that the page shows beside another one."""
_LEAST_HEIGHT = 3.4
"""The smallest height in inches of such a figure."""


def curves_figure(study: Study, task: str) -> Figure | None:
    """Plot the primary metric over epochs; None if no loss was evaluated twice."""
    values = _over_epochs(study, task, f"test/{study.primary(task)}")
    if not _has_two_epochs(values):
        return None
    figure, axes = _one_panel(_HALF, values["variant"].nunique())
    styles = loss_styles(study, task)
    means = _plot_lines(axes, values, styles, markevery=[-1])
    _name_epochs(axes)
    error_axis(axes, study, task, "y", means, values["value"].max())
    label_ends(axes, _ends(means), styles)
    return figure


def training_figure(study: Study, task: str) -> Figure | None:
    """Plot the training loss over epochs, divided by its value at the first epoch.

    None if there is only one epoch.
    """
    values = _over_epochs(study, task, "train/loss")
    # The axis is logarithmic and cannot show values of 0 or below.
    values = values[values["value"] > 0]
    is_first = values["x"] == values["x"].min()
    first = values[is_first].groupby("variant")["value"].mean()
    units = values["variant"].map(first).astype(float)
    values = values.assign(value=values["value"] / units).dropna()
    if not _has_two_epochs(values):
        return None
    figure, axes = _one_panel(_HALF, values["variant"].nunique())
    styles = loss_styles(study, task)
    means = _plot_lines(axes, values, styles, markevery=[-1])
    _name_epochs(axes)
    axes.set_yscale("log")
    axes.set_ylabel("training loss, first epoch = 1, log scale")
    log_ticks(axes.yaxis)
    label_ends(axes, _ends(means), styles)
    return figure


def lengths_figure(lengths: Sequence[Lengths], columns: int = 4) -> Figure | None:
    """Plot the primary metric against the length of training; None without lengths.

    Args:
        lengths: the tasks with several lengths of training, of which each has a panel.
        columns: the largest number of panels side by side.
    """
    if not lengths:
        return None
    if len(lengths) == 1:
        figure, grid = panels(1, 1, 6.6, 3.4)
        _plot_named_lengths(grid[0], lengths[0])
        return figure
    looks = _looks_by_rank(lengths)
    # Panels are spread evenly over the rows, so that the last row is not much shorter.
    rows = math.ceil(len(lengths) / columns)
    panels_a_row = math.ceil(len(lengths) / rows)
    width = min(WIDTH, 4.2 * panels_a_row)
    names_a_row = max(1, round(width / 3.2))
    legend_height = 0.24 * math.ceil(len(looks) / names_a_row)
    figure, grid = panels(len(lengths), panels_a_row, width, 2.8 + legend_height / rows)
    for axes, one in zip(grid, lengths, strict=True):
        _plot_ticked_lengths(axes, one)
    # Lines without points give the legend an entry for each loss.
    for name, look in looks.items():
        style = LossStyle(look)
        grid[0].plot(
            [], [], ms=5, label=literal(readable(name)), **style.line_style, **style.marker_style
        )
    figure.legend(loc="outside lower left", ncols=names_a_row)
    return figure


def _looks_by_rank(lengths: Sequence[Lengths]) -> dict[str, Look]:
    """Return the look of each loss, the best loss after the longest training first.

    The first task decides on the order. Losses that it lacks follow in the order of later tasks.
    """
    looks: dict[str, Look] = {}
    names: dict[str, None] = {}
    for one in lengths:
        looks |= one.longest.looks
        names |= dict.fromkeys(one.longest.ranking())
    return {name: looks[name] for name in names}


def _plot_named_lengths(axes: Axes, one: Lengths) -> None:
    """Plot the losses of a task, with their names at the ends of the lines."""
    ends = _plot_lengths(axes, one)
    label_ends(axes, ends, loss_styles(one.longest, one.task))


def _plot_ticked_lengths(axes: Axes, one: Lengths) -> None:
    """Plot the losses of a task, with a tick at the line of each loss that may be the best.

    A legend has the names of losses.
    """
    styles = loss_styles(one.longest, one.task)
    ends = _plot_lengths(axes, one)
    ticked = {name: end for name, end in ends.items() if styles[name].is_best}
    label_ends(axes, ticked, styles, dict.fromkeys(ticked, CHECK_MARK))


def _plot_lengths(axes: Axes, one: Lengths) -> dict[str, tuple[float, float]]:
    """Plot the losses of a task against the length of training.

    Returns:
        Loss -> the end (x, y) of its line, for losses with a value at the longest training.
    """
    styles = loss_styles(one.longest, one.task)
    by_length = {length: (study, one.task) for length, study in one.studies.items()}
    means = _plot_against(axes, by_length, styles)
    axes.set_xlabel(f"{one.unit} of training, log scale")
    axes.set_title(literal(wrapped(one.task, 24)))
    longest = max(one.studies)
    ends = {}
    for name in styles:
        if (name, longest) in means.index:
            ends[name] = (longest, means[name, longest])
    return ends


def amounts_figure(study: Study, amounts: dict[float, str]) -> Figure | None:
    """Plot the primary metric against the number of training bags; None without values.

    `amounts`: number of training bags -> task.
    """
    if all(study.table(task).isna().all(axis=None) for task in amounts.values()):
        return None
    figure = new_figure(WIDTH, 4)
    axes = figure.subplots()
    styles = styles_without_verdict(study.looks)
    by_amount = {amount: (study, task) for amount, task in amounts.items()}
    means = _plot_against(axes, by_amount, styles)
    texts = {name: readable(name) for name in styles}
    if len(study.kinds) > 1:
        for name, kind in study.supervision.items():
            texts[name] = f"{readable(name)}: {kind} supervision"
    label_ends(axes, _ends(means), styles, texts)
    axes.set_xlabel("training bags")
    return figure


def pareto_figure(study: Study, task: str) -> Figure | None:
    """Plot the primary metric against the time of a step; None if fewer than two losses have both.

    A line shows the Pareto front.
    """
    summary = study.summary(task).dropna(subset=["mean", "step"])
    if len(summary) < 2:
        return None
    figure, axes = _one_panel(_HALF, len(summary))
    styles = loss_styles(study, task)
    front = _pareto_front(summary, lower_is_better=study.metric(task).lower_is_better)
    milliseconds = 1000 * summary["step"]
    axes.plot(
        milliseconds[front.index],
        front["mean"],
        color=MUTED,
        lw=1.2,
        drawstyle="steps-post",
        zorder=1,
    )
    ends = {}
    for name, x, mean in zip(summary.index, milliseconds, summary["mean"], strict=True):
        axes.plot(x, mean, ls="", ms=7.5, zorder=3, **styles[name].marker_style)
        ends[str(name)] = (x, mean)
    is_wide = milliseconds.max() > 5 * milliseconds.min()
    if is_wide:
        axes.set_xscale("log")
        log_ticks(axes.xaxis)
    else:
        axes.set_xlim(left=0)
        axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    error_axis(axes, study, task, "y", summary["mean"], summary["mean"].max())
    axes.set_xlabel("training step (ms)")
    axes.set_xlim(right=1.05 * float(milliseconds.max()))
    label_ends(axes, ends, styles)
    return figure


def _pareto_front(summary: pd.DataFrame, lower_is_better: bool) -> pd.DataFrame:
    """Return the losses on the Pareto front of error and time of a step, the quickest first.

    A loss is on the front unless another loss is at least as good in both, and better in one.
    """
    steps = summary["step"]
    errors = summary["mean"] if lower_is_better else -summary["mean"]
    kept = []
    for step, error in zip(steps, errors, strict=True):
        is_as_good = (steps <= step) & (errors <= error)
        is_better = is_as_good & ((steps < step) | (errors < error))
        kept.append(not is_better.any())
    return summary[kept].sort_values("step")


def _over_epochs(study: Study, task: str, name: str) -> pd.DataFrame:
    """Return the values of a metric in done cells, for losses with values at two epochs or more.

    The columns are variant, x (the epoch) and value.
    """
    history = study.history(task)
    is_done = history["status"] == "done"
    is_shown = (history["metric"] == name) & np.isfinite(history["value"])
    rows = history[is_done & is_shown]
    epochs = rows.groupby("variant")["epoch"].transform("nunique")
    rows = rows[epochs > 1]
    return pd.DataFrame(
        {"variant": rows["variant"], "x": rows["epoch"].astype(int), "value": rows["value"]}
    )


def _has_two_epochs(values: pd.DataFrame) -> bool:
    return len(set(values["x"])) > 1


def _one_panel(width: float, losses: int) -> tuple[Figure, Axes]:
    """Return a figure with one panel, high enough for the names of `losses` losses."""
    figure = new_figure(width, max(_LEAST_HEIGHT, 0.9 + 0.14 * losses))
    return figure, figure.subplots()


def _plot_against(
    axes: Axes, tasks: dict[float, tuple[Study, str]], styles: Mapping[str, LossStyle]
) -> pd.Series[float]:
    """Plot the primary metric on tasks against a logarithmic axis; return the means over seeds.

    `tasks`: x -> the study and its task with the values at x.
    """
    tables = {}
    for x, (study, task) in tasks.items():
        tables[x] = study.table(task).reset_index().melt("variant")
    values = pd.concat(tables, names=["x"]).reset_index("x").dropna()
    means = _plot_lines(axes, values, styles)
    # The axis suits the task with the longest training or the most bags. It reaches up to the
    # no-skill value of this task, so that the no-skill line is always shown.
    study, task = tasks[max(tasks)]
    highest = float(np.fmax(values["value"].max(), study.constant_answer(task).mean()))
    error_axis(axes, study, task, "y", means, highest)
    axes.set_xscale("log")
    axes.set_xticks(list(tasks), [f"{x:,.0f}" for x in tasks])
    axes.xaxis.set_minor_locator(NullLocator())
    return means


def _plot_lines(
    axes: Axes, values: pd.DataFrame, styles: Mapping[str, LossStyle], **further: Any
) -> pd.Series[float]:
    """Plot means over seeds, with bands from the smallest to the largest value; return the means.

    `values` has the columns variant, x and value, with a row for each seed.
    """
    over_seeds = values.groupby(["variant", "x"])["value"]
    means = over_seeds.mean()
    least = over_seeds.min()
    most = over_seeds.max()
    shown = [name for name in styles if name in means.index.get_level_values("variant")]
    # The best losses are plotted last, above the others.
    for name in reversed(shown):
        line = means[name]
        plot_line(axes, line, (least[name], most[name]), styles[name], **further)
    return means


def plot_line(
    axes: Axes,
    line: pd.Series[float],
    band: tuple[pd.Series[float], pd.Series[float]],
    style: LossStyle,
    **further: Any,
) -> None:
    """Plot the values of a loss against their index, over a band between low and high values."""
    low, high = band
    axes.fill_between(line.index, low, high, color=style.colour, alpha=0.12, lw=0)
    axes.plot(line.index, line, ms=4.5, **style.line_style, **style.marker_style, **further)


def _name_epochs(axes: Axes) -> None:
    axes.set_xlabel("epoch")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))


def _ends(means: pd.Series[float]) -> dict[str, tuple[float, float]]:
    """Return loss -> the last point (x, y) of its line."""
    last = means.reset_index().groupby("variant").last()
    return {str(row.Index): (row.x, row.value) for row in rows_of(last)}
