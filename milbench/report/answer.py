"""The answer of a report in three sentences: which loss is best, which are worse, how sure that is, what it costs."""

from __future__ import annotations

import math
from collections import Counter
from statistics import median

import pandas as pd

from milbench.report.at_chance import all_at_chance
from milbench.report.formatting import MOST_NAMED, counted, listed, seconds, three_digits
from milbench.report.judged import Judged
from milbench.report.marks import passed_most
from milbench.report.statistics import FEWEST_SEEDS, PairwiseComparison
from milbench.report.study import Study, Variant
from milbench.report.tables import BUSY, kind_named
from milbench.report.tuning import nothing_planned
from milbench.report.verdicts import why_no_interval

_NONE_WORSE = "No loss is shown to be worse than another one"
MEANING = (
    "Shown to be better or worse: the 95 % interval of the difference lies on one side of zero. The intervals of one "
    "task hold together for all pairs of losses; those of several tasks do not hold together."
)
"""What the sentences mean by the words that they use."""


def answer(study: Study) -> list[str]:
    """Return which tests are passed where the spec has marks, and what follows from the intervals of all differences.

    `MEANING` explains the words of the latter. They speak of the kind of supervision with the most tasks, and of the
    metric that leads on each task.
    """
    kind = _most_frequent_kind(study) if study.variants else ""
    return [*filter(None, [passed_most(study, kind)]), *_of_differences(study)]


def _of_differences(study: Study) -> list[str]:
    """Return two or three sentences, or one where there is no result."""
    if not study.variants:
        return [nothing_planned(study)]
    kind = _most_frequent_kind(study)
    tasks = [task for task in study.tasks if kind in study.supervisions_of(task)]
    found = [Judged(study, task, study.comparison(task, kind)) for task in tasks]
    done = [one for one in found if one.comparison.best is not None]
    if not done:
        return ["No cell is done, so there is no answer yet."]
    several = len({variant.supervision for variant in study.variants}) > 1
    within = f"{kind_named(kind).partition(':')[0]}. " if several else ""
    judged = [one for one in done if one.losses and not all_at_chance(study, one.task, kind)]
    if not judged:
        return [f"{within}{_no_verdict(done, kind)}", _observed(done), *filter(None, [_cost(done)])]
    on = f" on {judged[0].task}" if len(study.tasks) > 1 else ""
    which = _which_on_one(judged[0], on) if len(judged) == 1 else _which(judged)
    return [f"{within}{which}", _avoid(judged, found, kind), _sure(judged)]


def _most_frequent_kind(study: Study) -> str:
    counts = Counter(kind for task in study.tasks for kind in study.supervisions_of(task))
    return next(v.supervision for v in study.variants if counts[v.supervision] == max(counts.values()))


def _no_verdict(done: list[Judged], kind: str) -> str:
    """Return why no loss is shown to be better than another one on any task."""
    guessing = [one.task for one in done if all_at_chance(one.study, one.task, kind)]
    told = [one.comparison for one in done if one.task not in guessing]
    if not told:
        return "No loss can be told from guessing on any task."
    others = f"; no loss can be told from guessing on {listed(guessing)}" if guessing else ""
    return f"{_why_none_is_better(told)}{others}."


def _why_none_is_better(found: list[PairwiseComparison[Variant]]) -> str:
    """Return why no loss is shown to be better than another one in any of these comparisons."""
    if all(len(comparison.keys) == 1 for comparison in found):
        return "There is nothing to choose between: only one loss has results on each task"
    pairs = [(comparison.tells_apart(*pair), d) for comparison in found for pair, d in comparison.differences.items()]
    if not any(is_told for is_told, _ in pairs):
        return "It cannot be told: nearly all label sets are wrong with every loss, so that set errors rank nothing"
    most = max(difference.seeds for _, difference in pairs)
    if most < FEWEST_SEEDS:
        there = f"there {'is' if most == 1 else 'are'} {most or 'none'}"
        return f"It cannot be told: a verdict needs {FEWEST_SEEDS} seeds that two losses have in common, and {there}"
    reasons = dict.fromkeys(why_no_interval(difference) for is_told, difference in pairs if is_told)
    return f"It cannot be told: results are {listed([*filter(None, reasons)])}"


