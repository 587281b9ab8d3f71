"""The picture that a report opens with: a row a loss, every seed a dot, the mean and its interval; a column a task."""

import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from milbench._utils.palette import INK, MUTED
from milbench._utils.pictures import literal
from milbench.report.figures.style import WIDTH, colours, error_axis, wrapped
from milbench.report.formatting import at_most
from milbench.report.literature import replications
from milbench.report.study import Study

MOST_TASKS = 6  # of more tasks a heat map is drawn
CAPTION = (
    "Every dot is a seed, the diamond their mean with its 95 % interval. In colour: contenders, which may be the best; "
    "grey: the others. Dashed, where it is near: no skill, the best answer that is the same for every bag. "
    "Rings: published means, where there are any; a table below says what differs."
)
NO_VERDICT = (
    "Every dot is a seed, the diamond their mean with its 95 % interval where that is known. No loss is in colour, as "
    "losses share one seed at most, or nothing was learnt. Dashed: no skill; rings: published means."
)
WORSE = " On the right: by how much a contender may be worse than the best."


def overview_figure(study: Study) -> Figure | None:
    """Draw every seed of every loss on every task; None without values."""
    tasks = [task for task in study.tasks if study.table(task).notna().any(axis=None)][:MOST_TASKS]
    if not tasks:
        return None
    order = study.ranking()
    with_bounds = len(tasks) == 1 and bool(study.colours)
    width = 5.8 + 1.1 * with_bounds if len(tasks) == 1 else max(WIDTH, 2.6 + 1.65 * len(tasks))
    figure = Figure(figsize=(width, max(2.2, 0.9 + 0.27 * len(order))), layout="constrained")
    row = figure.subplots(1, len(tasks), squeeze=False, sharey=True)[0]
    for axes, task in zip(row, tasks, strict=True):
        _draw(axes, study, task, order)
        if len(study.tasks) > 1:
            axes.set_title(literal(wrapped(task, 20)))
    if with_bounds:  # beside each contender
        summary, metric, palette = (
            study.summary(tasks[0]),
            study.metric(tasks[0]),
            colours(study, tasks[0]),
        )
        row[0].text(
            1.02, 1.01, "worse by at most", transform=row[0].transAxes, va="bottom", color=MUTED
        )
        for variant in summary.index[summary["contender"]]:
            text = f"{at_most(summary['worse_by'][variant], metric)}{' points' * metric.percent}"
            row[0].text(1.02, order.index(variant), text, transform=row[0].get_yaxis_transform(), va="center",
                        color=palette[variant])  # fmt: skip
    row[0].set_yticks(
        range(len(order)), [literal(wrapped(v, 28)) for v in order], color=INK, fontsize=9
    )
    return figure


def _draw(axes: Axes, study: Study, task: str, order: list[str]) -> None:
    table, summary, palette = study.table(task), study.summary(task), colours(study, task)
    known = [
        variant for variant in order if variant in table.index and table.loc[variant].notna().any()
    ]
    long = table.reset_index().melt("variant", var_name="seed", value_name="value").dropna()
    spread = (
        long.groupby("variant").cumcount() % 3 - 1
    )  # so that equal seeds do not hide each other
    long["place"] = long["variant"].map(order.index) + 0.11 * spread
    sns.scatterplot(
        long, x="value", y="place", hue="variant", hue_order=known, palette=palette, ax=axes, legend=False, s=22,
        alpha=0.55, linewidth=0, zorder=2,
    )  # fmt: skip
    for variant in known:
        y, (mean, low, high) = (
            order.index(variant),
            (float(summary[n][variant]) for n in ("mean", "low", "high")),
        )
        axes.plot(
            [low, high], [y, y], color=palette[variant], lw=2.2, zorder=3, solid_capstyle="butt"
        )
        axes.plot(mean, y, "D", color=palette[variant], ms=6.5, mec=INK, mew=0.8, zorder=4)
    published = [
        (c.published, order.index(c.variant))
        for c in replications(study, task)
        if c.variant in known
    ]
    rings = [
        (p.mean, y)
        for p, y in published
        if p.metric == study.primary(task) and p.statistic == "mean"
    ]
    axes.plot(
        [x for x, _ in rings], [y for _, y in rings], "o", mfc="none", mec=INK, ms=10, zorder=5
    )
    highest = float(np.nanmax([long["value"].max(), *summary["high"], *(x for x, _ in rings)]))
    error_axis(
        axes, study, task, "x", summary["low" if summary["low"].min() < 0 else "mean"], highest
    )
    axes.set(ylabel="", ylim=(len(order) - 0.4, -0.6))
    axes.grid(visible=False, axis="y")
