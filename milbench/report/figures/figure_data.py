"""What each figure shows, for those who cannot see it: a sentence of its main values, and its data as a frame."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from milbench.api.metric_info import Metric, describe
from milbench.report.amounts import Series, leading_metric
from milbench.report.figures.galleries import MOST_BAGS, galleries
from milbench.report.figures.report_figure import Facts
from milbench.report.formatting import NOTHING, decimals, number, seconds, size, with_unit
from milbench.report.marks import StatedTest, marks_frame
from milbench.report.reliability import pooled_bins
from milbench.report.study import Study, Variant
from milbench.report.tuning import arms

COSTS = ("step_seconds", "loss_seconds", "loss_peak_bytes", "peak_bytes")
_MOST = 30
"""So many losses are named in a sentence at most; the data have all."""


def seeds_facts(study: Study, task: str) -> Facts:
    """Return the value of every seed, and the means."""
    metric, rows = study.metric(task), []
    samples = {variant: study.sample(task, variant) for variant in study.variants_of(task)}
    for variant, sample in samples.items():
        rows += [(variant.label, seed, value) for seed, value in sample.by_seed.items()]
    means = {v.label: _value(s.mean, s.spread, metric) for v, s in samples.items()}
    return Facts(f"Means: {_listed(means)}.", _frame(rows, "loss", "seed", study.primary(task)))


def curves_facts(recorded: dict[str, pd.DataFrame]) -> Facts:
    """Return mean, least and largest value over the seeds at every epoch; `recorded` has all values by metric."""
    parts = []
    for name, frame in recorded.items():
        at = frame.groupby(["variant", "epoch"], sort=False)["value"]
        table = at.agg(["size", "mean", "min", "max"]).reset_index()
        parts.append(table.assign(metric=name)[["variant", "metric", "epoch", "size", "mean", "min", "max"]])
    joined = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    joined.columns = pd.Index(["loss", "metric", "epoch", "runs", "mean", "least", "largest"])
    name = next(iter(recorded))
    metric = describe(name.partition("/")[2])
    ends = joined[joined["metric"] == name].groupby("loss", sort=False).last()["mean"]
    return Facts(f"Means at the end: {_listed({k: _value(v, math.nan, metric) for k, v in ends.items()})}.", joined)


def costs_facts(study: Study, task: str) -> Facts:
    """Return the costs of every finished seed, and the median time of each loss alone."""
    rows, medians = [], {}
    for variant in study.variants_of(task):
        group = study.group(task, variant)
        costs = study.results.costs.reindex(group.index[group["status"] == "done"]).reindex(columns=list(COSTS))
        rows += [(variant.label, group.loc[cell, "seed"], *values) for cell, *values in costs.itertuples(name=None)]
        medians[variant.label] = seconds(float(costs["loss_seconds"].median()))
    return Facts(f"Median time of the loss alone: {_listed(medians)}.", _frame(rows, "loss", "seed", *COSTS))


def pareto_facts(study: Study, task: str, panels: dict[str, dict[Variant, Any]]) -> Facts:
    """Return the points of each panel, a panel a cost.

    Args:
        study: the cells of a comparison and their results.
        task: the label of the task.
        panels: of each cost, its value for every variant.
    """
    rows, told, metric = [], {}, study.metric(task)
    unit = 100 if metric.percent else 1
    for cost, points in panels.items():
        for variant, point in points.items():
            results = (point.result / unit, *(value / unit for value in point.results))
            rows.append((variant.label, cost, point.cost, *point.costs, *results))
            if cost == next(iter(panels)):
                result = with_unit(number(point.result / unit, 1 if metric.percent else 3, metric), metric)
                told[variant.label] = f"{result} at {(size if cost.endswith('bytes') else seconds)(point.cost)}"
    name = study.primary(task)
    columns = ("cost", "mean_cost", "cost_low", "cost_high", name, f"{name}_low", f"{name}_high")
    return Facts(f"Mean result and cost: {_listed(told)}.", _frame(rows, "loss", *columns))


def reliability_facts(study: Study, task: str, metric: str) -> Facts:
    """Return the bins of the forecasts, as trained and after a temperature, and the calibration errors.

    Args:
        study: the cells of a comparison and their results.
        task: the label of the task.
        metric: the calibration error, which names the forecasts.
    """
    rows, errors = [], {}
    for variant in study.variants_of(task):
        found = pooled_bins(study, task, variant)
        for when, name in (("as trained", metric), ("after temperature", f"{metric}_tempered")):
            rows += [(variant.label, when, one.probability, one.frequency, one.count) for one in found.get(name, ())]
        if metric in found:
            sample = study.sample(task, variant, metric, rule="last")
            errors[variant.label] = _value(sample.mean, sample.spread, describe(metric))
    frame = _frame(rows, "loss", "when", "probability", "frequency", "forecasts")
    return Facts(f"Mean calibration errors: {_listed(errors)}.", frame)


def search_facts(study: Study, task: str) -> Facts:
    """Return the error of every draw, and the least one of each loss."""
    rows, least = [], {}
    for arm in arms(study, task):
        rows += [
            (arm.loss, number, np.nan if failed else error, place == arm.chosen)
            for place, (number, failed, error) in enumerate(zip(arm.numbers, arm.failed, arm.errors, strict=True))
        ]
        least[arm.loss] = f"{100 * min(arm.errors):.1f} %"
    return Facts(
        f"Least validation error of any draw: {_listed(least)}.", _frame(rows, "loss", "draw", "error", "chosen")
    )


def amounts_facts(study: Study, series: Series) -> Facts:
    """Return means and intervals for every number of training bags."""
    name = leading_metric(study, series)
    rows, ends = [], {}
    for variant in study.variants:
        for amount, task in series.tasks.items():
            sample = study.sample(task, variant, name)
            if len(sample.by_seed):
                rows.append(
                    (variant.label, variant.supervision, amount, sample.mean, *sample.student, len(sample.by_seed))
                )
                if amount == max(series.tasks):
                    label = f"{variant.label} ({variant.supervision})"
                    ends[label] = _value(sample.mean, sample.spread, describe(name))
    frame = _frame(rows, "loss", "supervision", "training_bags", "mean", "low", "high", "seeds")
    return Facts(f"Means with the most training bags: {_listed(ends)}.", frame)


def ranks_facts(mean: pd.Series[float]) -> Facts:
    """Return the mean ranks, the best first."""
    ordered = mean.sort_values(kind="stable")
    frame = ordered.rename("mean_rank").rename_axis("loss").reset_index()
    return Facts(f"Mean ranks: {_listed({str(k): f'{v:.2f}' for k, v in ordered.items()})}.", frame)


def marks_facts(study: Study, tests: list[StatedTest], counts: str) -> Facts:
    """Return the verdicts of tests by one metric; `counts` says how many each loss passes.

    Args:
        study: the cells of a comparison and their results.
        tests: the tests, all by one metric.
        counts: how many tests each loss passes, in words.
    """
    frame = marks_frame(study)
    wanted = {(test.task, test.mark.name, test.mark.metric) for test in tests}
    keys = zip(frame["task"], frame["test"], frame["metric"], strict=True)
    return Facts(counts, frame[[key in wanted for key in keys]].drop(columns=["seeds", "planned"]))


def gallery_facts(study: Study, task: str) -> Facts:
    """Return the true and the detected classes of the bags of a gallery."""
    rows, right = [], {}
    for variant, (_, _, gallery) in galleries(study, task).items():
        bags = range(min(MOST_BAGS, len(gallery)))
        for bag in bags:
            sets = (gallery.true(bag), gallery.detected(bag))
            rows.append((bag + 1, variant.label, *(" ".join(gallery.class_names[c] for c in sorted(s)) for s in sets)))
        equal = sum(gallery.true(bag) == gallery.detected(bag) for bag in bags)
        right[variant.label] = f"{equal} of {len(bags)}"
    return Facts(f"Bags with the right classes: {_listed(right)}.", _frame(rows, "bag", "loss", "truth", "detected"))


def misread_facts(study: Study, task: str, variant: Variant) -> Facts:
    """Return truth and reading of the examples of misread bags, and how many bags each pattern has.

    Args:
        study: the cells of a comparison and their results.
        task: the label of the task.
        variant: the loss, whose gallery holds misread bags.
    """
    misread = galleries(study, task)[variant].gallery.misread
    if misread is None:
        return Facts("No misread bags.", pd.DataFrame(columns=["pattern", "truth", "read"]))
    rows = [(name, misread.truth[i], misread.read[i]) for name in misread.counts for i in misread.of(name)]
    counts = {describe(f"error_{name}").label: f"{n} of {misread.bags}" for name, n in misread.counts.items()}
    return Facts(f"Misread bags by pattern: {_listed(counts)}.", _frame(rows, "pattern", "truth", "read"))


def _frame(rows: Iterable[tuple[Any, ...]], *columns: str) -> pd.DataFrame:
    return pd.DataFrame(list(rows), columns=list(columns))


def _listed(values: dict[Any, str]) -> str:
    told = [f"{name} {value}" for name, value in list(values.items())[:_MOST]]
    return ", ".join(told + ([f"and {len(values) - _MOST} more"] if len(values) > _MOST else [])) or "none"


def _value(mean: float, spread: float, metric: Metric) -> str:
    return with_unit(number(mean, decimals(mean, spread, metric), metric), metric) if math.isfinite(mean) else NOTHING
