"""The published numbers beside our own: which can be compared, which agree, and every deviation by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from milbench.api.metric_info import describe
from milbench.api.published import Published
from milbench.report.formatting import counted, decimals, interval, measured, number, p_value
from milbench.report.statistics import LEVEL, RULES, best_of, welch
from milbench.report.study import Sample, Study, Variant
from milbench.report.tables import Entry, Table, group_anchor, lacking

Outcome = Literal["agrees", "better", "worse", "not comparable"]
_TONES: dict[Outcome, str] = {"agrees": "good", "better": "good", "worse": "bad", "not comparable": "quiet"}
_WORDS = {"recipe.steps_per_epoch": "{} steps an epoch", "recipe.epochs": "{} epochs"}
_ABSENT = object()
_LEGEND = (
    "Here: the same statistic as the published one, under the rule of its source, on test bags; mean ± standard "
    "deviation over seeds [Student's 95 % interval of the mean]. Not comparable: another protocol than the "
    "published one, in the parameters named, or too few seeds. Agrees: comparable, and no difference at the 5 % level "
    "by Welch's t test (by Student's where the published spread or number of runs is unknown). With few seeds a large "
    "difference can go undetected: the 95 % interval in brackets bounds it. Better, worse: a difference at that level."
)
_BEST_LEGEND = (
    "Best of N: the published best is compared with the best of N further runs, simulated from the normal "
    "distribution of the seeds here."
)
_FLATTERY = (
    "Best on test chooses the epoch by the test bags, which is optimistic for every loss: it is used for this "
    "comparison alone."
)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A published value beside our sample of one variant.

    Args:
        task: the label of the task.
        variant: the variant that is compared.
        published: the published value.
        sample: the variant's values under the rule of the source.
        value: their mean or best, as the source gives it; nan for none.
        runs: the number of seeds behind `value`.
        outcome: the verdict.
        reasons: the grounds of the outcome, a sentence each.
    """

    task: str
    variant: Variant
    published: Published
    sample: Sample
    value: float
    runs: int
    outcome: Outcome
    reasons: tuple[str, ...]


def comparisons(study: Study) -> list[Comparison]:
    """Compare each published value of a planned task and loss with each variant of that loss."""
    return [
        _compare(study, task, variant, published)
        for task in study.tasks
        for published in study.published(task)
        for variant in study.variants_of(task)
        if study.group(task, variant)[["loss", "loss_label"]].isin([published.loss]).any(axis=None)
    ]


def verdict_table(study: Study) -> Table | None:
    """Return the published values and our own side by side; None where nothing was published."""
    found = comparisons(study)
    if not found:
        return None
    sources = list(dict.fromkeys(c.published.source for c in found))
    groups: dict[str, list[list[Entry]]] = {}
    for one in found:
        metric = describe(one.published.metric)
        groups.setdefault(f"{one.task}: {metric.heading}", []).append(
            [
                Entry(one.variant.label),
                _published(one, f"[{sources.index(one.published.source) + 1}]"),
                _ours(study, one),
                Entry(one.outcome, strong=one.outcome != "not comparable", tone=_TONES[one.outcome], prose=one.reasons),
            ]
        )
    notes = [f"[{i}] {source}" for i, source in enumerate(sources, start=1)] + [_LEGEND]
    if any(one.published.statistic == "best" for one in found):
        notes.append(_BEST_LEGEND)
    if any(one.published.rule == "test" for one in found):
        notes.append(_FLATTERY)
    return Table(
        "The published numbers beside ours", ["loss", "published", "here", "verdict"], list(groups.items()), notes
    )


def verdict_frame(study: Study) -> pd.DataFrame:
    """Return the comparisons as numbers, a line each; empty where nothing was published."""
    lines = []
    for one in comparisons(study):
        low, high = one.sample.student
        lines.append({
            "task": one.task, "supervision": one.variant.supervision, "loss": one.variant.loss,
            "recipe": one.variant.recipe,
            **{name: getattr(one.published, name) for name in ("metric", "rule", "statistic")},
            **{f"published_{name}": getattr(one.published, name) for name in ("value", "spread", "runs", "source")},
            "value": one.value, "runs": one.runs, "mean": one.sample.mean, "spread": one.sample.spread,
            "student_low": low, "student_high": high, "seeds": len(one.sample.by_seed), "planned": one.sample.planned,
            "verdict": one.outcome, "reason": "; ".join(one.reasons),
        })  # fmt: skip
    return pd.DataFrame(lines)


def differences_table(study: Study) -> Table | None:
    """Return where a publication and its author's code differ; None where no difference is known."""
    keys = ("topic", "paper", "code", "here")
    lines = [[Entry(str(difference[key])) for key in keys] for difference in study.results.differences]
    columns = ["topic", "the paper's text", "its author's code", "here"]
    return Table("Where the paper and its author's code differ", columns, [("", lines)]) if lines else None


def deviations(protocol: Mapping[str, Any], params: list[dict[str, Any]]) -> list[str]:
    """Return in words every parameter in which cells differ from what was published.

    A parameter that a cell lacks counts as a difference if the cell has other parameters of its section: a loss without
    any parameters cannot deviate in one.

    Args:
        protocol: the published parameters, by the names of `Cell.params`.
        params: the parameters of each cell.

    Examples:
        >>> deviations({"recipe.epochs": 100, "recipe.lr": 0.1}, [{"recipe.epochs": 20, "recipe.lr": 0.1}])
        ['20 epochs (published: 100)']
    """
    found = []
    for name, expected in protocol.items():
        section = name.partition(".")[0] + "."
        values = [p.get(name, _ABSENT) for p in params if name in p or any(key.startswith(section) for key in p)]
        if any(value is _ABSENT or value != expected for value in values):
            texts = list(dict.fromkeys(_text(name, value) for value in values))
            ours = _WORDS.get(name, name.partition(".")[2] + " {}").format(" and ".join(texts))
            found.append(f"{ours} (published: {_text(name, expected)})")
    return found


