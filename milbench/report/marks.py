"""Which pass marks each loss reaches, and by how much: marks that the spec gave before anything was computed."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from milbench.api.marks import Mark
from milbench.api.metric_info import Metric, describe
from milbench.report.formatting import NOTHING, counted, decimals, interval, listed, number, with_unit
from milbench.report.study import Sample, Study, Variant
from milbench.report.tables import Entry, Table, by_supervision, group_anchor, lacking

MarkVerdict = Literal["pass", "unresolved", "fail", "no value"]
VERDICTS: tuple[MarkVerdict, ...] = ("pass", "unresolved", "fail", "no value")
SIGNS: dict[MarkVerdict, str] = {"pass": "✓", "unresolved": "?", "fail": "✗", "no value": "–"}
_TONES: dict[MarkVerdict, str] = {"pass": "good", "unresolved": "quiet", "fail": "bad", "no value": "quiet"}

LEGEND = (
    "A test asks for values of test metrics that the spec states, its marks. Numbers are the distance of the mean over "
    "seeds from the mark, in the unit of the metric (points of a percentage), with Student's 95 % interval over "
    "training seeds; minus: on the passing side. ✓ pass: the whole interval is there, and no planned seed lacks a "
    "value. ✗ fail: the whole interval is on the other side. ? unresolved: all else. – no value: no seed has one. "
    "Every interval holds by itself and for these test bags: the draw of the bags is not in it, it is a poor guide "
    "where seeds fall into groups, and of many verdicts near a mark some are wrong by chance."
)


@dataclass(frozen=True, slots=True)
class MarkResult:
    """One loss beside one mark.

    Args:
        verdict: whether it passes.
        distance: how far the mean is from the mark, negative on the passing side; nan without values.
        bounds: the interval of the distance, (nan, nan) where there is none.
        sample: the values by seed.
    """

    verdict: MarkVerdict
    distance: float
    bounds: tuple[float, float]
    sample: Sample


@dataclass(frozen=True, slots=True)
class StatedTest:
    """A mark on the task of a study.

    Args:
        task: the label of the task.
        mark: the mark.
        heading: the name of the test, with the task where several tasks share a mark.
    """

    task: str
    mark: Mark
    heading: str

    @property
    def metric(self) -> Metric:
        """The description of the metric of the mark."""
        return describe(self.mark.metric)

    @property
    def asked(self) -> str:
        """What the mark asks for, such as "at most 5 %"."""
        bound = number(self.mark.bound, _digits(self.mark.bound, self.metric), self.metric)
        return f"{'at most' if self.mark.at_most else 'at least'} {with_unit(bound, self.metric)}"


def tests_of(study: Study) -> list[StatedTest]:
    """Return every mark of the tasks of a study, in the order in which the spec states them."""
    found = [(task, mark) for task in study.tasks for mark in study.results.marks.get(task, ())]
    names = {(task, mark.name) for task, mark in found}
    tasks_of = Counter(name for _, name in names)
    return [
        StatedTest(task, mark, mark.name if tasks_of[mark.name] == 1 else f"{mark.name}, {task}")
        for task, mark in found
    ]


def judge(sample: Sample, mark: Mark) -> MarkResult:
    """Return whether a sample passes a mark, and by how much.

    Examples:
        >>> mark = Mark("easy", "task", {}, "set_error", bound=0.05)
        >>> judge(Sample(pd.Series([0.02, 0.03, 0.02]), planned=3), mark).verdict
        'pass'
        >>> judge(Sample(pd.Series([0.02, 0.03, 0.02]), planned=4), mark).verdict  # a seed lacks its value
        'unresolved'
    """
    sign = 1 if mark.at_most else -1
    low, high = sorted(sign * (bound - mark.bound) for bound in sample.student)
    distance = sign * (sample.mean - mark.bound)
    return MarkResult(_verdict(sample, low, high), distance, (low, high), sample)


def _verdict(sample: Sample, low: float, high: float) -> MarkVerdict:
    if not len(sample.by_seed):
        return "no value"
    if low > 0:
        return "fail"
    return "pass" if high <= 0 and len(sample.by_seed) == sample.planned else "unresolved"


def judged(study: Study, test: StatedTest, variant: Variant) -> MarkResult | None:
    """Return how a variant does on a test; None where it was not planned there.

    Args:
        study: the cells of a comparison and their results.
        test: the test of a task, with its mark.
        variant: the loss.
    """
    if not len(study.group(test.task, variant)):
        return None
    return judge(study.sample(test.task, variant, test.mark.metric), test.mark)


def marks_tables(study: Study) -> list[Table]:
    """Return how many tests each loss passes, a matrix of tests and losses for each metric, and what each test asks.

    Nothing where the comparison has no marks.
    """
    tests = tests_of(study)
    if not tests:
        return []
    return [_counts(study, tests), *(_matrix(study, some) for some in by_metric(tests).values()), _meaning(tests)]


def passed_most(study: Study, kind: str) -> str:
    """Return in a sentence which losses of a kind of supervision pass the most marks, and which pass none.

    Losses without all planned results, or with fewer marks than others, are not counted, and the sentence says how many
    they are. "" without marks, or where no loss has all results.
    """
    tests = tests_of(study)
    variants = [v for v in study.variants if v.supervision == kind and _verdicts(study, tests, v)]
    counts = {v: _verdicts(study, tests, v) for v in variants if _is_complete(study, tests, v)}
    if not counts:
        return ""
    most = max(count["pass"] for count in counts.values())
    said = f"Of {counted(len(tests), 'mark')}, "
    if most:
        first = [f"{v.label} ({_counted(count)})" for v, count in counts.items() if count["pass"] == most]
        said += f"the most are passed by {listed(first)}"
        none = [f"{v.label} ({_counted(count)})" for v, count in counts.items() if not count["pass"]]
        said += f"; none by {listed(none)}" if none else ""
    else:
        said += "no loss is shown to pass any"
    left = len(variants) - len(counts)
    return f"{said}; {counted(left, 'loss', 'losses')} without all results not counted." if left else f"{said}."


def _counted(count: Counter[MarkVerdict]) -> str:
    """Return how many marks are passed, unresolved and failed, of what occurs."""
    words: dict[MarkVerdict, str] = {"pass": "passed", "unresolved": "unresolved", "fail": "failed"}
    return ", ".join(f"{count[verdict]} {word}" for verdict, word in words.items() if count[verdict])


def _is_complete(study: Study, tests: list[StatedTest], variant: Variant) -> bool:
    """Return whether a variant has every planned value of every test."""
    found = [judged(study, test, variant) for test in tests]
    return all(one is not None and len(one.sample.by_seed) == one.sample.planned for one in found)


def by_metric(tests: list[StatedTest]) -> dict[str, list[StatedTest]]:
    """Return the tests by the metric of their marks."""
    return {name: [t for t in tests if t.mark.metric == name] for name in dict.fromkeys(t.mark.metric for t in tests)}


def marks_frame(study: Study) -> pd.DataFrame:
    """Return one row a test and loss, of shares and not of percentages."""
    rows: list[dict[str, Any]] = []
    for test in tests_of(study):
        for variant in study.variants:
            if (found := judged(study, test, variant)) is None:
                continue
            mark, (low, high) = test.mark, found.bounds
            rows.append({
                "test": mark.name, "task": test.task, "metric": mark.metric,
                "asked": "at most" if mark.at_most else "at least", "mark": mark.bound,
                "supervision": variant.supervision, "loss": variant.loss, "recipe": variant.recipe,
                "verdict": found.verdict, "mean": found.sample.mean, "distance": found.distance,
                "distance_low": low, "distance_high": high,
                "seeds": len(found.sample.by_seed), "planned": found.sample.planned,
            })  # fmt: skip
    return pd.DataFrame(rows)


def _counts(study: Study, tests: list[StatedTest]) -> Table:
    """Return how many tests each loss passes, fails and leaves open, and which it fails."""
    lines: dict[Variant, list[Entry]] = {}
    for variant in study.variants:
        counts = _verdicts(study, tests, variant)
        if not counts:
            continue
        lines[variant] = [Entry(variant.label), *(Entry(str(counts[verdict])) for verdict in VERDICTS)]
    columns = ["loss", *(f"{SIGNS[verdict]} {verdict}" for verdict in VERDICTS)]
    return Table("How many marks each loss passes", columns, by_supervision(lines), [LEGEND])


def _verdicts(study: Study, tests: list[StatedTest], variant: Variant) -> Counter[MarkVerdict]:
    """Return how many tests that were planned for a variant have which verdict."""
    return Counter(one.verdict for test in tests if (one := judged(study, test, variant)) is not None)


def _matrix(study: Study, tests: list[StatedTest]) -> Table:
    """Return the matrix of tests and losses of one metric."""
    variants = [v for v in study.variants if any(len(study.group(test.task, v)) for test in tests)]
    lines = [
        [Entry(test.heading, test.asked), *(_entry(study, test, variant) for variant in variants)] for test in tests
    ]
    metric = tests[0].metric
    title = f"Tests by the {metric.label}"
    return Table(title, ["test", *(v.label for v in variants)], [("", lines)], [metric.definition], style="matrix")


def task_marks_table(study: Study, task: str) -> Table | None:
    """Return what the tests on a task ask and how each loss does, a line a loss; None where there is none."""
    tests = [test for test in tests_of(study) if test.task == task]
    if not tests:
        return None
    lines = {
        variant: [Entry(variant.label), *(_entry(study, test, variant) for test in tests)]
        for variant in study.variants_of(task)
    }
    columns = ["loss", *(f"{test.metric.label} {test.asked}" for test in tests)]
    why = [test.mark.why for test in tests if test.mark.why]
    title = f"Test: {'; '.join(dict.fromkeys(test.mark.name for test in tests))}"
    return Table(title, columns, by_supervision(lines), [*dict.fromkeys(why), LEGEND], style="matrix")


def _entry(study: Study, test: StatedTest, variant: Variant) -> Entry:
    found = judged(study, test, variant)
    if found is None:
        return Entry("not planned", tone="quiet")
    text = f"{SIGNS[found.verdict]} {found.verdict}"
    return Entry(
        text,
        distance_text(found, test.metric),
        lacking(found.sample, reasons=False),
        anchor=group_anchor(study, test.task, variant),
        tone=_TONES[found.verdict],
    )


def distance_text(found: MarkResult, metric: Metric, with_interval: bool = True) -> str:
    """Return the distance from the mark with a sign, and its interval.

    Args:
        found: the result of a mark.
        metric: of the mark.
        with_interval: whether the interval stands behind the distance.
    """
    if math.isnan(found.distance):
        return ""
    spread = found.sample.spread
    text = number(found.distance, decimals(found.distance, spread, metric), metric, signed=True)
    if not with_interval or math.isnan(found.bounds[0]):
        return text
    return f"{text} {interval(found.bounds, found.distance, spread, metric, signed=True)}"


def _meaning(tests: list[StatedTest]) -> Table:
    """Return what each test asks, and why."""
    lines = []
    for name in dict.fromkeys(test.heading for test in tests):
        some = [test for test in tests if test.heading == name]
        asked = "; ".join(f"{test.metric.label} {test.asked}" for test in some)
        lines.append([Entry(name), Entry(some[0].task), Entry(asked), Entry(some[0].mark.why or NOTHING)])
    return Table("What each test asks", ["test", "task", "passes", "why"], [("", lines)])


def _digits(bound: float, metric: Metric) -> int:
    """Return how many decimals a mark needs, three at most."""
    value = 100 * bound if metric.percent else bound
    return next((n for n in range(3) if math.isclose(round(value, n), value, abs_tol=1e-9)), 3)
