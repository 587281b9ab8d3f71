"""Lines: curves over epochs and lengths, error against cost with the Pareto front, and against the number of bags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator

from milbench._utils.palette import COLOURS, INK, MUTED, distinct
from milbench._utils.pictures import literal
from milbench.report.figures.style import (
    WIDTH,
    colours,
    error_axis,
    label_ends,
    log_ticks,
    panels,
    wrapped,
)
from milbench.report.formatting import readable
from milbench.report.lengths import Lengths
from milbench.report.study import Study, rows_of

PARETO = (
    "Means over seeds. On the line: losses that no other one beats in one of the two without losing in the other. "
    "The least time of a training step, which other work on the machine disturbs least."
)
TRAINING = (
    "Means over seeds, in units of each loss's first epoch: losses do not compare with one another, but show whether "
    "training still made progress at its end."
)
AMOUNTS = "Means over seeds, the band from the smallest to the largest seed; test bags."
LENGTHS = f"{AMOUNTS} Every length is a whole training. ✓: may be the best after the longest. Dashed: no skill."
CURVES = f"{AMOUNTS} Colours as above."
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
    figure = Figure(
        figsize=(_HALF, max(3.4, 0.9 + 0.14 * data["variant"].nunique())), layout="constrained"
    )
    axes, palette = figure.subplots(), colours(study, task)
    means = _draw_lines(axes, data, palette)
    if is_error:
        error_axis(axes, study, task, "y", means, data["value"].max())
    else:
        axes.set_yscale("log")
        axes.set(ylabel="training loss, first epoch = 1, log scale")
        log_ticks(axes.yaxis)
    _label_lines(axes, means, palette)
    return figure


def lengths_figure(lengths: Sequence[Lengths]) -> Figure | None:
    """Draw the primary metric against the length of training, a panel a task; None without any."""
    if not lengths:
        return None
    palette = _palette([str(name) for one in lengths for name in one.longest.ranking()])
    alone, rows = len(lengths) == 1, -(-len(lengths) // 4)
    width, legend = (6.6, 0.6) if alone else (WIDTH, 0.08 * len(palette))
    figure, grid = panels(len(lengths), -(-len(lengths) // rows), width, 2.8 + legend / rows)
    for axes, one in zip(grid, lengths, strict=True):
        means = _draw_against(
            axes, {x: (study, one.task) for x, study in one.studies.items()}, palette
        )
        ends = rows_of(one.longest.summary(one.task).dropna(subset="mean"))
        texts = {row.Index: "✓" * row.contender + f" {readable(row.Index)}" * alone for row in ends}
        places = {
            name: (max(one.studies), means[name, max(one.studies)])
            for name, text in texts.items()
            if text
        }
        label_ends(axes, places, palette, texts)
        axes.set(xlabel=f"{one.unit} of training, log scale", title=literal(wrapped(one.task, 24)))
    if not alone:
        for name, colour in palette.items():
            grid[0].plot(
                [], [], color=colour, lw=2, marker="o", ms=5, label=literal(readable(name))
            )
        figure.legend(loc="outside lower left", ncols=3)
    return figure


def amounts_figure(study: Study, amounts: dict[float, str]) -> Figure | None:
    """Draw the primary metric against the number of training bags, by which `amounts` has tasks; None without any."""
    if all(study.table(task).isna().all(axis=None) for task in amounts.values()):
        return None
    figure = Figure(figsize=(WIDTH, 4), layout="constrained")
    axes, palette = (
        figure.subplots(),
        _palette([*study.colours, *study.ranking()]),
    )  # colours as in other pictures
    kinds = (
        {v: f": {kind} supervision" for v, kind in study.supervision.items()}
        if len(study.kinds) > 1
        else {}
    )
    _label_lines(
        axes,
        _draw_against(axes, {x: (study, task) for x, task in amounts.items()}, palette),
        palette,
        kinds,
    )
    axes.set(xlabel="training bags")
    return figure


def _palette(losses: Sequence[str]) -> dict[str, Any]:
    names = dict.fromkeys(losses)
    return dict(zip(names, distinct(COLOURS, len(names)), strict=True))


def _draw_against(
    axes: Axes, places: dict[float, tuple[Study, str]], palette: dict[str, Any]
) -> pd.Series[float]:
    """Draw the primary metric on tasks that have a place on a logarithmic axis; return the means."""
    tables = {
        x: study.table(task).reset_index().melt("variant") for x, (study, task) in places.items()
    }
    data = pd.concat(tables, names=["x"]).reset_index("x").dropna()
    means = _draw_lines(axes, data, palette, marker="o", ms=4.5)
    study, task = places[max(places)]
    highest = float(
        np.fmax(data["value"].max(), study.no_skill(task).mean())
    )  # the line is drawn in any case
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
    axes: Axes, data: pd.DataFrame, palette: dict[str, Any], **style: Any
) -> pd.Series[float]:
    """Draw means over seeds of (variant, x, value) with bands from the least to the largest; return the means."""
    order = [variant for variant in palette if variant in set(data["variant"])]
    sns.lineplot(
        data, x="x", y="value", hue="variant", hue_order=order[::-1], palette=palette, errorbar=("pi", 100),
        err_kws={"alpha": 0.12, "lw": 0}, ax=axes, legend=False, lw=1.6, **style,
    )  # fmt: skip
    axes.set(xlabel="epoch", ylabel="")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    return data.groupby(["variant", "x"])["value"].mean()


def _label_lines(
    axes: Axes, means: pd.Series[float], palette: dict[str, Any], kinds: Mapping[str, str] = {}
) -> None:
    last = means.reset_index().groupby("variant").last()
    ends = {f"{row.Index}{kinds.get(row.Index, '')}": (row.x, row.value) for row in rows_of(last)}
    label_ends(
        axes, ends, {f"{name}{kinds.get(name, '')}": colour for name, colour in palette.items()}
    )


def pareto_figure(study: Study, task: str) -> Figure | None:
    """Draw the primary metric against the time of a step; None where fewer than two losses have both."""
    summary, metric = study.summary(task).dropna(subset=["mean", "step"]), study.metric(task)
    if len(summary) < 2:
        return None
    figure = Figure(figsize=(_HALF, max(3.4, 0.9 + 0.14 * len(summary))), layout="constrained")
    axes, palette = figure.subplots(), colours(study, task)
    costs = np.stack([summary["step"], (1 if metric.lower_is_better else -1) * summary["mean"]])
    worse, equal = (costs[:, :, None] > costs[:, None]), (costs[:, :, None] == costs[:, None])
    front = summary[~((worse | equal).all(axis=0) & worse.any(axis=0)).any(axis=1)].sort_values(
        "step"
    )
    axes.plot(
        1000 * front["step"], front["mean"], color=MUTED, lw=1.2, drawstyle="steps-post", zorder=1
    )
    data = summary.assign(ms=1000 * summary["step"]).reset_index()
    sns.scatterplot(data, x="ms", y="mean", hue="variant", palette=palette, ax=axes, legend=False, s=55, zorder=3,
                    edgecolor=INK, linewidth=0.7)  # fmt: skip
    if data["ms"].max() > 5 * data["ms"].min():
        axes.set_xscale("log")
        log_ticks(axes.xaxis)
    else:
        axes.set_xlim(left=0)
        axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    error_axis(axes, study, task, "y", summary["mean"], summary["mean"].max())
    axes.set(xlabel="training step (ms)", xlim=(axes.get_xlim()[0], 1.05 * float(data["ms"].max())))
    label_ends(axes, {row.variant: (row.ms, row.mean) for row in rows_of(data)}, palette)
    return figure
