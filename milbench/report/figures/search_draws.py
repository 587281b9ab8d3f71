"""The searched metric of every draw against each setting, with the draw that was chosen."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.figure import Figure

from milbench._utils.palette import INK
from milbench._utils.pictures import literal
from milbench.report.figures.style import (
    WIDTH,
    label_ends,
    log_ticks,
    panels,
    value_axis,
    without_verdict,
)
from milbench.report.search import SearchedArm
from milbench.report.study import Study
from milbench.report.values import rows_of

CAPTION = (
    "Every small mark is a draw, the large one with an edge the draw that was chosen for that loss. "
    "A mark is a mean over the seeds that the draw was trained with."
)
_COLUMNS = 3


def search_figure(study: Study, arms: Sequence[SearchedArm]) -> Figure | None:
    """Draw the search of each loss on one task, a panel a setting; None where nothing was varied."""
    drawn = pd.concat([
        arm.settings.assign(mean=arm.means, variant=arm.variant, chosen=arm.means.index == arm.chosen) for arm in arms
    ], ignore_index=True).dropna(subset="mean")  # fmt: skip
    settings = dict.fromkeys(str(name) for arm in arms for name in arm.settings)
    names = [name for name in settings if len(set(map(str, drawn[name]))) > 1]
    if not names or drawn.empty:
        return None
    metric = arms[0].metric
    drawn_as = without_verdict(study)
    height = max(3.0, 0.9 + 0.14 * len(arms))
    figure, grid = panels(len(names), _COLUMNS, WIDTH, height, sharey=True)
    for axes, name in zip(grid, names, strict=True):
        numeric = pd.api.types.is_numeric_dtype(drawn[name])
        data = drawn.dropna(subset=name).assign(
            x=drawn[name] if numeric else drawn[name].astype(str)
        )
        for (variant, chosen), own in data.groupby(["variant", "chosen"], sort=False):
            marks = drawn_as[str(variant)].marks
            if chosen:
                axes.plot(own["x"], own["mean"], ls="", ms=7, zorder=4, **(marks | {"mec": INK}))
            else:
                axes.plot(own["x"], own["mean"], ls="", ms=4, alpha=0.5, **(marks | {"mew": 0}))
        if numeric and data["x"].min() > 0 and data["x"].max() > 5 * data["x"].min():
            axes.set_xscale("log")
            log_ticks(axes.xaxis)
        elif not numeric:
            axes.margins(x=0.1)  # so that names below the ends have room
            axes.tick_params(axis="x", labelsize=7.5, pad=7)
        value_axis(axes, "y", metric, float(drawn["mean"].min()), float(drawn["mean"].max()))
        axes.set(xlabel=literal(name), ylabel=f"{metric.label}{' (%)' * metric.percent}, search")
    last = grid[:_COLUMNS][-1]
    label_ends(
        last,
        {row.variant: (last.get_xlim()[1], row.mean) for row in rows_of(drawn[drawn["chosen"]])},
        drawn_as,
    )
    return figure
