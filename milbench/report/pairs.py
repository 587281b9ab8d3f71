"""The differences between losses: their table, their numbers, and what follows from them in sentences."""

from __future__ import annotations

import itertools

import pandas as pd

from milbench.api.folds import Folds
from milbench.api.metric_info import Metric, describe
from milbench.report.formatting import NOTHING, counted, decimals, interval, measured, number, with_unit
from milbench.report.seed_groups import split_groups
from milbench.report.statistics import Difference, PairwiseComparison
from milbench.report.study import Study, Variant
from milbench.report.tables import Entry, Table, kind_named
from milbench.report.troubled_seeds import LEFT_OUT, left_out, stuck
from milbench.report.verdicts import (
    NOT_RANKED,
    Standing,
    best_of_most_seeds,
    margin_text,
    seeds_needed_words,
    standing,
    verdict_word,
    verdict_words,
    why_no_interval,
)
from milbench.report.wrong_sets import at_least, wrong_sets

MOST_IN_FULL = 8
"""Up to so many losses of one supervision all pairs are in the table; beyond, those with the best mean alone."""
_HOW = (
    "95 % intervals that hold together for all pairs under the same supervision, over training seeds and draws of the "
    "test bags, taken as independent; each difference is paired by seed and test bag. Verdict on the first loss beside "
    "the second: better or worse where the interval lies on one side of zero, unresolved otherwise: it may be better "
    "or worse. A loss that is worse than another one is not the best."
)
NEEDED = (
    "Seeds to resolve it: about how many seeds in all would take zero out of the interval if the true difference were "
    "the observed one, with the same variation and the same test bags. It is an approximation: the difference is not "
    "known well, or it would be resolved, and losses that do not differ get a number as well. Plan a new comparison by "
    "it: seeds that are added to this one until a difference is resolved void the 95 %."
)
ALONE = (
    "Test bags —: their outcomes were not kept for both losses, or the metric is no mean over bags. Such an interval "
    "covers training seeds alone, and holds for these test bags."
)


def pairs_table(study: Study, task: str, name: str | None = None) -> Table | None:
    """Return the differences in a metric between the losses of a task; None where there are no two.

    Args:
        study: the results.
        task: the label of the task.
        name: of the metric, without the split; None: the primary one.
    """
    name = name or study.primary(task)
    metric = describe(name)
    groups: list[tuple[str, list[list[Entry]]]] = []
    found = {kind: study.comparison(task, kind, name) for kind in study.supervisions_of(task)}
    for kind, comparison in found.items():
        lines = [difference_line(comparison, a, b, metric) for a, b in _shown(comparison)]
        if lines:
            groups.append((kind_named(kind), lines))
    if not groups:
        return None
    title = f"The differences between the losses: {metric.label}"
    return Table(title, difference_columns("difference", metric.percent), groups, _notes(study, task, name, found))


def difference_columns(first: str, points: bool) -> list[str]:
    """Return the heads of the columns of `difference_line`, the first of which is given."""
    mean = "mean (points)" if points else "mean"
    return [first, "common seeds", "test bags", mean, "95 % interval, simultaneous", "verdict", "seeds to resolve it"]


def pairs_frame(study: Study) -> pd.DataFrame:
    """Return all differences as numbers, a line a pair of losses of one task and supervision."""
    lines = []
    for task in study.tasks:
        for name, kind in itertools.product(study.compared(task), study.supervisions_of(task)):
            comparison = study.comparison(task, kind, name)
            for a, b in comparison.differences:
                found = comparison.difference(a, b)
                lines.append({
                    "task": task, "supervision": kind, "metric": name, "rule": study.rule(task),
                    "loss": a.loss, "recipe": a.recipe, "other_loss": b.loss, "other_recipe": b.recipe,
                    "seeds": found.seeds, "test_bags": found.items, "shared_test_bags": found.shared,
                    "difference": found.difference, "low": found.interval[0], "high": found.interval[1],
                    "verdict": verdict_word(comparison, a, b), "margin": comparison.margin,
                    "equivalent": comparison.equivalent(a, b), "seeds_needed": found.needed,
                })  # fmt: skip
    return pd.DataFrame(lines)


