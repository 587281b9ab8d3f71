"""The answer of a report in three sentences: which loss to use, which to avoid, how sure that is and what it costs."""

from __future__ import annotations

import math
from collections import Counter

import pandas as pd

from milbench.report.at_chance import all_at_chance
from milbench.report.formatting import counted, interval, measured, seconds, three_digits, with_unit
from milbench.report.pairs import in_figures
from milbench.report.statistics import FEWEST_SEEDS, Comparison
from milbench.report.study import Study, Variant
from milbench.report.tables import BUSY, kind_named
from milbench.report.verdicts import standing

MOST_NAMED = 4
NOISE = "beyond noise"


def answer(study: Study) -> list[str]:
    """Return three sentences, or fewer where there is less to say; they follow from the intervals of all differences.

    They speak of the kind of supervision with the most tasks, and of the metric that leads on each task. A loss may be
    the best of a task where no other one is better there beyond noise.
    """
    if not study.variants:
        return ["Nothing was planned, so there is no answer."]
    kind = _most_frequent_kind(study)
    tasks = [task for task in study.tasks if kind in study.supervisions_of(task)]
    found = {task: study.comparison(task, kind) for task in tasks}
    found = {task: comparison for task, comparison in found.items() if comparison.best is not None}
    if not found:
        return ["No cell is done, so there is no answer yet."]
    several = len({variant.supervision for variant in study.variants}) > 1
    within = f"{kind_named(kind).partition(':')[0]}: " if several else ""
    known = {task: one for task, one in found.items() if not all_at_chance(study, task)}
    if not known:
        return [f"{within}none: no loss can be told from guessing on any task.", _sure(study, found)]
    if all(len(one.keys) == 1 for one in known.values()):
        return [f"{within}{_one_loss(study, known)}", _sure(study, known)]
    if not any(_has_interval(one) for one in known.values()):
        return [f"{within}{_too_few_seeds(known)}", _observed(study, known), _cost(study, known)]
    return [f"{within}{_which(study, known)}", _avoid(study, known, len(tasks)), _sure(study, known)]


def named(variants: list[Variant], joined: str = "or") -> str:
    """Return labels in one phrase, the first few of them by name.

    Examples:
        >>> named([Variant("set", "exact", ""), Variant("set", "noisy-or", "")])
        'exact or noisy-or'
    """
    labels = [variant.label for variant in variants]
    if len(labels) > MOST_NAMED + 1:
        labels[MOST_NAMED:] = [f"{len(variants) - MOST_NAMED} more"]
    return labels[0] if len(labels) == 1 else f"{', '.join(labels[:-1])} {joined} {labels[-1]}"


def may_be_best(comparison: Comparison[Variant]) -> list[Variant]:
    """Return the losses of which none is worse than another one beyond noise, that with the best mean first."""
    kept = [v for v in comparison.keys if standing(comparison, v) != "worse" and _ranked(comparison, v)]
    return sorted(kept, key=lambda variant: variant != comparison.best)


def _ranked(comparison: Comparison[Variant], variant: Variant) -> bool:
    best = comparison.best
    return best is None or variant == best or comparison.tells_apart(variant, best)


def _most_frequent_kind(study: Study) -> str:
    counts = Counter(kind for task in study.tasks for kind in study.supervisions_of(task))
    return next(
        variant.supervision for variant in study.variants if counts[variant.supervision] == max(counts.values())
    )


def _has_interval(comparison: Comparison[Variant]) -> bool:
    return any(math.isfinite(one.interval[0]) for one in comparison.differences.values())


def _value(study: Study, task: str, variant: Variant) -> str:
    sample, metric = study.sample(task, variant), study.metric(task)
    text = with_unit(measured(sample.mean, sample.spread, metric), metric)
    if math.isfinite(sample.student[0]):
        text += f" {interval(sample.student, sample.mean, sample.spread, metric)}"
    return text


