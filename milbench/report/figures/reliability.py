"""Reliability diagrams: of what a loss holds to be how probable, how often it happens; a panel a loss."""

from __future__ import annotations

import math

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import binomtest

from milbench._utils.palette import INK, MUTED
from milbench.api.metric_info import describe
from milbench.api.reliability import BINS, Bin
from milbench.report.figures.figure_data import reliability_facts
from milbench.report.figures.report_figure import Facts
from milbench.report.figures.style import NARROW, literal, wrapped
from milbench.report.figures.variants import colour_of
from milbench.report.formatting import decimals, interval, number, with_unit
from milbench.report.reliability import pooled_bins
from milbench.report.statistics import LEVEL
from milbench.report.study import Sample, Study, Variant

_READ = (
    f"Across: the mean probability of the forecasts in a bin, of {BINS} with as many forecasts each; up: the share of "
    "them that happened, after the last epoch. On the diagonal probabilities come true; where the points rise less "
    f"steeply, a loss is too sure. Filled: as trained, pooled over seeds, with Wilson's {LEVEL:.0%} intervals, which "
    "take forecasts for independent, and are too narrow where classes or seeds share their bags. Rings, where "
    "there are validation bags: after one temperature, fitted on them. ECE: the calibration error, its mean over seeds "
    f"with Student's {LEVEL:.0%} interval, from three seeds on; after T: with the temperature. A loss without such "
    "probabilities has no panel."
)
PRESENCE = f"The presence of every class in every test bag. {_READ}"
SETS = f"That the label set at even odds, the classes with a presence of 0 or more, is the true one. {_READ}"
_COLUMNS = 3


def presence_figure(study: Study, task: str) -> Figure | None:
    """Draw how often classes are present that were forecast to be; None where no loss made forecasts."""
    return _figure(study, task, "presence_ece")


def sets_figure(study: Study, task: str) -> Figure | None:
    """Draw how often the label sets at even odds are right; None where no loss gave them a probability."""
    return _figure(study, task, "set_ece")


def presence_facts(study: Study, task: str) -> Facts:
    """Return the bins of the presence of classes."""
    return reliability_facts(study, task, "presence_ece")


def sets_facts(study: Study, task: str) -> Facts:
    """Return the bins of label sets."""
    return reliability_facts(study, task, "set_ece")


def _figure(study: Study, task: str, metric: str) -> Figure | None:
    curves = {variant: pooled_bins(study, task, variant) for variant in study.variants_of(task)}
    shown = [variant for variant, found in curves.items() if metric in found]
    if not shown:
        return None
    columns = min(_COLUMNS, len(shown))
    rows = -(-len(shown) // columns)
    figure = Figure(figsize=(NARROW, 0.4 + 2.45 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False, sharey=True).flatten()
    for axes, variant in zip(panels, shown, strict=False):
        after = curves[variant].get(f"{metric}_tempered", [])
        _panel(axes, colour_of(study, variant), curves[variant][metric], after)
        axes.set_title(literal(wrapped(variant.label, 20)), fontsize=8.5)
        axes.set_xlabel("\n".join(_errors(study, task, variant, metric)), fontsize=8.5, color=INK)
    for axes in panels[len(shown) :]:
        axes.set_axis_off()
    figure.supxlabel("mean probability", color=MUTED, fontsize=9.5)
    figure.supylabel("share that happened", color=MUTED, fontsize=9.5)
    return figure


def _panel(axes: Axes, colour: str, before: list[Bin], after: list[Bin]) -> None:
    axes.plot([0, 1], [0, 1], color=MUTED, lw=1, ls="--")
    for found in before:
        bounds = binomtest(round(found.frequency * found.count), found.count).proportion_ci(LEVEL, method="wilson")
        axes.plot([found.probability] * 2, [bounds.low, bounds.high], color=colour, lw=1.4, alpha=0.6)
    axes.plot([one.probability for one in before], [one.frequency for one in before], "o", color=colour, ms=4.5, mew=0)
    axes.plot(
        [one.probability for one in after], [one.frequency for one in after], "o", ms=5.5, mfc="none", mec=INK, mew=0.9
    )
    axes.set(xlim=(-0.04, 1.04), ylim=(-0.04, 1.04), xticks=(0, 0.5, 1), yticks=(0, 0.5, 1), aspect="equal")
    axes.set_xticklabels(["0", "0.5", "1"])
    axes.tick_params(labelsize=8)


def _errors(study: Study, task: str, variant: Variant, metric: str) -> list[str]:
    """Return a line with the calibration error, and one with that after the temperature, as far as they are known."""
    known = {"ECE": metric, "after T": f"{metric}_tempered"}
    samples = {name: study.sample(task, variant, known[name], rule="last") for name in known}
    return [f"{name} {_measured(found, known[name])}" for name, found in samples.items() if len(found.by_seed)]


def _measured(sample: Sample, name: str) -> str:
    metric = describe(name)
    text = with_unit(number(sample.mean, decimals(sample.mean, sample.spread, metric), metric), metric)
    if not math.isfinite(sample.student[0]):
        return text
    return f"{text} {interval(sample.student, sample.mean, sample.spread, metric)}"