def findings(study: Study) -> list[tuple[str, str]]:
    """Return the result for each task, metric and kind of supervision in one sentence.

    Returns:
        Pairs of a heading, the task with the kind of supervision where there are several, and the sentence: the best
        mean, what is worse, and what is unresolved or equivalent.
    """
    return [pair for pairs in findings_by_task(study).values() for pair in pairs]


def findings_by_task(study: Study) -> dict[str, list[tuple[str, str]]]:
    """Return the pairs of `findings` by the label of their task."""
    sentences: dict[str, list[tuple[str, str]]] = {}
    for task in study.tasks:
        for name, supervision in itertools.product(study.compared(task), study.supervisions_of(task)):
            where = task if len(study.supervisions_of(task)) == 1 else f"{task}, {supervision} supervision"
            sentences.setdefault(task, []).append((where, _finding(study, task, supervision, name)))
    return sentences


def _finding(study: Study, task: str, supervision: str, name: str) -> str:
    found, metric = study.comparison(task, supervision, name), describe(name)
    if found.best is None:
        return "no cell is done, so there is nothing to compare."
    best, others = found.best, [key for key in found.keys if key != found.best]
    sample = study.sample(task, best, name)
    value = with_unit(measured(sample.mean, sample.spread, metric), metric)
    extreme = "lowest" if metric.lower_is_better else "highest"
    among = best_of_most_seeds(study, task, name, found)
    heading = f"{extreme} {metric.label}{' ' if among else ''}{among}"
    parts = [f"{heading}: {best.label} ({value}, {counted(len(sample.by_seed), 'seed')})"]
    if others and all(found.verdict(best, other) == "better" for other in others):
        parts[0] += ", better than every other loss"
    for kind, words in _STANDINGS.items():
        ranked = [other for other in others if found.tells_apart(best, other)]
        names = [_named(found, other, kind) for other in ranked if standing(found, other) == kind]
        if names:
            parts.append(f"{words.format(margin=margin_text(found, metric))}: {', '.join(names)}")
    parts.append(wrong_sets(study, task, list(found.keys), name))
    parts.append(stuck(study, task, list(found.keys), best, name))
    parts.append(split_groups(study, task, list(found.keys), name))
    if some := left_out(study, task, list(found.keys), name):
        parts.append(f"seeds left out: {', '.join(some)}")
    lost = [variant.label for variant in study.variants_of(task, supervision) if variant not in found.keys]
    if lost:
        parts.append(f"no result: {', '.join(lost)}")
    return "; ".join(filter(None, parts)) + "."


_STANDINGS: dict[Standing, str] = {
    "unresolved": "unresolved beside it",
    "equivalent": "equivalent to it within {margin}",
    "worse": "worse",
    "better": "better than it on the common seeds",
}


def _named(found: PairwiseComparison[Variant], other: Variant, kind: Standing) -> str:
    """Return a name with what would resolve it, or with the losses that it is worse than where the best is not one."""
    better = found.better_than(other)
    if kind == "unresolved" and found.best is not None:
        difference = found.difference(other, found.best)
        needed = seeds_needed_words(difference)
        needed += " would resolve a difference as large" if needed.endswith("seeds") else ""
        reasons = [why_no_interval(difference), needed]
        return f"{other.label} ({text})" if (text := "; ".join(filter(None, reasons))) else other.label
    if kind == "worse" and found.best not in better:
        return f"{other.label} (than {', '.join(key.label for key in better)})"
    return other.label