def _one_loss(study: Study, found: dict[str, Comparison[Variant]]) -> str:
    told = [f"{_value(study, task, one.keys[0])} on {task}" for task, one in found.items()][:MOST_NAMED]
    names = dict.fromkeys(one.keys[0] for one in found.values())
    only = named(list(names), "and")
    return f"there is nothing to choose between: each task has one loss alone, {only} ({'; '.join(told)})."


def _too_few_seeds(found: dict[str, Comparison[Variant]]) -> str:
    most = max((d.seeds for one in found.values() for d in one.differences.values()), default=0)
    return (
        f"It cannot be told: a verdict needs {FEWEST_SEEDS} seeds that losses have in common, and there "
        f"{'is' if most == 1 else 'are'} {most or 'none'}."
    )


def _observed(study: Study, found: dict[str, Comparison[Variant]]) -> str:
    task, one = next(iter(found.items()))
    if one.best is None:
        return ""
    other = f", and likewise below for {counted(len(found) - 1, 'other task')}" if len(found) > 1 else ""
    best = f"{one.best.label} has the best {study.metric(task).label}, {_value(study, task, one.best)}"
    return f"Merely observed on {task}: {best}{other}."


def _which(study: Study, found: dict[str, Comparison[Variant]]) -> str:
    best = {task: may_be_best(one) for task, one in found.items()}
    if len(found) == 1:
        return _which_on_one(study, *next(iter(found.items())))
    counts = Counter(variant for kept in best.values() for variant in kept)
    planned = {v: sum(v in one.keys for one in found.values()) for v in counts}
    everywhere = [v for v in study.variants if counts[v] == len(found)]
    if everywhere and len(everywhere) == len({v for one in found.values() for v in one.keys}):
        return f"Any: on none of {counted(len(found), 'task')} is a loss better than another one {NOISE}."
    if everywhere:
        return (
            f"Use {named(everywhere)}: on all {len(found)} tasks no loss is better than "
            f"{'this one' if len(everywhere) == 1 else 'these'} {NOISE}."
        )
    order = sorted(counts, key=lambda v: (-counts[v], study.variants.index(v)))
    told = [f"{v.label} on {counts[v]} of {planned[v]}" for v in order[:MOST_NAMED]]
    return (
        f"It depends on the task: no loss may be the best on all {len(found)}; without a better one {NOISE} is "
        f"{', '.join(told)}."
    )


def _which_on_one(study: Study, task: str, one: Comparison[Variant]) -> str:
    kept = may_be_best(one)
    first = f"{kept[0].label} has the best {study.metric(task).label}, {_value(study, task, kept[0])}"
    if len(kept) == 1:
        return f"Use {kept[0].label}: {first}, better than every other loss {NOISE}."
    if len(kept) == len(one.keys):
        return f"Any: {first}, and no other loss can be told from it."
    return f"Use {named(kept)}: {first}, and {'it' if len(kept) == 2 else 'these'} cannot be told from it.".replace(
        "and it cannot", f"and {kept[1].label} cannot"
    )


def _avoid(study: Study, found: dict[str, Comparison[Variant]], planned: int) -> str:
    worse: dict[Variant, list[str]] = {}
    for task, one in found.items():
        for variant in one.keys:
            if standing(one, variant) == "worse":
                worse.setdefault(variant, []).append(task)
    undecided = [task for task, one in found.items() if all(standing(one, v) != "worse" for v in one.keys)]
    parts = []
    if worse:
        order = sorted(worse, key=lambda v: (-len(worse[v]), study.variants.index(v)))
        told = [_worse(study, found, variant, worse[variant]) for variant in order[:MOST_NAMED]]
        more = f" and {len(order) - MOST_NAMED} more" if len(order) > MOST_NAMED else ""
        parts.append(f"Worse than another loss {NOISE}: {', '.join(told)}{more}")
    else:
        parts.append(f"No loss is worse than another one {NOISE}")
    if worse and undecided:
        where = ", ".join(undecided) if len(undecided) <= MOST_NAMED else f"{len(undecided)} tasks"
        parts.append(f"nothing is resolved on {where}")
    if planned > len(found):
        parts.append(f"{counted(planned - len(found), 'task')} without a result, or with none better than guessing")
    return "; ".join(parts) + "."


