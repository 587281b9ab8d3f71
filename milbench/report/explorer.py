"""The data of a page's interactive part: the values of every seed, their means and the differences of every two losses.

They are those of the tables, computed once: the script of the page draws and sorts, and computes no statistics.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from milbench._utils.palette import COLOURS
from milbench.api.metric_info import Metric, describe
from milbench.api.published import Rule
from milbench.report.pairs import in_figures
from milbench.report.statistics import RULES
from milbench.report.study import Study, Variant
from milbench.report.tables import group_anchor
from milbench.report.verdicts import verdict_words, why_no_interval

COST_METRICS = {
    "loss_seconds": Metric("time of the loss alone, seconds", "", percent=False),
    "step_seconds": Metric("time of a training step, seconds", "", percent=False),
    "peak_bytes": Metric("peak memory, bytes", "", percent=False),
}
"""Costs that the page draws like metrics; they have no rule that chooses an epoch, and no differences."""


def explorer_json(
    study: Study, tasks: Sequence[str] | None = None, *, leading: bool = False, pairs: bool = True
) -> str:
    """Return the data as JSON that may stand inside of a script element; the arguments are those of the data.

    Args:
        study: the cells of a comparison and their results.
        tasks: the labels of the tasks; None: all.
        leading: see `explorer_data`.
        pairs: see `explorer_data`.
    """
    data = explorer_data(study, tasks, leading=leading, pairs=pairs)
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c")


def explorer_data(
    study: Study, tasks: Sequence[str] | None = None, *, leading: bool = False, pairs: bool = True
) -> dict[str, Any]:
    """Return tasks, metrics, variants, samples and differences; variants and tasks are named by their index.

    Args:
        study: the results.
        tasks: the labels of the tasks that a page is about; None: of all.
        leading: whether the metric that leads on a task is the only one, and costs are left out.
        pairs: whether the differences of every two losses are there.
    """
    shown = {task: _metrics(study, task, leading) for task in (study.tasks if tasks is None else tasks)}
    names = dict.fromkeys(name for metrics in shown.values() for name in metrics)
    costs = {} if leading else {n: m for n, m in COST_METRICS.items() if n in study.results.costs.columns}
    known = {name: describe(name) for name in names} | costs
    return {
        "rules": RULES,
        "metrics": {
            name: {"label": m.label, "percent": m.percent, "lower": m.lower_is_better} for name, m in known.items()
        },
        "variants": [
            {
                "label": variant.label,
                "loss": variant.loss,
                "recipe": variant.recipe,
                "supervision": variant.supervision,
                "colour": COLOURS[i % len(COLOURS)],
            }
            for i, variant in enumerate(study.variants)
        ],
        "tasks": [_task(study, task, metrics, costs, metrics if pairs else []) for task, metrics in shown.items()],
        "apart": not pairs,
    }


def _metrics(study: Study, task: str, leading: bool) -> list[str]:
    return [study.primary(task)] if leading else [study.primary(task), *study.metrics(task)]


def _task(
    study: Study, task: str, metrics: Sequence[str], costs: Iterable[str], compared: Sequence[str]
) -> dict[str, Any]:
    chance = study.chance(task)
    return {
        "label": task,
        "rule": study.rule(task),
        "rules": [rule for rule in RULES if rule != "validation" or study.validated(task)],
        "metrics": metrics,
        "chance": None if chance is None else _short(chance),
        "samples": [_samples(study, task, variant, metrics, costs) for variant in study.variants_of(task)],
        "pairs": {name: _pairs(study, task, name) for name in study.compared(task) if name in compared},
    }


def _samples(study: Study, task: str, variant: Variant, metrics: Sequence[str], costs: Iterable[str]) -> dict[str, Any]:
    """Return the values of a variant by metric and rule: of the seeds, then mean and Student's interval."""
    group = study.group(task, variant)
    seeds = [int(seed) for seed in group["seed"]]
    values: dict[str, dict[str, Any]] = {}
    for name in metrics:
        by_rule = {rule: _sample(study, task, variant, name, rule, seeds) for rule in RULES}
        # What a rule has in common with that of the last epoch is not repeated.
        values[name] = {rule: one for rule, one in by_rule.items() if rule == "last" or one != by_rule["last"]}
    measured = study.results.costs.reindex(group.index)
    done = (group["status"] == "done").to_numpy()
    for name in costs:
        found = measured[name].where(done)
        if found.notna().any():
            values[name] = {"last": {"v": [_short(x) for x in found], "m": [_short(found.median()), None, None]}}
    return {
        "variant": study.variants.index(variant),
        "anchor": group_anchor(study, task, variant),
        "seeds": seeds,
        "values": values,
    }


def _sample(study: Study, task: str, variant: Variant, name: str, rule: Rule, seeds: list[int]) -> dict[str, Any]:
    found = study.sample(task, variant, name, rule)
    by_seed: pd.Series[float] = found.by_seed
    low, high = found.student
    return {
        "v": [_short(by_seed.get(seed, math.nan)) for seed in seeds],
        "m": [_short(found.mean), _short(low), _short(high)],
    }


def _pairs(study: Study, task: str, name: str) -> list[list[Any]]:
    """Return every difference: two losses, value and bounds, seeds, test bags, why it has no interval, and words.

    The words (difference, interval, verdict) are there in both directions, the first less the second and the other.
    """
    metric, rows = describe(name), []
    for kind in study.supervisions_of(task):
        found = study.comparison(task, kind, name)
        for a, b in found.differences:
            one = found.difference(a, b)
            numbers = [_short(one.difference), *(_short(bound) for bound in one.interval)]
            words = [
                [*in_figures(found.difference(*pair), metric), verdict_words(found, *pair, metric)]
                for pair in ((a, b), (b, a))
            ]
            which = [study.variants.index(a), study.variants.index(b)]
            rows.append([*which, *numbers, one.seeds, one.items, why_no_interval(one), *words])
    return rows


def _short(value: float) -> float | None:
    """Return a number with five digits, None for one that is not finite."""
    return float(f"{value:.5g}") if math.isfinite(value) else None