def _shown(found: PairwiseComparison[Variant]) -> list[tuple[Variant, Variant]]:
    """Return the pairs of the table, those with the best mean first and that one second in them."""
    if found.best is None:
        return []
    best, others = found.best, [key for key in found.keys if key != found.best]
    pairs = [(other, best) for other in others]
    if len(found.keys) <= MOST_IN_FULL:
        pairs += [pair for pair in found.differences if best not in pair]
    return pairs


def in_figures(difference: Difference, metric: Metric) -> tuple[str, str]:
    """Return a difference and its interval as text, in the unit of the metric."""
    low, high = difference.interval
    # A digit more than the width makes meaningful, and enough to see on which side of zero both bounds are.
    fine = min((high - low) / 20, abs(low), abs(high))
    digits = decimals(difference.difference, fine, metric)
    bounds = interval(difference.interval, difference.difference, fine, metric, signed=True)
    return number(difference.difference, digits, metric, signed=True), bounds


def difference_line(found: PairwiseComparison[Variant], a: Variant, b: Variant, metric: Metric) -> list[Entry]:
    """Return the line of a table with the difference of two variants, a less b.

    Args:
        found: the comparison.
        a: one variant.
        b: the other one.
        metric: by which they are compared.
    """
    difference = found.difference(a, b)
    mean, bounds = in_figures(difference, metric)
    verdict = verdict_words(found, a, b, metric)
    resolved = found.verdict(a, b) != "unresolved"
    return [
        Entry(f"{a.label} − {b.label}"),
        Entry(str(difference.seeds)),
        _items(difference),
        Entry(mean),
        Entry(bounds),
        Entry(verdict, why_no_interval(difference), strong=resolved),
        Entry(seeds_needed_words(difference) or NOTHING if verdict == "unresolved" else NOTHING),
    ]


def _of_folds(folds: Folds, overlap: float) -> str:
    return (
        f"Seeds are the folds of {folds.repeats} x {folds.count} cross-validation. Folds share training bags, which "
        f"intervals are corrected for: 1/n + {overlap:.3g} in place of 1/n, n folds (Nadeau and Bengio, 2003). "
        "They hold for other bags of the same source, and no more folds than these make them narrower."
    )


def _of_drawn(overlap: float) -> str:
    return (
        "Every seed splits the same data at random. Splits share data, which intervals are corrected for: 1/n + "
        f"{overlap:.3g} in place of 1/n, n seeds (Nadeau and Bengio, 2003). They hold for other data of the same "
        "source, and more seeds make them little narrower."
    )


def _items(difference: Difference) -> Entry:
    if not difference.items:
        return Entry(NOTHING)
    return Entry(f"{difference.items:,}", "shared by all seeds" if difference.shared else "of each seed")


def _notes(study: Study, task: str, name: str, found: dict[str, PairwiseComparison[Variant]]) -> list[str]:
    metric, notes = describe(name), [_HOW]
    if len(study.compared(task)) > 1 or len(study.tasks) > 1:
        notes.append("The intervals hold together for the pairs of one table, not for all tasks and metrics at once.")
    if margin := next((margin_text(one, metric) for one in found.values() if one.margin is not None), ""):
        notes.append(f"Equivalent within {margin}: the interval lies within that margin, which was given in advance.")
    if any(len(one.keys) > MOST_IN_FULL for one in found.values()):
        notes.append(f"Of more than {MOST_IN_FULL} losses, only differences from the best mean; all are in pairs.csv.")
    if any(not one.tells_apart(a, b) for one in found.values() for a, b in one.differences):
        notes.append(f"{NOT_RANKED.capitalize()}, by a set error of {at_least(study, task)}.")
    folds, overlap = study.folds(task), study.overlap(task)
    notes.append(_of_folds(folds, overlap) if folds else _of_drawn(overlap) if overlap else NEEDED)
    if left_out(study, task, [key for one in found.values() for key in one.keys], name):
        notes.append(LEFT_OUT)
    if any(not d.items and d.seeds for one in found.values() for d in one.differences.values()):
        notes.append(ALONE)
    return [*notes, *dict.fromkeys(study.problems)]
