"""What a better result costs: error against the time of a step and against memory, with the Pareto front."""

from __future__ import annotations

import math
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from milbench._utils.palette import INK, MUTED
from milbench.report.figures.figure_data import pareto_facts
from milbench.report.figures.report_figure import Facts
from milbench.report.figures.style import DASHES, NARROW, literal, scale_axis, unit_axis, wrapped
from milbench.report.figures.variants import colour_of, legend_below, mark_of
from milbench.report.formatting import scaled, seconds, size
from milbench.report.statistics import LEVEL, pareto_front, student_interval
from milbench.report.study import Study, Variant

CAPTION = (
    f"A mark a loss: means over the finished seeds; bars: Student's {LEVEL:.0%} intervals over training seeds, from "
    "three on, those of results corrected where seeds split the same data. Line and dark rims: the Pareto front of the "
    "means, the losses that no other one of the same supervision beats in one of the two without losing in the other. "
    "Losses whose bars overlap may change places on it. Least time: the mean of a step in a cell's quickest epoch, "
    "which other work on the machine disturbs least. Memory is the peak of the whole process or device, the data "
    "included."
)
_COSTS = {
    "step_seconds_min": ("least time of a training step", seconds),
    "step_seconds": ("time of a training step", seconds),
    "peak_bytes": ("peak memory", size),
}


class Point(NamedTuple):
    """A loss in one panel: the means of cost and result, with their intervals (nan for none)."""

    cost: float
    result: float
    costs: tuple[float, float]
    results: tuple[float, float]


def pareto_figure(study: Study, task: str) -> Figure | None:
    """Draw result against cost, a panel for time and one for memory; None where fewer than two losses have both."""
    found = _panels(study, task)
    if not found:
        return None
    shown = dict.fromkeys(variant for points in found.values() for variant in points)
    labels = {variant: literal(wrapped(variant.label, 30)) for variant in shown}
    lines = sum(label.count("\n") + 1 for label in labels.values())
    figure = Figure(figsize=(NARROW, 3.1 + 0.22 * -(-lines // 2)), layout="constrained")
    panels = figure.subplots(1, len(found), squeeze=False, sharey=True)[0]
    for axes, (name, points) in zip(panels, found.items(), strict=True):
        title, unit = _COSTS[name]
        front = _draw_fronts(axes, study, task, points)
        for variant, point in points.items():
            colour = colour_of(study, variant)
            axes.plot(point.costs, [point.result] * 2, color=colour, lw=1.3, alpha=0.7)
            axes.plot([point.cost] * 2, point.results, color=colour, lw=1.3, alpha=0.7)
            rim = 1.5 if variant in front else 0
            mark = mark_of(study, variant)
            axes.plot(point.cost, point.result, mark, color=colour, ms=8, mec=INK, mew=rim, zorder=4)
        across = [value for p in points.values() for value in (p.cost, *p.costs) if value > 0]
        unit_axis(axes, across, unit, title)
    results = [p.result for points in found.values() for p in points.values()]
    told = scale_axis(panels[0], "y", results, widest_linear=10)
    panels[0].set_ylabel(f"{study.metric(task).heading}{told}")
    for variant, label in labels.items():
        panels[0].plot([], [], mark_of(study, variant), color=colour_of(study, variant), ms=8, mew=0, label=label)
    legend_below(figure, 3)
    return figure


def facts(study: Study, task: str) -> Facts:
    """Return the points of the panels."""
    return pareto_facts(study, task, _panels(study, task))


def _panels(study: Study, task: str) -> dict[str, dict[Variant, Point]]:
    """Return the points by the name of the cost, where two losses or more have it."""
    found = {name: _points(study, task, name) for name in (study.step_cost(task), "peak_bytes")}
    return {name: points for name, points in found.items() if len(points) > 1}


def _points(study: Study, task: str, name: str) -> dict[Variant, Point]:
    """Return the points of the variants that have a result and a cost of this name."""
    if name not in study.results.costs.columns:
        return {}
    metric, points = study.metric(task), {}
    for variant in study.variants_of(task):
        group, sample = study.group(task, variant), study.sample(task, variant)
        costs = study.results.costs.reindex(group.index[group["status"] == "done"])[name].dropna()
        if len(costs) and len(sample.by_seed):
            low, high = sample.student
            points[variant] = Point(
                float(costs.mean()), scaled(sample.mean, metric), student_interval(costs.to_numpy()),
                (scaled(low, metric), scaled(high, metric)),
            )  # fmt: skip
    return {variant: point for variant, point in points.items() if math.isfinite(point.cost + point.result)}


def _draw_fronts(axes: Axes, study: Study, task: str, points: dict[Variant, Point]) -> set[Variant]:
    """Draw the front of each kind of supervision, from the cheapest loss to the best one; return who is on one."""
    sign = 1 if study.metric(task).lower_is_better else -1
    members: set[Variant] = set()
    for kind, dash in zip(study.supervisions_of(task), DASHES * 2, strict=False):
        own = [(variant, point) for variant, point in points.items() if variant.supervision == kind]
        front = [own[i] for i in pareto_front([p.cost for _, p in own], [sign * p.result for _, p in own])]
        steps = [p.cost for _, p in front], [p.result for _, p in front]
        axes.plot(*steps, color=MUTED, lw=1.2, ls=dash, drawstyle="steps-post")
        members.update(variant for variant, _ in front)
    return members