def _worse(study: Study, found: dict[str, Comparison[Variant]], variant: Variant, tasks: list[str]) -> str:
    """Return a loss with the number of tasks, or with the interval of its difference where there is one task."""
    if len(found) > 1:
        planned = sum(variant in one.keys for one in found.values())
        return f"{variant.label} on {len(tasks)} of {planned} tasks"
    one, metric = found[tasks[0]], study.metric(tasks[0])
    other = one.best if one.best in one.better_than(variant) else one.better_than(variant)[0]
    mean, bounds = in_figures(one.difference(variant, other), metric)
    than = "" if other == one.best else f" than {other.label}"
    return f"{variant.label}{than} by {mean} {bounds}{' points' if metric.percent else ''}"


def _sure(study: Study, found: dict[str, Comparison[Variant]]) -> str:
    """Return how many seeds there are, how wide the widest interval among the best is, and what a step costs."""
    seeds = sorted({len(study.sample(task, v).by_seed) for task, one in found.items() for v in one.keys})
    span = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    span += " seed" if seeds[-1] == 1 else " seeds"
    parts = [f"How sure: {span} a loss and 95 % intervals that hold together within a task"]
    if widest := _widest(study, found):
        parts.append(widest)
    if cost := _cost(study, found):
        parts.append(cost[0].lower() + cost[1:].removesuffix("."))
    return "; ".join(parts) + "."


def _widest(study: Study, found: dict[str, Comparison[Variant]]) -> str:
    pairs = [
        (high - low, task, a, b)
        for task, one in found.items()
        for (a, b), difference in one.differences.items()
        for low, high in [difference.interval]
        if math.isfinite(high - low) and {a, b} <= set(may_be_best(one)) and study.metric(task).percent
    ]
    if not pairs:
        return ""
    _, task, a, b = max(pairs, key=lambda pair: pair[0])
    _, bounds = in_figures(found[task].difference(a, b), study.metric(task))
    on = f" on {task}" if len(found) > 1 else ""
    return f"the widest one between losses that may be the best is {bounds} points ({a.label} less {b.label}{on})"


def _cost(study: Study, found: dict[str, Comparison[Variant]]) -> str:
    """Return how much longer a step is at least with the slowest loss than with the quickest one; "" if unknown."""
    ratios: dict[tuple[Variant, Variant], list[float]] = {}
    steps: list[float] = []
    for task, one in found.items():
        times = {v: t for v in one.keys if math.isfinite(t := _step(study, task, v))}
        if len(times) > 1:
            quick, slow = min(times, key=lambda v: times[v]), max(times, key=lambda v: times[v])
            ratios.setdefault((slow, quick), []).append(times[slow] / times[quick])
        steps += times.values()
    if not steps:
        return ""
    if not ratios:
        return f"A training step takes {seconds(pd.Series(steps).median())}."
    (slow, quick), most = max(ratios.items(), key=lambda item: max(item[1]))
    busy = study.results.costs.get("busy", pd.Series(dtype=float))
    unsure = ", uncertain since the machine was busy" if (busy > BUSY).any() else ""
    return (
        f"A training step takes at most {three_digits(max(most))} times as long with one loss as with another "
        f"({slow.label} beside {quick.label}{unsure})."
    )


def _step(study: Study, task: str, variant: Variant) -> float:
    group = study.group(task, variant)
    costs = study.results.costs.reindex(group.index[group["status"] == "done"])
    # The least is less disturbed by what else a machine does than the median; older cells have the latter alone.
    known = [
        name for name in ("step_seconds_min", "step_seconds") if name in costs.columns and costs[name].notna().any()
    ]
    return float(costs[known[0]].min()) if known else math.nan