def _observed(done: list[Judged]) -> str:
    one = done[0]
    best = one.best_mean
    others = f" (and {counted(len(done) - 1, 'other task')} below)" if len(done) > 1 else ""
    metric = one.study.metric(one.task).label
    return f"Merely observed on {one.task}{others}: {best.label} has the best mean {metric}, {one.value(best)}."


def _which_on_one(one: Judged, on: str) -> str:
    if not one.unbeaten:
        return f"It cannot be told{on}: every loss is shown to be worse than another one."
    first, *others = one.unbeaten
    metric = one.study.metric(one.task).label
    best = f"{first.label} has the best mean {metric}{on}, {one.value(first)}"
    if not others and all(one.comparison.verdict(first, v) == "better" for v in one.losses if v != first):
        every = "every loss that it can be compared with" if one.left_out else "every other loss"
        return f"Use {first.label}: it is shown to be better than {every} by {metric}{on}, {one.value(first)}."
    if not others:
        return f"{best}, and no loss is shown to be better than it."
    told = listed([f"{v.label} ({one.mean(v)})" for v in others])
    if len(one.unbeaten) == len(one.losses):
        return f"The choice is open: {best}, and no other loss is shown to be worse: {told}."
    return f"{best}; not shown to be worse: {told}."


def _which(judged: list[Judged]) -> str:
    study = judged[0].study
    by = f"By {listed(list(dict.fromkeys(study.metric(one.task).label for one in judged)))}"
    data = len({study.data(one.task) for one in judged})
    tasks = f"{len(judged)} tasks" + (f" (on {counted(data, 'data set')})" if data < len(judged) else "")
    everyone = {v for one in judged for v in one.losses}
    everywhere = [v for v in study.variants if all(v in one.unbeaten for one in judged)]
    small = f"{by[0].lower()}{by[1:]}"
    if everyone and all(not one.worse for one in judged):
        return f"The choice is open: {small}, no loss is shown to be better than another one on any of {tasks}."
    if everywhere:
        names = listed([v.label for v in everywhere], "or")
        return f"{by}, no loss is shown to be better than {names} on any of {tasks}; {_best_means(judged)}."
    lost = {v: (sum(v in one.worse for one in judged), sum(v in one.losses for one in judged)) for v in everyone}
    order = sorted(lost, key=lambda v: (lost[v][0] - lost[v][1], study.variants.index(v)))
    told = [f"{v.label} (not shown to be worse on {lost[v][1] - lost[v][0]} of {lost[v][1]})" for v in order]
    return f"It depends on the task: {small}, no loss holds its own on all {tasks}; most often {listed(told)}."


def _best_means(judged: list[Judged]) -> str:
    """Return which losses have the best means: not being shown to be worse may come from wide intervals."""
    best = [(one.best_mean.label, one.task) for one in judged]
    if len(best) <= MOST_NAMED:
        return f"best means: {listed([f'{label} on {task}' for label, task in best])}"
    counts = Counter(label for label, _ in best).most_common()
    return f"best means: {listed([f'{label} on {n} of {len(best)}' for label, n in counts])}"


