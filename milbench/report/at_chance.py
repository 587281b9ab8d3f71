"""Tasks on which no loss can be told from guessing: a best mean among these is luck."""

from __future__ import annotations

import math

from milbench.report.formatting import number, with_unit
from milbench.report.statistics import FEWEST_SEEDS
from milbench.report.study import Study, Variant

NEAR = 0.05
"""With fewer than three seeds a mean counts as guessing within this share of it."""


def all_at_chance(study: Study, task: str, kind: str) -> bool:
    """Return whether no loss with one kind of supervision is shown to be better than guessing, where that is known.

    Args:
        study: the cells of a comparison and their results.
        task: the label of the task.
        kind: the kind of supervision.
    """
    chance, variants = study.chance(task), study.variants_of(task, kind)
    if chance is None or not any(len(study.sample(task, v).by_seed) for v in variants):
        return False
    return not any(_is_better(study, task, variant, chance) for variant in variants)


def chance_note(study: Study, task: str) -> str:
    """Return in a sentence with which supervision no loss can be told from guessing; "" for none."""
    chance, metric = study.chance(task), study.metric(task)
    kinds = [kind for kind in study.supervisions_of(task) if all_at_chance(study, task, kind)]
    if chance is None or not kinds:
        return ""
    of = "" if len(study.supervisions_of(task)) == 1 else f" with {' and '.join(kinds)} supervision"
    guess = with_unit(number(chance, 1 if metric.percent else 3, metric), metric)
    return f"{task}: no loss{of} can be told from guessing, which gives {guess}, so that none is set in bold."


def _is_better(study: Study, task: str, variant: Variant, chance: float) -> bool:
    sample, sign = study.sample(task, variant), 1 if study.metric(task).lower_is_better else -1
    values = sample.by_seed
    if not len(values):
        return False
    if len(values) < FEWEST_SEEDS:
        return sign * (chance - sample.mean) > NEAR * abs(chance)
    low, high = sample.student
    edge = high if sign > 0 else low
    # Seeds that all give the same have no interval of any width; their mean then decides.
    return sign * (chance - (edge if math.isfinite(edge) else sample.mean)) > 0
