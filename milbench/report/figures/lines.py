"""Lines: curves over epochs and lengths, error against cost with the Pareto front, and against the number of bags."""

from __future__ import annotations

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
    TICK,
    WIDTH,
    Drawn,
    drawn_losses,
    error_axis,
    label_ends,
    log_ticks,
    panels,
    without_verdict,
    wrapped,
)
from milbench.report.formatting import readable
from milbench.report.lengths import Lengths
from milbench.report.study import Study
from milbench.report.values import rows_of

WHO = "✓: may be the best; hollow and dashed: worse than the best."
PARETO = (
    f"Means over seeds. {WHO} On the grey line: losses that no other one beats in one of the two without losing in the "
    "other. The least time of a training step, which other work on the machine disturbs least."
)
TRAINING = (
    f"Means over seeds, in units of each loss's first epoch: losses do not compare with one another, but show whether "
    f"training still made progress at its end. {WHO}"
)
AMOUNTS = "Means over seeds, the band from the smallest to the largest seed; test bags."
LENGTHS = (
    f"{AMOUNTS} Every length is a whole training. ✓: may be the best after the longest; hollow and dashed: worse than "
    "the best there. Grey, dashed: no skill."
)
CURVES = f"{AMOUNTS} {WHO} Grey, dashed: no skill."
_HALF = 5.4


def curves_figure(study: Study, task: str) -> Figure | None:
    """Draw the primary metric over epochs; None where no loss was evaluated twice."""
    return _curves(study, task, _over_epochs(study, task, f"test/{study.primary(task)}"))


def training_figure(study: Study, task: str) -> Figure | None:
    """Draw the training loss over epochs, of each loss in units of its first epoch; None for one epoch."""
    data = _over_epochs(study, task, "train/loss").query("value > 0")  # the axis is logarithmic
    first = data[data["x"] == data["x"].min()].groupby("variant")["value"].mean()
    scaled = data["value"] / data["variant"].map(first).astype(float)
    return _curves(study, task, data.assign(value=scaled).dropna(), is_error=False)


def _curves(study: Study, task: str, data: pd.DataFrame, is_error: bool = True) -> Figure | None:
    if data["x"].nunique() < 2:
        return None
    height = max(3.4, 0.9 + 0.14 * data["variant"].nunique())
    figure = Figure(figsize=(_HALF, height), layout="constrained")
    axes, drawn = figure.subplots(), drawn_losses(study, task)
    means = _draw_lines(axes, data, drawn, markevery=[-1])
    if is_error:
        error_axis(axes, study, task, "y", means, data["value"].max())
    else:
        axes.set_yscale("log")
        axes.set(ylabel="training loss, first epoch = 1, log scale")
        log_ticks(axes.yaxis)
    label_ends(axes, _ends(means), drawn)
    return figure


