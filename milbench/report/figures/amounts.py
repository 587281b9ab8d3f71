"""The error against the number of training bags, a line a loss."""

from __future__ import annotations

from matplotlib.figure import Figure

from milbench.api.metric_info import describe
from milbench.report.amounts import Series, leading_metric
from milbench.report.figures.figure_data import amounts_facts
from milbench.report.figures.report_figure import ReportFigure
from milbench.report.figures.style import WIDTH, literal, scale_axis, styled
from milbench.report.figures.variants import colour_of, dash_of, legend_below, mark_of
from milbench.report.formatting import scaled, slug
from milbench.report.statistics import LEVEL, RULES
from milbench.report.study import Study

_CAPTION = (
    "A line a loss: means over the finished seeds, {rule}; bars: Student's {level:.0%} intervals over training seeds, "
    "from three on, corrected where seeds split the same data, moved sideways a little so that they can be told apart. "
    "Both axes are logarithmic where their values span a wide range. Whether two losses differ shows in the intervals "
    "of their differences, task by task."
)
_APART = 1.03
"""The factor by which the bars of neighbours are moved apart."""


def draw_amounts(study: Study, series: Series) -> ReportFigure:
    """Draw the planned metric against the number of training bags."""
    tasks = list(series.tasks.values())
    leading = leading_metric(study, series)
    metric = describe(leading)
    with styled():
        figure = Figure(figsize=(WIDTH, 4.6), layout="constrained")
        axes = figure.subplots()
        shown: list[float] = []
        variants = [v for v in study.variants if any(len(study.sample(task, v, leading).by_seed) for task in tasks)]
        for i, variant in enumerate(variants):
            samples = {amount: study.sample(task, variant, leading) for amount, task in series.tasks.items()}
            known = {amount: sample for amount, sample in samples.items() if len(sample.by_seed)}
            at = [amount * _APART ** (i - (len(variants) - 1) / 2) for amount in known]
            means = [scaled(sample.mean, metric) for sample in known.values()]
            colour, dash = colour_of(study, variant), dash_of(study, variant)
            label = literal(f"{variant.label} ({variant.supervision})")
            axes.plot(at, means, dash, color=colour, marker=mark_of(study, variant), ms=5, lw=1.6, label=label)
            for x, sample in zip(at, known.values(), strict=True):
                low, high = sample.student
                axes.plot([x, x], [scaled(low, metric), scaled(high, metric)], color=colour, lw=1.2, alpha=0.7)
            shown += means
        across = scale_axis(axes, "x", [*series.tasks], widest_linear=5)
        axes.set_xticks([*series.tasks], [f"{amount:,.0f}" for amount in series.tasks])
        up = scale_axis(axes, "y", shown, widest_linear=10)
        axes.set_xlabel(f"training bags{across}")
        axes.set_ylabel(f"{metric.heading}{up}")
        legend_below(figure, 4)
        title = f"{metric.label} against the number of training bags: {series.name}"
        name = f"amounts-{slug(series.name)}"
        facts = amounts_facts(study, series)
        caption = _CAPTION.format(rule=RULES[study.rule(tasks[0])], level=LEVEL)
        return ReportFigure(name, "amounts", series.name, title[0].upper() + title[1:], caption, figure, facts)
