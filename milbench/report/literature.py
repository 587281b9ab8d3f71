"""Figures of other methods from the literature and the results here, in one table a task, with both intervals."""

from __future__ import annotations

import math

from milbench.api.metric_info import describe
from milbench.api.published import Published
from milbench.report.formatting import NOTHING, interval, measured
from milbench.report.statistics import FEWEST_SEEDS, student_interval
from milbench.report.study import Study, Variant
from milbench.report.tables import Entry, Table, group_anchor, lacking

_LEGEND = (
    "Best first; the order is no verdict. The figures of the literature were measured with other networks, splits and "
    "searches, and no test compares them with those here. ±: as the source prints it; here the standard deviation over "
    "seeds. Student's interval takes seeds as independent; the corrected one (Nadeau and Bengio, 2003) knows that "
    "splits share data, and is the one that the rest of this page uses."
)


def literature_table(study: Study) -> Table | None:
    """Return the published values of other methods among our means, task by task; None where none are named."""
    facts = {task: study.published_methods(task) for task in study.tasks}
    sources = list(dict.fromkeys(_source(fact) for found in facts.values() for fact in found))
    groups = []
    for task, found in facts.items():
        for name in dict.fromkeys(fact.metric for fact in found):
            metric = describe(name)
            lines = [(f.value, _theirs(f, f"[{sources.index(_source(f)) + 1}]")) for f in found if f.metric == name]
            lines += [(study.sample(task, v, name).mean, _ours(study, task, v, name)) for v in study.variants_of(task)]
            known = sorted((one for one in lines if not math.isnan(one[0])), key=lambda one: one[0])
            ordered = [line for _, line in (known if metric.lower_is_better else reversed(known))]
            lost = [line for value, line in lines if math.isnan(value)]
            groups.append((f"{task}: {metric.heading}", [*ordered, *lost]))
    if not groups:
        return None
    notes = [_LEGEND, *(f"[{i}] {source}" for i, source in enumerate(sources, start=1))]
    columns = ["", "mean", "Student's 95 % interval", "corrected", "seeds"]
    return Table("Beside the literature", columns, groups, notes)


def _source(fact: Published) -> str:
    return ". ".join(part.rstrip(".") for part in (fact.source, fact.note) if part) + "."


def _theirs(fact: Published, mark: str) -> list[Entry]:
    metric = describe(fact.metric)
    value = measured(fact.value, float("nan") if fact.spread is None else fact.spread, metric)
    return [Entry(fact.method, "published"), Entry(value, mark=mark), *[Entry(NOTHING)] * 3]


def _ours(study: Study, task: str, variant: Variant, name: str) -> list[Entry]:
    sample, metric = study.sample(task, variant, name), describe(name)
    values = sample.by_seed.to_numpy()
    anchor, warning = group_anchor(study, task, variant), lacking(sample)
    if not len(values):
        return [Entry(variant.label), Entry(NOTHING, "", warning, anchor=anchor), *[Entry(NOTHING)] * 3]

    def bounds(overlap: float) -> Entry:
        if len(values) < FEWEST_SEEDS:
            return Entry(NOTHING)
        return Entry(interval(student_interval(values, overlap=overlap), sample.mean, sample.spread, metric))

    corrected = bounds(sample.overlap) if sample.overlap else Entry(NOTHING)
    mean = Entry(measured(sample.mean, sample.spread, metric), "", warning, anchor=anchor)
    return [Entry(variant.label), mean, bounds(0.0), corrected, Entry(str(len(values)))]