def _text(name: str, value: Any) -> str:
    if value is _ABSENT:
        return "not known"
    if value is None:
        return "all" if name == "recipe.steps_per_epoch" else "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _compare(study: Study, task: str, variant: Variant, published: Published) -> Comparison:
    sample = study.sample(task, variant, published.metric, published.rule)
    lower = describe(published.metric).lower_is_better
    if published.statistic == "best":
        # The best of more seeds than were published would be better by their number alone.
        first = sample.by_seed.sort_index().iloc[: published.runs]
        value, runs = float(first.min() if lower else first.max()), len(first)
    else:
        value, runs = sample.mean, len(sample.by_seed)
    params = [study.results.params.get(str(cell), {}) for cell in study.group(task, variant).index]
    minor = deviations(published.minor, params)
    if published.rule != "last" and (candidates := study.candidates(task)):
        minor.append(candidates[0].lower() + candidates[1:].rstrip("."))
    tolerated = ("minor differences: " + ", ".join(minor),) if minor else ()
    obstacles = _obstacles(study, task, variant, published, sample, params)
    if obstacles:
        return Comparison(task, variant, published, sample, value, runs, "not comparable", (*obstacles, *tolerated))
    outcome, grounds = _judge(published, sample)
    return Comparison(task, variant, published, sample, value, runs, outcome, (grounds, *tolerated))


def _obstacles(
    study: Study, task: str, variant: Variant, published: Published, sample: Sample, params: list[dict[str, Any]]
) -> tuple[str, ...]:
    """Return every reason why a published value cannot be compared with a sample; none where it can."""
    seeds, runs = len(sample.by_seed), published.runs
    different = deviations(published.protocol, params)
    found = ["another protocol: " + ", ".join(different)] if different else []
    data = dict.fromkeys(study.group(task, variant)["data_digest"].astype(str))
    if any(not name.startswith(published.data) for name in data):
        found.append(f"other data: {' and '.join(data)}")
    if published.rule == "validation" and not study.validated(task):
        found.append("no validation metric here to choose the epoch by, as its source did")
    if published.rule != "last" and published.metric != study.primary(task):
        found.append(f"epochs are chosen by {study.metric(task).label} here, not by {describe(published.metric).label}")
    if not seeds:
        found.append("no finished seed")
    elif seeds < 2:
        found.append("one seed, hence no spread to compare by")
    if published.statistic == "best" and runs is None:
        found.append("the best of an unknown number of runs")
    elif published.statistic == "best" and runs is not None and 0 < seeds < runs:
        found.append(f"the best of {counted(runs, 'run')}, here {counted(seeds, 'seed')}")
    return tuple(found)


def _judge(published: Published, sample: Sample) -> tuple[Outcome, str]:
    """Return the outcome for a comparable sample, and the difference, interval and p value that it rests on."""
    metric = describe(published.metric)
    value, runs, spread = published.value, published.runs, published.spread
    values = sample.by_seed.to_numpy()
    if published.statistic == "best" and runs is not None:
        test, name = best_of(values, value, runs, metric.lower_is_better), "p"
    elif spread is not None and runs is not None and runs > 1:
        test, name = welch(values, value, spread, runs), "Welch's p"
    else:
        test, name = welch(values, value), "Student's p"
    difference = number(test.difference, decimals(sample.mean, sample.spread, metric), metric, signed=True)
    bounds = interval(test.interval, sample.mean, sample.spread, metric, signed=True)
    points = " points" if metric.percent else ""
    what = f"bests of {runs} such runs less the published one:" if published.statistic == "best" else "difference"
    grounds = f"{what} {difference}{points} {bounds}, {name} = {p_value(test.p)}".replace("= <", "<")
    if sample.problems:
        grounds += f"; from {len(values)} of {counted(sample.planned, 'seed')}"
    if test.p > 1 - LEVEL:
        return "agrees", grounds
    return ("better" if (test.difference < 0) == metric.lower_is_better else "worse"), grounds


def _published(one: Comparison, mark: str) -> Entry:
    published, metric = one.published, describe(one.published.metric)
    spread = float("nan") if published.spread is None else published.spread
    runs = "" if published.runs is None else f" of {counted(published.runs, 'run')}"
    rule = RULES[published.rule].partition(" (")[0]
    return Entry(measured(published.value, spread, metric), f"{published.statistic}{runs}, {rule}", mark=mark)


def _ours(study: Study, one: Comparison) -> Entry:
    sample, metric = one.sample, describe(one.published.metric)
    anchor, warning = group_anchor(study, one.task, one.variant), lacking(sample)
    count = len(sample.by_seed)
    average = measured(sample.mean, sample.spread, metric)
    if one.published.statistic == "best" and count:
        digits = decimals(sample.mean, sample.spread, metric)
        seeds = f"best of {counted(one.runs, 'seed')}"
        return Entry(number(one.value, digits, metric), f"{seeds}; mean {average}", warning, anchor=anchor)
    bounds = f"{interval(sample.student, sample.mean, sample.spread, metric)} " if count > 1 else ""
    return Entry(average, f"{bounds}n={count}" if count else "", warning, anchor=anchor)
