"""Published values as lines in the charts: those of losses in their colours, those of other methods in grey.

`charts` draws the results of this comparison. This file chooses the published values beside them and their style.
"""

from __future__ import annotations

from typing import Literal

from matplotlib.axes import Axes

from milbench._utils.palette import MUTED
from milbench.api.metric_info import Metric
from milbench.api.published import Published
from milbench.report.figures.style import literal
from milbench.report.formatting import scaled, with_unit
from milbench.report.study import Study, Variant

LINES = ("-", "--", "-.", ":")
"""The styles of the lines of other methods, in their order."""


def of_losses(study: Study, task: str) -> dict[Variant, list[Published]]:
    """Return the published values of the primary metric, by the variants whose loss they belong to."""
    cells = study.cells[study.cells["task_label"] == task]
    columns = ["supervision", "loss_label", "recipe_label", "loss"]
    names = {Variant(*map(str, key)): str(loss) for *key, loss in cells[columns].itertuples(index=False, name=None)}
    facts = [p for p in _of_primary(study, task) if not p.method]
    return {
        variant: found
        for variant, loss in names.items()
        if (found := [p for p in facts if p.loss in (loss, variant.loss)])
    }


def of_methods(study: Study, task: str) -> list[Published]:
    """Return the published values of the primary metric by methods that are no losses here, best first."""
    lower, primary = study.metric(task).lower_is_better, study.primary(task)
    found = [p for p in study.published_methods(task) if p.metric == primary]
    return sorted(found, key=lambda p: p.value if lower else -p.value)


def caption_of_lines(study: Study, task: str) -> str:
    """Return the sentences that explain the lines, with their sources; "" where there are none."""
    metric = study.metric(task)
    facts = {(p.loss, p.value, p.source) for found in of_losses(study, task).values() for p in found}
    listed = "; ".join(f"{loss} {value_text(value, metric)} ({source})" for loss, value, source in sorted(facts))
    ours = f"Dashed: published, by the rule of its source: {listed}." if listed else ""
    listed = "; ".join(f"{p.method} {value_text(p.value, metric)} ({p.source})" for p in of_methods(study, task))
    theirs = f"Grey lines, methods that are no losses here: {listed}." if listed else ""
    return f"{ours} {theirs}".strip()


def draw_methods(axes: Axes, study: Study, task: str, along: Literal["x", "y"]) -> list[float]:
    """Draw other methods as lines at their values along an axis, to be named in a legend; return the values.

    Args:
        axes: the axes of the chart.
        study: the results, with the published values of their tasks.
        task: the label of the task.
        along: "x" for vertical lines at values of the x axis, "y" for horizontal ones at values of the y axis.

    Returns:
        The values that are drawn, in the unit of the axis, the best first.
    """
    metric, values = study.metric(task), []
    for fact, style in zip(of_methods(study, task), LINES * 9, strict=False):
        value = scaled(fact.value, metric)
        line = axes.axvline if along == "x" else axes.axhline
        label = literal(f"{fact.method}, {value_text(fact.value, metric)}")
        line(value, color=MUTED, ls=style, lw=1.2, zorder=1, label=label)
        values.append(value)
    return values


def value_text(value: float, metric: Metric) -> str:
    """Return a published value as its source gives it."""
    return with_unit(f"{scaled(value, metric):.3g}", metric)


def _of_primary(study: Study, task: str) -> list[Published]:
    return [p for p in study.published(task) if p.metric == study.primary(task)]