def _avoid(judged: list[Judged], found: list[Judged], kind: str) -> str:
    study = judged[0].study
    worse = Counter(v for one in judged for v in one.worse)
    order = sorted(worse, key=lambda v: (-worse[v], study.variants.index(v)))
    if len(judged) == 1:
        told = [_worse_on_one(judged[0], v) for v in order]
    else:
        planned = Counter(v for one in judged for v in one.losses)
        told = [f"{v.label} on {worse[v]} of {counted(planned[v], 'task')}" for v in order]
    parts = [f"Shown to be worse than another loss: {listed(told)}"] if told else [_NONE_WORSE]
    if told and (open_ := [one.task for one in judged if not one.worse]):
        parts.append(f"nothing is resolved on {listed(open_)}")
    if guessing := [one.task for one in found if all_at_chance(study, one.task, kind)]:
        parts.append(f"no loss can be told from guessing on {listed(guessing)}")
    if silent := [one.task for one in found if one not in judged and one.task not in guessing]:
        parts.append(f"no verdict on {listed(silent)}")
    lacking = [f"{v.label} on {one.task}" for one in judged for v in one.left_out]
    if lacking:
        parts.append(f"too few results to compare: {listed(lacking)}")
    return "; ".join(parts) + "."


def _worse_on_one(one: Judged, variant: Variant) -> str:
    better = one.comparison.better_than(variant)
    other = one.unbeaten[0] if one.unbeaten and one.unbeaten[0] in better else better[0]
    return f"{variant.label} (minus {other.label}: {one.difference(variant, other)})"


def _sure(judged: list[Judged]) -> str:
    """Return how many seeds there are, how wide the widest interval among the best is, and what a step costs."""
    study = judged[0].study
    seeds = sorted({len(study.sample(one.task, v).by_seed) for one in judged for v in one.losses})
    span = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    noun = "folds" if all(study.folds(one.task) for one in judged) else "seeds"
    parts = [f"How sure: {span} {noun} a loss"]
    if widest := _widest(judged):
        parts.append(widest)
    if cost := _cost(judged):
        parts.append(f"{cost[0].lower()}{cost[1:].removesuffix('.')}")
    return "; ".join(parts) + "."


def _widest(judged: list[Judged]) -> str:
    """Return the widest interval between two losses that are not shown to be worse than any, in per cent."""
    pairs = [
        (difference.interval[1] - difference.interval[0], one, pair)
        for one in judged
        if one.study.metric(one.task).percent
        for pair, difference in one.comparison.differences.items()
        if {*pair} <= {*one.unbeaten} and math.isfinite(difference.interval[0])
    ]
    if not pairs:
        return ""
    _, one, (a, b) = max(pairs, key=lambda found: found[0])
    on = f" on {one.task}" if len(judged) > 1 else ""
    low, high = one.comparison.difference(a, b).interval
    if low <= -1 and high >= 1:  # points that an error cannot have
        return f"nothing is known of {a.label} minus {b.label}{on}, which no other loss is shown to beat"
    pair = f"{a.label} minus {b.label}{on}: {one.difference(a, b)}"
    return f"of two losses that no other one is shown to beat, the least is known of {pair}"


def _cost(judged: list[Judged]) -> str:
    """Return how much longer a step is with the slowest loss than with the quickest one, by least times."""
    study = judged[0].study
    times = [[t for v in one.comparison.keys if math.isfinite(t := _step(study, one.task, v))] for one in judged]
    ratios = [max(of_task) / min(of_task) for of_task in times if len(of_task) > 1]
    if not ratios:
        steps = [t for of_task in times for t in of_task]
        return f"A training step takes {seconds(median(steps))}." if steps else ""
    busy = study.results.costs.get("busy", pd.Series(dtype=float))
    unsure = ", uncertain since the machine was busy" if (busy > BUSY).any() else ""
    over = " (median over tasks)" if len(ratios) > 1 else ""
    return (
        f"By least times a training step takes {three_digits(median(ratios))} times as long with the slowest loss as "
        f"with the quickest{over}{unsure}."
    )


def _step(study: Study, task: str, variant: Variant) -> float:
    group = study.group(task, variant)
    costs = study.results.costs.reindex(columns=[study.step_cost(task)])
    return float(costs.reindex(group.index[group["status"] == "done"]).min().item())
