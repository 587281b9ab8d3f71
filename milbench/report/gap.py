"""How far from guessing to the oracle each loss gets."""

from __future__ import annotations

from milbench.api.metric_info import Metric
from milbench.api.supervision import ORACLE_SUPERVISION
from milbench.report.formatting import NOTHING, interval, measured, number, with_unit
from milbench.report.statistics import RULES, paired_ratio
from milbench.report.study import Row, Sample, Study
from milbench.report.tables import Entry, Table, by_supervision, group_anchor, lacking, value_entry

_SHARE = Metric(
    "share of the gap closed",
    "(value of guessing - mean) / (value of guessing - mean of the oracle), both means over the common seeds.",
    lower_is_better=False,
)


def gap_table(study: Study, task: str) -> Table | None:
    """Return each row's share of the way from guessing to the oracle; None where one of the two ends is not known.

    The oracle is the best row of position supervision under the rule that counts.
    """
    chance = _chance(study, task)
    oracle = study.ranking(task, ORACLE_SUPERVISION).best
    if chance is None or oracle is None:
        return None
    metric, best = study.metric(task), study.sample(task, oracle)
    sign = 1 if metric.lower_is_better else -1
    if sign * (chance - best.mean) <= 0:
        return None  # an oracle that is no better than guessing is no end to measure by
    lines = {
        row: [
            Entry(row.label),
            value_entry(study, task, row, study.sample(task, row)),
            _share(study, task, row, oracle, chance),
        ]
        for row in study.rows_of(task)
    }
    ends = (
        with_unit(number(chance, 1 if metric.percent else 3, metric), metric),
        with_unit(measured(best.mean, best.spread, metric), metric),
    )
    note = (
        f"0 %: guessing, {metric.label} {ends[0]}. 100 %: the oracle, {oracle.label}, {ends[1]}, which is given where "
        f"each class is. Means over the seeds that a row and the oracle both have, {RULES[study.rule(task)]}, with the "
        "bootstrap 95 % interval of their ratio over these seeds (too narrow for a few, like the others here)."
    )
    title = "How far from guessing to the oracle"
    return Table(title, ["loss", metric.heading, _SHARE.heading], by_supervision(lines), [note])


def _chance(study: Study, task: str) -> float | None:
    """Return what guessing gives; a variant of a task is known by the task's own name."""
    names = study.cells.loc[study.cells["task_label"] == task, "task"]
    return study.results.chance.get(str(names.iloc[0]))


def _share(study: Study, task: str, row: Row, oracle: Row, chance: float) -> Entry:
    if row == oracle:
        return Entry("100", "the oracle")
    sample, best = study.sample(task, row), study.sample(task, oracle)
    ratio = paired_ratio(chance - sample.by_seed, chance - best.by_seed)
    common = Sample(sample.by_seed[sample.by_seed.index.isin(best.by_seed.index)], sample.planned, sample.problems)
    anchor, warning = group_anchor(study, task, row), lacking(common, reasons=False)
    if not ratio.seeds:
        return Entry(NOTHING, "no common seed", anchor=anchor)
    # The digits that the interval makes meaningful, as elsewhere those of the spread.
    half = round((ratio.interval[1] - ratio.interval[0]) / 2, 9)
    text = measured(ratio.value, half, _SHARE).partition(" ")[0]
    detail = f"n={ratio.seeds}"
    if ratio.seeds > 1:
        detail = f"{interval(ratio.interval, ratio.value, half, _SHARE)} {detail}"
    return Entry(text, detail, warning, anchor=anchor)
