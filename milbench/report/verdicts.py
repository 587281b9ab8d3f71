"""What a comparison says in words, the same in tables, findings and figures."""

from __future__ import annotations

import math
from typing import Any, Literal

from milbench.api.metric_info import Metric
from milbench.report.statistics import FEWEST_SEEDS, Difference, PairwiseComparison
from milbench.report.statistics.comparison import Key
from milbench.report.statistics.differences import MOST_SEEDS
from milbench.report.study import Study, Variant

NOT_RANKED_WORD = "not ranked"
NOT_RANKED = f"{NOT_RANKED_WORD}: nearly all label sets are wrong with both"
Standing = Literal["best", "worse", "equivalent", "better", "unresolved"]
STANDINGS: dict[Standing, str] = {
    "best": "best mean", "worse": "worse", "equivalent": "equivalent", "better": "better on common seeds",
    "unresolved": "unresolved",
}  # fmt: skip
"""The words below a mean, by how it stands to the best mean."""


def standing(found: PairwiseComparison[Variant], variant: Variant) -> Standing:
    """Return how a variant stands to the one with the best mean, and thereby to the best.

    Returns:
        best: it has the best mean. equivalent: to that one, within the margin. worse: than some other one, so that it
        is not the best. better: than the best mean, on the seeds that both have. unresolved: all else; it may be the
        best.
    """
    if found.best is None or variant == found.best or variant not in found.keys:
        return "best" if variant == found.best else "unresolved"
    if found.equivalent(variant, found.best):
        return "equivalent"
    if found.better_than(variant):
        return "worse"
    return "better" if found.verdict(variant, found.best) == "better" else "unresolved"


def best_of_most_seeds(study: Study, task: str, name: str, found: PairwiseComparison[Variant]) -> str:
    """Return among which losses the best one of a comparison has the best mean, where one with fewer seeds is ahead.

    A mean that lacks the seeds that failed says little beside one that has them; "" where none such is ahead.

    Args:
        study: the cells of a comparison and their results.
        task: the label of the task.
        name: of the metric.
        found: the comparison of the losses by it.
    """
    if found.best is None:
        return ""
    sign = 1 if found.lower_is_better else -1
    best = study.sample(task, found.best, name)
    if not any(sign * study.sample(task, key, name).mean < sign * best.mean for key in found.keys):
        return ""
    return f"of the losses with {len(best.by_seed)} seeds"


def verdict_words(found: PairwiseComparison[Key], a: Key, b: Key, metric: Metric) -> str:
    """Return what a is beside b, such as "worse" or "equivalent within 1 point".

    Args:
        found: the comparison.
        a: one variant.
        b: the other one.
        metric: by which they are compared.
    """
    verdict = verdict_word(found, a, b)
    if verdict == NOT_RANKED_WORD:
        return NOT_RANKED
    if not found.equivalent(a, b):
        return verdict
    within = f"equivalent within {margin_text(found, metric)}"
    return within if verdict == "unresolved" else f"{verdict}, {within}"


def verdict_word(found: PairwiseComparison[Key], a: Key, b: Key) -> str:
    """Return what a is beside b as frames have it: better, worse, unresolved, or not ranked by the metric.

    Args:
        found: the comparison.
        a: one variant.
        b: the other one.
    """
    return found.verdict(a, b) if found.tells_apart(a, b) else NOT_RANKED_WORD


def margin_text(found: PairwiseComparison[Any], metric: Metric) -> str:
    """Return the margin with its unit, "" where none was given."""
    if found.margin is None:
        return ""
    if not metric.percent:
        return f"{found.margin:g}"
    points = f"{100 * found.margin:g}"
    return f"{points} point{'' if points == '1' else 's'}"


def seeds_needed_words(found: Difference) -> str:
    """Return about how many seeds in all would resolve a difference as large as this one.

    Examples:
        >>> seeds_needed_words(Difference(2, 0.1, (math.nan, math.nan), needed=9))
        'about 9 seeds'
        >>> seeds_needed_words(Difference(9, 0.001, (-0.01, 0.012), items=400, shared=True, needed=math.inf))
        'no number of seeds: the 400 test bags do not suffice'
    """
    if math.isnan(found.needed):
        return ""
    if found.needed <= MOST_SEEDS:
        return f"about {found.needed:.0f} seeds"
    if found.shared and found.difference != 0:
        return f"no number of seeds: the {found.items:,} test bags do not suffice"
    return f"more than {MOST_SEEDS:,} seeds"


def why_no_interval(found: Difference) -> str:
    """Return why a difference has no interval, "" where it has one.

    Examples:
        >>> why_no_interval(Difference(2, 0.1, (math.nan, math.nan)))
        '2 seeds'
    """
    if not math.isnan(found.interval[0]):
        return ""
    if found.seeds < FEWEST_SEEDS:
        return ("no common seed", "1 seed", "2 seeds")[found.seeds]
    return "the same with every seed, which does not show how much it varies"
