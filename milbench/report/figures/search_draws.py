"""The figure of a search: the metric of every draw against each setting.

A draw is one try of settings in a search.
"""

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
    "Every small symbol is a draw, the large one with an edge the draw that was chosen for that "
    "loss. A symbol is a mean over the seeds that the draw was trained with."
)
_COLUMNS = 3
"""The number of panels side by side."""
_CHOSEN = {"ms": 7, "mec": INK, "zorder": 4}
"""The style of the symbol of the chosen draw: large, with an edge, above the others."""
_TRIED = {"ms": 4, "mew": 0, "alpha": 0.5}
"""The style of the symbols of all other draws."""


def search_figure(study: Study, arms: Sequence[SearchedArm]) -> Figure | None:
    """Plot the search of each loss on one task, a panel for each setting; None without any."""
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
    """Return a row for every draw that has a value.

    The columns are its settings, its mean, its loss (variant) and whether it was chosen.
    """
    frames = []
    for arm in arms:
        is_chosen = arm.means.index == arm.chosen
        frames.append(arm.settings.assign(mean=arm.means, variant=arm.variant, chosen=is_chosen))
    return pd.concat(frames, ignore_index=True).dropna(subset="mean")


def _varied_settings(arms: Sequence[SearchedArm], draws: pd.DataFrame) -> list[str]:
    """Return the settings that do not have the same value in all draws."""
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
        # Room at both sides, for the names of the first and the last value.
        axes.margins(x=0.1)
        axes.tick_params(axis="x", labelsize=7.5, pad=7)
    elif x.min() > 0 and x.max() > 5 * x.min():
        axes.set_xscale("log")
        log_ticks(axes.xaxis)
