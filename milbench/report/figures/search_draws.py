"""The searched metric of every draw against each setting, with the draw that was chosen."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from milbench._utils.palette import INK
from milbench._utils.pictures import literal
from milbench.report.figures.style import (
    WIDTH,
    LossStyle,
    label_ends,
    log_ticks,
    panels,
    styles_without_verdict,
    value_axis,
    with_unit_of,
)
from milbench.report.search import SearchedArm
from milbench.report.study import Study
from milbench.report.values import rows_of

CAPTION = (
    "Every small mark is a draw, the large one with an edge the draw that was chosen for that "
    "loss. A mark is a mean over the seeds that the draw was trained with."
)
_COLUMNS = 3
_CHOSEN = {"ms": 7, "mec": INK, "zorder": 4}
_TRIED = {"ms": 4, "mew": 0, "alpha": 0.5}
"""How the marker of a draw that was chosen differs from those of the others."""


def search_figure(study: Study, arms: Sequence[SearchedArm]) -> Figure | None:
    """Plot the search of each loss on one task, a panel a setting; None where nothing was varied."""
    draws = _draws(arms)
    names = _varied_settings(arms, draws)
    if not names or draws.empty:
        return None
    metric = arms[0].metric
    styles = styles_without_verdict(study.looks)
    height = max(3.0, 0.9 + 0.14 * len(arms))
    figure, grid = panels(len(names), _COLUMNS, WIDTH, height, sharey=True)
    for axes, name in zip(grid, names, strict=True):
        _plot_setting(axes, draws.dropna(subset=name), name, styles)
        value_axis(axes, "y", metric, float(draws["mean"].min()), float(draws["mean"].max()))
        axes.set_xlabel(literal(name))
        axes.set_ylabel(f"{with_unit_of(metric)}, search")
    # The names of losses stand right of the first row of panels.
    last = grid[:_COLUMNS][-1]
    edge = last.get_xlim()[1]
    ends = {}
    for row in rows_of(draws[draws["chosen"]]):
        ends[row.variant] = (edge, row.mean)
    label_ends(last, ends, styles)
    return figure


def _draws(arms: Sequence[SearchedArm]) -> pd.DataFrame:
    """Return every draw that has a value: its settings, its mean, its loss and whether it was chosen."""
    frames = []
    for arm in arms:
        is_chosen = arm.means.index == arm.chosen
        frames.append(arm.settings.assign(mean=arm.means, variant=arm.variant, chosen=is_chosen))
    return pd.concat(frames, ignore_index=True).dropna(subset="mean")


def _varied_settings(arms: Sequence[SearchedArm], draws: pd.DataFrame) -> list[str]:
    """Return the settings of which draws have several values."""
    settings: dict[str, None] = {}
    for arm in arms:
        settings |= dict.fromkeys(map(str, arm.settings))
    return [name for name in settings if len(set(draws[name].map(str))) > 1]


def _plot_setting(
    axes: Axes, draws: pd.DataFrame, name: str, styles: Mapping[str, LossStyle]
) -> None:
    """Plot every draw against one setting."""
    is_number = pd.api.types.is_numeric_dtype(draws[name])
    x: Any = draws[name] if is_number else draws[name].astype(str)
    for (variant, is_chosen), rows in draws.groupby(["variant", "chosen"], sort=False):
        style = styles[str(variant)].marker_style | (_CHOSEN if is_chosen else _TRIED)
        axes.plot(x[rows.index], rows["mean"], ls="", **style)
    if not is_number:
        # The first and the last value have room for their names.
        axes.margins(x=0.1)
        axes.tick_params(axis="x", labelsize=7.5, pad=7)
    elif x.min() > 0 and x.max() > 5 * x.min():
        axes.set_xscale("log")
        log_ticks(axes.xaxis)
