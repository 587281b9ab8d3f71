"""The share of the gap from guessing to the oracle that each loss closes."""

from __future__ import annotations

import math

from milbench.api.metric_info import Metric
from milbench.api.supervision import ORACLE_SUPERVISION
from milbench.report.formatting import NOTHING, interval, measured, number, with_unit
from milbench.report.statistics import RULES, paired_ratio
from milbench.report.study import Sample, Study, Variant
from milbench.report.tables import Entry, Table, by_supervision, group_anchor, lacking, value_entry

_SHARE = Metric(
    "share of the gap closed",
    "(value of guessing - mean) / (value of guessing - mean of the oracle), both means over the common seeds.",
    lower_is_better=False,
)


def gap_table(study: Study, task: str) -> Table | None:
    """Return each variant's share of the gap from guessing to the oracle; None where one of the two ends is not known.

    The oracle is the best variant with position supervision under the rule of the comparison.
    """
    chance = study.chance(task)
    oracle = study.comparison(task, ORACLE_SUPERVISION).best
    if chance is None or oracle is None:
        return None
    metric, best = study.metric(task), study.sample(task, oracle)
    sign = 1 if metric.lower_is_better else -1
    if sign * (chance - best.mean) <= 0:
        return None  # an oracle that is no better than guessing cannot be an end of the gap
    lines = {
        variant: [
            Entry(variant.label),
            value_entry(study, task, variant, study.sample(task, variant)),
            _share(study, task, variant, oracle, chance),
        ]
        for variant in study.variants_of(task)
    }
    ends = (
        with_unit(number(chance, 1 if metric.percent else 3, metric), metric),
        with_unit(measured(best.mean, best.spread, metric), metric),
    )
    note = (
        f"0 %: guessing, {metric.label} {ends[0]}. 100 %: the oracle, {oracle.label}, {ends[1]}, trained with the "
        f"position of each class. Means over the seeds that a loss and the oracle share, {RULES[study.rule(task)]}, "
        "with Fieller's 95 % interval of their ratio over training seeds, corrected where seeds split the same data; "
        "none for fewer than three, nor where the gap itself may be zero."
    )
    title = "How far from guessing to the oracle"
    return Table(title, ["loss", metric.heading, _SHARE.heading], by_supervision(lines), [note])


def _share(study: Study, task: str, variant: Variant, oracle: Variant, chance: float) -> Entry:
    if variant == oracle:
        return Entry("100", "the oracle")
    sample, best = study.sample(task, variant), study.sample(task, oracle)
    ratio = paired_ratio(chance - sample.by_seed, chance - best.by_seed, overlap=study.overlap(task))
    common = Sample(sample.by_seed[sample.by_seed.index.isin(best.by_seed.index)], sample.planned, sample.problems)
    anchor, warning = group_anchor(study, task, variant), lacking(common, reasons=False)
    if not ratio.seeds:
        return Entry(NOTHING, "no common seed", anchor=anchor)
    # As many digits as the interval makes meaningful; elsewhere the spread decides.
    half = round((ratio.interval[1] - ratio.interval[0]) / 2, 9)
    text = measured(ratio.value, half, _SHARE).partition(" ")[0]
    detail = f"n={ratio.seeds}"
    if not math.isnan(half):
        detail = f"{interval(ratio.interval, ratio.value, half, _SHARE)} {detail}"
    return Entry(text, detail, warning, anchor=anchor)
