"""The charts of a report (every seed, learning curves, costs), and the list of all its figures."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from milbench._utils.palette import INK, LINE, MUTED
from milbench.api.metric_info import INTERIM, describe
from milbench.report.figures import pareto, reliability, search
from milbench.report.figures.figure_data import (
    costs_facts,
    curves_facts,
    gallery_facts,
    misread_facts,
    search_facts,
    seeds_facts,
)
from milbench.report.figures.galleries import gallery_figure, sensitivity_figure
from milbench.report.figures.misread import misread_figures
from milbench.report.figures.published_lines import caption_of_lines, draw_methods, of_losses
from milbench.report.figures.report_figure import Facts, ReportFigure
from milbench.report.figures.style import WIDTH, literal, scale_axis, styled, unit_axis, wrapped
from milbench.report.figures.variants import colour_of, dash_of, legend_below
from milbench.report.formatting import scaled, seconds, size
from milbench.report.statistics import RULES
from milbench.report.study import Study, Variant

MOST_LINES = 12
"""With more finished seeds their curves are a band: hundreds of lines hide one another and make a page heavy."""
_CURVES = (
    "Thin: a seed; thick: the mean over the finished seeds. A run that did not finish ends in a cross. Of more than "
    f"{MOST_LINES} finished seeds a band shows the least and the largest value."
)
_COSTS = (
    f"Small dots: seeds, of more than {MOST_LINES} a line from the least to the largest; large: their median. Right: "
    "the result against the time of the loss alone."
)
_Plan = tuple[str, str, str, Callable[[Study, str], Figure | None], Callable[[Study, str], Facts]]
_GALLERY = (
    "The same test bags for every loss, with its network after the last epoch of the first seed that all have "
    "finished. (Where there is none, headings name the seeds, of which tasks may have other bags.) Colour: the "
    "most probable class of a position where that is not the background, the stronger the more probable. Above: the "
    "classes detected in the bag, those that are most probable at some position (or reach the threshold of presence, "
    "where one was recorded); each is named where it is most probable. Frames: the true instances, which are not part "
    "of set supervision. Of sequences the frames stand above and time runs to the right; each class has a strip, the "
    "stronger the more probable it is."
)
_SENSITIVITY = (
    "The same bags and networks, on the dimmed image. Colour: the detected class whose probability, where it is "
    "detected, depends most on a pixel, by the sum over the colour channels of |d log p / d pixel|, the stronger the "
    "closer that sum is to the largest of the class (arXiv:1811.12346, Section 5.5)."
)


def draw(study: Study, task: str, suffix: str, *, gallery: bool = True, few: bool = False) -> list[ReportFigure]:
    """Return the pictures of one task for which there are data.

    Args:
        study: the results.
        task: the label of the task.
        suffix: the end of the names of their files.
        gallery: whether pictures of test bags are drawn.
        few: whether every seed is the only chart.

    Returns:
        The pictures in the order of the report.
    """
    named = f"{study.metric(task).label} on test bags"
    references = caption_of_lines(study, task)
    corrected = ", corrected for the data that the splits of the seeds share" if study.overlap(task) else ""
    seeds_caption = (
        f"A dot a seed, {RULES[study.rule(task)]}. Vertical line: the mean; horizontal line: Student's 95 % interval "
        f"of the mean over training seeds, from three on{corrected}. Whether two losses differ "
        f"shows in the intervals of their differences, not in these. {references}"
    )
    plans: list[_Plan] = [
        ("seeds", f"Every seed: {named}", seeds_caption, seeds_figure, seeds_facts),
        ("curves", *_words_of_curves(study, task, references), curves_figure, _facts_of_curves),
        ("reliability", "Do its probabilities come true? Presence of classes", reliability.PRESENCE,
         reliability.presence_figure, reliability.presence_facts),
        ("reliability-sets", "Do its probabilities come true? Label sets", reliability.SETS, reliability.sets_figure,
         reliability.sets_facts),
        ("costs", "Cost of each loss", _COSTS, costs_figure, costs_facts),
        ("pareto", f"What a better result costs: {named}", pareto.CAPTION, pareto.pareto_figure, pareto.facts),
        ("search", "What the search found with fewer draws", search.CAPTION, search.search_figure, search_facts),
    ]  # fmt: skip
    if few:
        plans = plans[:1]
    if gallery:
        plans.append(("gallery", "What each loss detects where", _GALLERY, gallery_figure, gallery_facts))
        plans.append(
            ("sensitivity", "Which pixels the detections rest on", _SENSITIVITY, sensitivity_figure, gallery_facts)
        )
    pictures = []
    with styled():
        for kind, title, caption, make, facts in plans:
            figure = make(study, task)
            if figure is not None:
                name = f"{kind}-{suffix}"
                pictures.append(ReportFigure(name, kind, task, title, caption.strip(), figure, facts(study, task)))
        for n, (variant, caption, figure) in enumerate(misread_figures(study, task) if gallery else (), start=1):
            name, title = f"errors-{n}-{suffix}", f"How numbers are misread: {variant.label}"
            found = misread_facts(study, task, variant)
            pictures.append(ReportFigure(name, f"errors-{n}", task, title, caption, figure, found))
    return pictures


def _facts_of_curves(study: Study, task: str) -> Facts:
    recorded = _recorded(study, task)
    return curves_facts({name: frame for name, frame in recorded.items() if _is_curve(frame)})


def seeds_figure(study: Study, task: str) -> Figure | None:
    """Draw a dot for every seed of every variant, the mean and its interval; None where there are no values."""
    variants = study.variants_of(task)
    metric = study.metric(task)
    samples = {variant: study.sample(task, variant) for variant in variants}
    if not any(len(sample.by_seed) for sample in samples.values()):
        return None
    figure = Figure(figsize=(WIDTH, 1.1 + 0.62 * len(variants)), layout="constrained")
    axes = figure.subplots()
    shown: list[float] = []
    published = of_losses(study, task)
    for y, variant in enumerate(variants):
        sample, colour = samples[variant], colour_of(study, variant)
        values = [scaled(value, metric) for value in sample.by_seed]
        shown += values
        heights = y + np.linspace(-0.22, 0.22, len(values)) if len(values) > 1 else [y] * len(values)
        axes.plot(values, heights, "o", color=colour, alpha=0.85, ms=6, mew=0, zorder=5)
        if values:
            mean = scaled(sample.mean, metric)
            axes.plot([mean, mean], [y - 0.3, y + 0.3], color=INK, lw=1.8, zorder=4, solid_capstyle="butt")
            low, high = (scaled(bound, metric) for bound in sample.student)
            if math.isfinite(low):
                axes.plot([low, high], [y, y], color=INK, lw=1.2, zorder=4)
        else:
            axes.text(0.5, y, "no result", transform=axes.get_yaxis_transform(), color=MUTED, ha="center", va="center")
        for fact in published.get(variant, []):
            value = scaled(fact.value, metric)
            shown.append(value)
            axes.plot([value, value], [y - 0.42, y + 0.42], ls=(0, (3, 2)), color=colour, lw=1.6)
            if fact.spread:
                spread = scaled(fact.spread, metric)
                axes.fill_betweenx([y - 0.42, y + 0.42], value - spread, value + spread, color=colour, alpha=0.12, lw=0)
    _bayes_line(axes, study, task)
    shown += draw_methods(axes, study, task, "x")
    told = scale_axis(axes, "x", shown)
    _name_variants(axes, study, task, variants)
    axes.set_xlabel(f"{metric.heading}{told}")
    if axes.get_legend_handles_labels()[1]:
        legend_below(figure, 3)
    return figure


def curves_figure(study: Study, task: str) -> Figure | None:
    """Draw the leading test metric and the training loss by epoch; None where neither has a run with two values.

    What was recorded once a run is no curve, and is left out: the figure of the seeds shows it.
    """
    variants = study.variants_of(task)
    frames = {name: frame for name, frame in _recorded(study, task).items() if _is_curve(frame)}
    if not frames:
        return None
    figure = Figure(figsize=(WIDTH, 3.9), layout="constrained")
    panels = figure.subplots(1, len(frames), squeeze=False)[0]
    published = of_losses(study, task)
    some = (
        ", on some bags before the last epoch" if len(_curves(study, task, f"{INTERIM}{_tested(study, task)}")) else ""
    )
    titles = {"train/loss": "training loss, each loss in its own units"}
    for axes, (name, frame) in zip(panels, frames.items(), strict=True):
        title = titles.get(name, f"{study.metric(task).heading}, test{some}")
        metric = describe(name.partition("/")[2])
        curves = frame.assign(value=scaled(frame["value"], metric))
        for variant in variants:
            colour = colour_of(study, variant)
            _draw_curves(axes, curves[curves["variant"] == variant.label], colour, dash_of(study, variant))
            for fact in published.get(variant, []) if name.startswith("test/") else []:
                axes.axhline(scaled(fact.value, metric), ls=(0, (3, 2)), lw=1.2, color=colour, alpha=0.8)
        lines = draw_methods(axes, study, task, "y") if name.startswith("test/") else []
        told = scale_axis(axes, "y", [*curves["value"], *lines], widest_linear=10)
        axes.set(title=literal(wrapped(f"{title}{told}", 52)), xlabel="epoch", ylabel="")
        axes.set_xlim(0.5, curves["epoch"].max() + 0.5 if len(curves) else 1.5)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    for variant in variants:
        label = literal(wrapped(variant.label, 34))
        panels[0].plot([], [], color=colour_of(study, variant), ls=dash_of(study, variant), lw=2.2, label=label)
    legend_below(figure, min(4, len(variants)))
    return figure


def no_curves(study: Study, task: str) -> str:
    """Return in a sentence which curves are not drawn since no run has two values; "" where none are missing."""
    single = [name for name, frame in _recorded(study, task).items() if len(frame) and not _is_curve(frame)]
    if not single:
        return ""
    return f"No curve of {' and '.join(_label(study, task, name) for name in single)}: every run recorded it once."


def _label(study: Study, task: str, name: str) -> str:
    return "training loss" if name == "train/loss" else f"{study.metric(task).label} on test bags"


def _words_of_curves(study: Study, task: str, references: str) -> tuple[str, str]:
    """Return the title and the caption of the curves; `references` describes lines among those of the test metric."""
    drawn = [name for name, frame in _recorded(study, task).items() if _is_curve(frame)]
    lines = references if _tested(study, task) in drawn else ""
    caption = " ".join(filter(None, (_CURVES, no_curves(study, task), lines)))
    return f"Learning curves: {' and '.join(_label(study, task, name) for name in drawn)}", caption


def _tested(study: Study, task: str) -> str:
    return f"test/{study.primary(task)}"


def _recorded(study: Study, task: str) -> dict[str, pd.DataFrame]:
    """Return the values of the leading test metric, with those on some bags, and of the training loss."""
    test = _tested(study, task)
    tested = [_curves(study, task, INTERIM + test), _curves(study, task, test)]
    joined = pd.concat([frame for frame in tested if len(frame)] or tested, ignore_index=True)
    return {test: joined, "train/loss": _curves(study, task, "train/loss")}


def _is_curve(frame: pd.DataFrame) -> bool:
    """Return whether some run has values at two epochs."""
    return bool(len(frame)) and int(frame.groupby("cell")["epoch"].nunique().max()) > 1


def costs_figure(study: Study, task: str) -> Figure | None:
    """Draw the time and memory of each variant, and its result against its time; None where nothing was measured."""
    variants = study.variants_of(task)
    measures = {
        "loss_seconds": ("loss alone", seconds), "step_seconds": ("training step", seconds),
        "loss_peak_bytes": ("memory of the loss", size),
    }  # fmt: skip
    costs = study.results.costs
    values = {
        (name, variant): costs.reindex(group.index[group["status"] == "done"])[name].dropna()
        for name in measures if name in costs.columns
        for variant in variants if len(group := study.group(task, variant))
    }  # fmt: skip
    if not any(len(series) for series in values.values()):
        return None
    figure = Figure(figsize=(WIDTH, max(2.9, 1.4 + 0.5 * len(variants))), layout="constrained")
    panels = figure.subplots(1, 4, width_ratios=(1, 1, 1, 1.2))
    for panel, (axes, (name, (title, unit))) in enumerate(zip(panels, measures.items(), strict=False)):
        shown = []
        for y, variant in enumerate(variants):
            series = values.get((name, variant), pd.Series(dtype=float))
            shown += list(series)
            if len(series) > MOST_LINES:
                axes.plot([series.min(), series.max()], [y, y], color=colour_of(study, variant), alpha=0.4, lw=3)
            else:
                axes.plot(series, [y] * len(series), "o", color=colour_of(study, variant), alpha=0.4, ms=4, mew=0)
            if len(series):
                axes.plot([series.median()], [y], "o", color=colour_of(study, variant), ms=9, mew=0)
        unit_axis(axes, shown, unit)
        _name_variants(axes, study, task, variants, named=panel == 0)
        axes.set_title(title)
    _tradeoff(
        panels[3],
        study,
        task,
        {variant: values.get(("loss_seconds", variant), pd.Series(dtype=float)) for variant in variants},
    )
    return figure


def _tradeoff(axes: Axes, study: Study, task: str, times: dict[Variant, pd.Series[float]]) -> None:
    metric = study.metric(task)
    points = {
        variant: (float(series.median()), scaled(study.sample(task, variant).mean, metric))
        for variant, series in times.items()
    }
    points = {variant: point for variant, point in points.items() if all(map(math.isfinite, point))}
    for variant, point in points.items():
        axes.plot(*point, "o", color=colour_of(study, variant), ms=10, mew=0)
    told = scale_axis(axes, "y", [y for _, y in points.values()], widest_linear=10)
    unit_axis(axes, [x for x, _ in points.values()], seconds)
    axes.margins(x=0.15, y=0.2)
    axes.set_title("result by time of the loss")
    axes.set_ylabel(f"{metric.heading}{told}")


def _curves(study: Study, task: str, name: str) -> pd.DataFrame:
    """Return a long frame of variant, seed, done, epoch, value for one metric; what is not finite is left out."""
    parts = [
        study.group(task, variant)[["seed", "status"]].assign(variant=variant.label)
        for variant in study.variants_of(task)
    ]
    runs = pd.concat(parts).rename_axis("cell").reset_index()
    runs["done"] = runs.pop("status") == "done"
    frame = runs.merge(study.history(task, name), on="cell")
    return frame[np.isfinite(frame["value"].astype(float))].reset_index(drop=True)


def _draw_curves(axes: Axes, frame: pd.DataFrame, colour: str, dash: str) -> None:
    if frame.empty:
        return
    done = frame[frame["done"]]
    banded = done["seed"].nunique() > MOST_LINES
    if banded:
        at = done.groupby("epoch")["value"]
        axes.fill_between(at.min().index, at.min(), at.max(), color=colour, alpha=0.15, lw=0)
    single = frame[~frame["done"]] if banded else frame
    # One collection, since thousands of lines one by one would take matplotlib most of the time of a report.
    axes.add_collection(LineCollection(_by_seed(single), colors=colour, lw=0.8, alpha=0.45, capstyle="projecting"))
    ends = frame[~frame["done"]].sort_values("epoch").groupby("seed").last()
    if len(ends):
        axes.plot(ends["epoch"], ends["value"], "x", color=colour, ms=7, mew=2)
    # The mean is drawn only where every seed has a value: it would jump at the end of an unfinished one.
    counts = done.groupby("epoch")["value"].transform("size")
    mean = done[counts == done["seed"].nunique()].groupby("epoch")["value"].mean()
    axes.plot(mean.index, mean, color=colour, lw=2.2, ls=dash, marker="o" if len(mean) == 1 else None)


def _by_seed(frame: pd.DataFrame) -> list[np.ndarray]:
    """Return the points of each seed, (n, 2) with epoch and value."""
    ordered = frame.sort_values(["seed", "epoch"])
    starts = np.unique(ordered["seed"], return_index=True)[1]
    return np.split(ordered[["epoch", "value"]].to_numpy(float), starts[1:])


def _bayes_line(axes: Axes, study: Study, task: str) -> None:
    name = f"bayes_{study.primary(task)}"
    if name not in study.metrics(task):
        return
    values = pd.concat([study.sample(task, variant, name).by_seed for variant in study.variants_of(task)])
    if len(values):
        value = scaled(float(values.mean()), study.metric(task))
        axes.axvline(value, color=MUTED, ls=":", lw=1.3)
        axes.annotate("Bayes optimum", (value, 1), xycoords=("data", "axes fraction"), xytext=(3, 2),
                      textcoords="offset points", color=MUTED, fontsize=8.5)  # fmt: skip


def _name_variants(axes: Axes, study: Study, task: str, variants: list[Variant], named: bool = True) -> None:
    """Name the variants on the y axis, from the top, with a line between kinds of supervision."""
    labels = []
    for variant in variants:
        group = study.group(task, variant)
        done = int((group["status"] == "done").sum())
        labels.append(
            literal(wrapped(variant.label)) + ("" if done == len(group) else f"\n({done} of {len(group)} seeds)")
        )
    axes.set_yticks(range(len(variants)), labels if named else [""] * len(variants))
    if named:
        for tick in axes.get_yticklabels():
            tick.set_color(INK)
    axes.set_ylim(len(variants) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    for y in range(1, len(variants)):
        if variants[y].supervision != variants[y - 1].supervision:
            axes.axhline(y - 0.5, color=LINE, lw=1.4)