def lengths_figure(lengths: Sequence[Lengths], columns: int = 4) -> Figure | None:
    """Draw the primary metric against the length of training, a panel a task; None without any.

    Args:
        lengths: the tasks.
        columns: how many panels stand side by side, at most.
    """
    if not lengths:
        return None
    is_alone = len(lengths) == 1
    rows = -(-len(lengths) // columns)
    in_row = -(-len(lengths) // rows)
    names = list(dict.fromkeys(str(name) for one in lengths for name in one.longest.ranking()))
    if is_alone:
        width, legend_height = 6.6, 0.6
    else:
        width = min(WIDTH, 4.2 * in_row)
        legend_columns = max(1, round(width / 3.2))
        legend_height = 0.24 * -(-len(names) // legend_columns)
    figure, grid = panels(len(lengths), in_row, width, 2.8 + legend_height / rows)
    for axes, one in zip(grid, lengths, strict=True):
        _draw_lengths(axes, one, is_alone)
    if not is_alone:
        looks = {name: look for one in lengths for name, look in one.longest.looks.items()}
        for name in names:
            drawn = Drawn(looks[name])
            axes = grid[0]
            axes.plot([], [], ms=5, label=literal(readable(name)), **drawn.line, **drawn.marks)
        figure.legend(loc="outside lower left", ncols=legend_columns)
    return figure


def _draw_lengths(axes: Axes, one: Lengths, is_alone: bool) -> None:
    """Draw a task: names stand at the ends of lines where it is alone, else ticks."""
    drawn = drawn_losses(one.longest, one.task)
    studies = {length: (study, one.task) for length, study in one.studies.items()}
    means = _draw_against(axes, studies, drawn)
    last = max(one.studies)
    ends, texts = {}, {}
    for name, how in drawn.items():
        if (name, last) not in means.index or not (is_alone or how.is_best):
            continue
        ends[name] = (last, means[name, last])
        texts[name] = how.named(readable(name)) if is_alone else TICK
    label_ends(axes, ends, drawn, texts)
    title = literal(wrapped(one.task, 24))
    axes.set(xlabel=f"{one.unit} of training, log scale", title=title)


def amounts_figure(study: Study, amounts: dict[float, str]) -> Figure | None:
    """Draw the primary metric against the number of training bags, by which `amounts` has tasks; None without any."""
    if all(study.table(task).isna().all(axis=None) for task in amounts.values()):
        return None
    figure = Figure(figsize=(WIDTH, 4), layout="constrained")
    axes, drawn = figure.subplots(), without_verdict(study)
    means = _draw_against(axes, {x: (study, task) for x, task in amounts.items()}, drawn)
    texts = {name: readable(name) for name in drawn}
    if len(study.kinds) > 1:
        for name, kind in study.supervision.items():
            texts[name] = f"{readable(name)}: {kind} supervision"
    label_ends(axes, _ends(means), drawn, texts)
    axes.set(xlabel="training bags")
    return figure


def _draw_against(
    axes: Axes, places: dict[float, tuple[Study, str]], drawn: Mapping[str, Drawn]
) -> pd.Series[float]:
    """Draw the primary metric on tasks that have a place on a logarithmic axis; return the means."""
    tables = {
        x: study.table(task).reset_index().melt("variant") for x, (study, task) in places.items()
    }
    data = pd.concat(tables, names=["x"]).reset_index("x").dropna()
    means = _draw_lines(axes, data, drawn)
    study, task = places[max(places)]
    # The no-skill line is drawn in any case.
    highest = float(np.fmax(data["value"].max(), study.no_skill(task).mean()))
    error_axis(axes, study, task, "y", means, highest)
    axes.set_xscale("log")
    axes.set_xticks(list(places), [f"{place:,.0f}" for place in places])
    axes.xaxis.set_minor_locator(NullLocator())
    return means


def _over_epochs(study: Study, task: str, name: str) -> pd.DataFrame:
    """Return the values of a metric in the done cells of the losses that have it at two epochs: variant, x, value."""
    own = study.history(task)
    own = own[(own["status"] == "done") & (own["metric"] == name) & np.isfinite(own["value"])]
    own = own[own.groupby("variant")["epoch"].transform("nunique") > 1]
    return pd.DataFrame(
        {"variant": own["variant"], "x": own["epoch"].astype(int), "value": own["value"]}
    )


def _draw_lines(
    axes: Axes, data: pd.DataFrame, drawn: Mapping[str, Drawn], **style: Any
) -> pd.Series[float]:
    """Draw means over seeds of (variant, x, value) with bands from the least to the largest; return the means."""
    values = data.groupby(["variant", "x"])["value"]
    means, least, most = values.mean(), values.min(), values.max()
    shown = [name for name in drawn if name in means.index.get_level_values("variant")]
    # The best ones are drawn last, above the others.
    for name in reversed(shown):
        how = drawn[name]
        line = means[name]
        axes.fill_between(line.index, least[name], most[name], color=how.colour, alpha=0.12, lw=0)
        axes.plot(line.index, line, ms=4.5, **how.line, **how.marks, **style)
    axes.set(xlabel="epoch", ylabel="")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    return means


def _ends(means: pd.Series[float]) -> dict[str, tuple[float, float]]:
    """Return the last point of each line."""
    last = means.reset_index().groupby("variant").last()
    return {str(row.Index): (row.x, row.value) for row in rows_of(last)}


def pareto_figure(study: Study, task: str) -> Figure | None:
    """Draw the primary metric against the time of a step; None where fewer than two losses have both."""
    summary, metric = study.summary(task).dropna(subset=["mean", "step"]), study.metric(task)
    if len(summary) < 2:
        return None
    figure = Figure(figsize=(_HALF, max(3.4, 0.9 + 0.14 * len(summary))), layout="constrained")
    axes, drawn = figure.subplots(), drawn_losses(study, task)
    front = _pareto_front(summary, metric.lower_is_better)
    axes.plot(
        1000 * front["step"], front["mean"], color=MUTED, lw=1.2, drawstyle="steps-post", zorder=1
    )
    data = summary.assign(ms=1000 * summary["step"]).reset_index()
    for row in rows_of(data):
        axes.plot(row.ms, row.mean, ls="", ms=7.5, zorder=3, **drawn[row.variant].marks)
    if data["ms"].max() > 5 * data["ms"].min():
        axes.set_xscale("log")
        log_ticks(axes.xaxis)
    else:
        axes.set_xlim(left=0)
        axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    error_axis(axes, study, task, "y", summary["mean"], summary["mean"].max())
    axes.set(xlabel="training step (ms)", xlim=(axes.get_xlim()[0], 1.05 * float(data["ms"].max())))
    label_ends(axes, {row.variant: (row.ms, row.mean) for row in rows_of(data)}, drawn)
    return figure


def _pareto_front(summary: pd.DataFrame, lower_is_better: bool) -> pd.DataFrame:
    """Return the losses that no other one beats in error or time without losing in the other, the quickest first."""
    errors = summary["mean"] if lower_is_better else -summary["mean"]
    kept = []
    for step, error in zip(summary["step"], errors, strict=True):
        as_good = (summary["step"] <= step) & (errors <= error)
        better = as_good & ((summary["step"] < step) | (errors < error))
        kept.append(not better.any())
    return summary[kept].sort_values("step")
