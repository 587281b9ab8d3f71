"""Seeds of one loss that fall into two groups, which a mean with a standard deviation does not show."""

from __future__ import annotations

import math

from milbench.api.metric_info import Metric, describe
from milbench.report.formatting import counted, decimals, number, with_unit
from milbench.report.statistics.groups import FEWEST_TO_SPLIT, GAP, two_groups
from milbench.report.statistics.sampling import Floats
from milbench.report.study import Study, Variant

LEAST_POINTS = 5
"""Groups of a metric in per cent are more than so many points apart: smaller gaps change no conclusion."""
RULE = (
    f"Two groups: of {FEWEST_TO_SPLIT} seeds or more, the widest gap between neighbouring values is more than {GAP:g} "
    f"times as wide as the wider of the groups that it leaves, and in per cent wider than {LEAST_POINTS} points and "
    f"{GAP:g} standard errors of a share of the test bags. The mean then describes no seed. Normal values "
    "show two groups by chance in 3.2 % of samples of 5, and 0.9 % of 6."
)


def groups_of(study: Study, task: str, variant: Variant, name: str) -> str:
    """Return the two groups of the seeds of a variant in words, such as "8 seeds at 48 to 50 %, 2 at 88 to 90 %".

    Args:
        study: the results.
        task: the label of the task.
        variant: the variant.
        name: the metric without the split.

    Returns:
        The words, "" for one group, and where guessing is known, to which values are then compared instead.
    """
    if name == study.primary(task) and study.chance(task) is not None:
        return ""
    metric, values = describe(name), study.sample(task, variant, name).by_seed
    items = min((len(found.sums) for found in study.outcomes(task, variant, name).values()), default=0)
    found = two_groups(values.to_numpy(float), least_gap(items) if metric.percent else 0.0)
    if found is None:
        return ""
    low, high = found
    return f"{counted(len(low), 'seed')} at {_range(low, metric)}, {len(high)} at {_range(high, metric)}"


def least_gap(items: int) -> float:
    """Return how far groups of shares are apart at least, where each is of `items` test bags; 0: of an unknown number.

    Small folds have few possible errors, and by chance all but one of them may have the same.

    Examples:
        >>> least_gap(4000), round(least_gap(12), 2)
        (0.05, 0.58)
    """
    return max(LEAST_POINTS / 100, GAP * math.sqrt(0.25 / items) if items else 0.0)


def split_groups(study: Study, task: str, variants: list[Variant], name: str) -> str:
    """Return in words which variants have seeds in two groups by a metric, and which groups; "" for none.

    Args:
        study: the cells of a comparison and their results.
        task: the label of the task.
        variants: the losses to look at.
        name: of the metric.
    """
    found = {variant.label: groups_of(study, task, variant, name) for variant in variants}
    parts = [f"{label} ({groups})" for label, groups in found.items() if groups]
    return f"seeds in two groups, which the mean hides: {', '.join(parts)}" if parts else ""


def _range(values: Floats, metric: Metric) -> str:
    low, high = float(values.min()), float(values.max())
    digits = decimals(low, (high - low) / 2, metric)
    ends = dict.fromkeys(number(value, digits, metric) for value in (low, high))
    return with_unit(" to ".join(ends), metric)
