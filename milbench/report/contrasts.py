"""The contrasts that a spec names: their tables, their numbers, and what follows from them in sentences."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import pandas as pd

from milbench.api.contrast import Contrast
from milbench.api.metric_info import describe
from milbench.report.formatting import NOTHING, counted
from milbench.report.pairs import ALONE, NEEDED, difference_columns, difference_line, in_figures
from milbench.report.statistics import LEVEL, PairwiseComparison
from milbench.report.study import Study, Variant
from milbench.report.tables import Entry, Table
from milbench.report.troubled_seeds import LEFT_OUT, left_out
from milbench.report.verdicts import margin_text, verdict_word, verdict_words

_HOW = (
    "A difference is the first variant less the second, paired by seed and test bag, with an interval over training "
    "seeds and draws of the test bags. Verdict on the first beside the second: better or worse where the interval lies "
    "on one side of zero, equivalent where it lies within a margin given in advance, unresolved otherwise."
)
_LAST = ["unresolved", "without a result"]


@dataclass(frozen=True, slots=True)
class Line:
    """A contrast on one task by one metric.

    Args:
        contrast: as the spec names it.
        task: the label of the task.
        metric: its name without the split.
        first: the variant from which the other is subtracted.
        second: that other one.
        found: the contrasts of this task and metric, compared, with the margin of this one.
    """

    contrast: Contrast
    task: str
    metric: str
    first: Variant
    second: Variant
    found: PairwiseComparison[Variant]

    @property
    def is_known(self) -> bool:
        """Whether both variants have results."""
        return (self.first, self.second) in self.found.differences


Family = list[Line]
"""Contrasts whose intervals hold together, ordered by contrast."""


def families(study: Study) -> list[Family]:
    """Return the contrasts in families; none where the spec names no contrasts.

    A family is all contrasts on all tasks by one metric: first by that which leads on each task, then by each further
    metric that losses are compared by. With T tasks the contrasts of each hold together with probability 0.95^(1/T),
    with a common level as for all pairs, so that those of independent tasks all hold with 0.95. Normal errors of tasks
    that are not independent, such as tasks on the same data, let all hold at least as often: the Gaussian correlation
    inequality (T. Royen, Far East Journal of Theoretical Statistics 48, 2014, pp. 139-145).
    """
    leading = [(task, study.primary(task)) for task in study.tasks]
    others = dict.fromkeys(name for task in study.tasks for name in study.compared(task)[1:])
    further = [[(task, name) for task in study.tasks if name in study.compared(task)[1:]] for name in others]
    return [found for places in (leading, *further) if (found := _family(study, places))]


def _family(study: Study, places: list[tuple[str, str]]) -> Family:
    planned = {task: asked for task, _ in places if (asked := _planned(study, task))}
    lines = []
    for task, metric in places:
        if task in planned:
            pairs = [(first, second) for _, first, second in planned[task]]
            found = study.compare_pairs(task, pairs, metric, LEVEL ** (1 / len(planned)))
            for contrast, first, second in planned[task]:
                margin = contrast.margin.get(metric, found.margin)
                lines.append(Line(contrast, task, metric, first, second, replace(found, margin=margin)))
    order = [contrast.name for contrast in study.results.contrasts]
    return sorted(lines, key=lambda line: order.index(line.contrast.name))


def _planned(study: Study, task: str) -> list[tuple[Contrast, Variant, Variant]]:
    """Return the contrasts of a task with their variants."""
    known = {(variant.loss, variant.recipe): variant for variant in study.variants_of(task)}
    return [
        (contrast, known[first], known[second])
        for contrast in study.results.contrasts
        if task in contrast.variants
        for first, second in [contrast.variants[task]]
        if first in known and second in known
    ]


def contrast_tables(study: Study, named: list[Family]) -> list[Table]:
    """Return a table for each family, with tasks down below the name of their contrast."""
    return [_table(study, family) for family in named]


def _table(study: Study, family: Family) -> Table:
    metrics = list(dict.fromkeys(line.metric for line in family))
    groups: dict[str, list[list[Entry]]] = {}
    for line in family:
        heading = f"{line.contrast.name}: {line.contrast.first} − {line.contrast.second}"
        groups.setdefault(heading, []).append(_entries(line, named=len(metrics) > 1))
    columns = difference_columns("task", all(describe(name).percent for name in metrics))
    labels = ", ".join(describe(name).label for name in metrics)
    return Table(f"What the comparison was made for: {labels}", columns, list(groups.items()), _notes(study, family))


def _entries(line: Line, named: bool) -> list[Entry]:
    metric = describe(line.metric)
    heading = Entry(line.task, metric.label if named else "")
    if not line.is_known:
        return [heading, *([Entry(NOTHING)] * 4), Entry("no result"), Entry(NOTHING)]
    return [heading, *difference_line(line.found, line.first, line.second, metric)[1:]]


def _notes(study: Study, family: Family) -> list[str]:
    tasks = list(dict.fromkeys(line.task for line in family))
    contrasts = list(dict.fromkeys(line.contrast.name for line in family))
    size = f"the {counted(len(contrasts), 'contrast')} of the spec on {counted(len(tasks), 'task')}, by one metric"
    rule = (
        f"{_HOW} The family is {size}: 95 % of such tables hold all their true differences. Other pairs and other "
        "metrics are no part of it."
    )
    if len(tasks) > 1:
        rule += (
            f" On each task the contrasts hold together with {LEVEL ** (1 / len(tasks)):.1%}: tasks are taken as "
            "independent, which is cautious where they share data."
        )
    notes = [_advance(study), rule]
    margins = {text: None for line in family if (text := margin_text(line.found, describe(line.metric)))}
    if margins:
        notes.append(f"Margins of equivalence, given in advance: {', '.join(margins)}.")
    if corrected := [f"{task}: 1/n + {study.overlap(task):.3g}" for task in tasks if study.overlap(task)]:
        notes.append(f"Corrected for the data that splits share (Nadeau and Bengio, 2003): {'; '.join(corrected)}.")
    if len(corrected) < len(tasks):
        notes.append(NEEDED)
    if any(left_out(study, line.task, [line.first, line.second], line.metric) for line in family):
        notes.append(LEFT_OUT)
    if any(not d.items and d.seeds for line in family for d in line.found.differences.values()):
        notes.append(ALONE)
    return [note for note in notes if note]


def _advance(study: Study) -> str:
    """Return in a sentence whether the contrasts were named before the cells began, as far as launches show it."""
    before, cells = study.results.before_contrasts, len(study.cells)
    if before is None:
        return ""
    if not before:
        return "The contrasts were in the plan of a launch before any of these cells began."
    return (
        f"By the record these contrasts were not named in advance: {before:,} of {cells:,} cells began before the "
        "first launch that had them in its plan, so that they may have been named after results were seen."
    )


def contrast_sentences(named: list[Family]) -> list[tuple[str, str]]:
    """Return for each contrast its name, and what came out by the leading metric, in one sentence."""
    of_contrast: dict[str, Family] = {}
    for line in named[0] if named else ():
        of_contrast.setdefault(line.contrast.name, []).append(line)
    return [(name, _sentence(lines)) for name, lines in of_contrast.items()]


def _sentence(lines: Family) -> str:
    by_verdict: dict[str, list[str]] = {}
    for line in lines:
        metric = describe(line.metric)
        words, shown = "without a result", line.task
        if line.is_known:
            difference = line.found.difference(line.first, line.second)
            words = verdict_words(line.found, line.first, line.second, metric)
            points = " points" if metric.percent else ""
            shown += f" ({' '.join(in_figures(difference, metric))}{points})"
        by_verdict.setdefault(words, []).append(shown)
    parts = [f"{words} on {', '.join(tasks)}" for words, tasks in sorted(by_verdict.items(), key=_resolved_first)]
    labels = " or ".join(dict.fromkeys(describe(line.metric).label for line in lines))
    return f"in {labels}, {lines[0].contrast.first} beside {lines[0].contrast.second} is {'; '.join(parts)}."


def _resolved_first(found: tuple[str, Iterable[str]]) -> int:
    return _LAST.index(found[0]) + 1 if found[0] in _LAST else 0


def contrast_frame(named: list[Family]) -> pd.DataFrame:
    """Return all contrasts as numbers, a line each; `family` numbers those whose intervals hold together."""
    lines = []
    for number, family in enumerate(named):
        for line in family:
            if not line.is_known:
                continue
            found = line.found.difference(line.first, line.second)
            lines.append({
                "family": number, "contrast": line.contrast.name, "task": line.task, "metric": line.metric,
                "loss": line.first.loss, "recipe": line.first.recipe,
                "other_loss": line.second.loss, "other_recipe": line.second.recipe,
                "seeds": found.seeds, "test_bags": found.items, "shared_test_bags": found.shared,
                "difference": found.difference, "low": found.interval[0], "high": found.interval[1],
                "verdict": verdict_word(line.found, line.first, line.second), "margin": line.found.margin,
                "equivalent": line.found.equivalent(line.first, line.second), "seeds_needed": found.needed,
            })  # fmt: skip
    return pd.DataFrame(lines)
