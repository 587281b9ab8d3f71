"""The published numbers beside our own: which can be compared, which agree, and every deviation by name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd

from milbench.api.metric_info import describe
from milbench.api.published import Published
from milbench.report.agreement import FEWEST_TO_AGREE, FEWEST_TO_DIFFER, Agreement, difference, judge
from milbench.report.deviations import deviations
from milbench.report.formatting import counted, decimals, interval, measured, number, p_value, scaled
from milbench.report.statistics import FEWEST_SEEDS, RULES, SELECTED_BY, Unpaired
from milbench.report.study import Sample, Study, Variant
from milbench.report.tables import Entry, Table, group_anchor, lacking

Outcome = Agreement | Literal["not comparable"]
_TONES: dict[Outcome, str] = {
    "agrees": "good", "better": "good", "worse": "bad", "unresolved": "quiet", "not comparable": "quiet",
}  # fmt: skip
_LEGEND = (
    "Here: the same statistic as the published one, under the rule of its source, on test bags; mean ± standard "
    "deviation over seeds [Student's 95 % interval of the mean]. Not comparable: another protocol than the "
    "published one, in the parameters named. Otherwise the 95 % interval of the difference, in brackets behind it, "
    "decides: by Welch's t test, or by Student's where the published spread or number of runs is unknown, as if the "
    "published runs (one, if unknown) had the spread of those here. "
    f"Agrees: at least {FEWEST_TO_AGREE} seeds, and the interval lies within the margin, which was chosen beforehand. "
    f"Better, worse: at least {FEWEST_TO_DIFFER} seeds, and the interval does not hold zero. Unresolved: neither; it "
    "is no sign of agreement."
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
class PublishedComparison:
    """A published value beside our sample of one variant.

    Args:
        task: the label of the task.
        variant: the variant that is compared.
        published: the published value.
        sample: the variant's values under the rule of the source.
        value: their mean or best, as the source gives it; nan for none.
        runs: the number of seeds behind `value`.
        interval: the 95 % interval of ours minus the published value; nan where there is no verdict.
        outcome: the verdict.
        reasons: the grounds of the outcome, a sentence each.
    """

    task: str
    variant: Variant
    published: Published
    sample: Sample
    value: float
    runs: int
    interval: tuple[float, float]
    outcome: Outcome
    reasons: tuple[str, ...]


def comparisons(study: Study) -> list[PublishedComparison]:
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
                Entry(one.outcome, strong=_TONES[one.outcome] != "quiet", tone=_TONES[one.outcome], prose=one.reasons),
            ]
        )
    notes = [f"[{i}] {_footnote(source, found)}" for i, source in enumerate(sources, start=1)] + [_LEGEND]
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
            **{f"published_{name}": getattr(one.published, name) for name in ("value", "spread", "source")},
            "published_runs": one.published.count, "published_values": " ".join(map(str, one.published.values)),
            "margin": one.published.margin,
            "value": one.value, "runs": one.runs, "mean": one.sample.mean, "spread": one.sample.spread,
            "student_low": low, "student_high": high,
            "difference_low": one.interval[0], "difference_high": one.interval[1],
            "seeds": len(one.sample.by_seed), "planned": one.sample.planned,
            "verdict": one.outcome, "reason": "; ".join(one.reasons),
        })  # fmt: skip
    return pd.DataFrame(lines)


def differences_table(study: Study) -> Table | None:
    """Return where a publication and its author's code differ; None where no difference is known."""
    keys = ("topic", "paper", "code", "here")
    lines = [[Entry(str(difference[key])) for key in keys] for difference in study.results.differences]
    columns = ["topic", "the paper's text", "its author's code", "here"]
    return Table("Where the paper and its author's code differ", columns, [("", lines)]) if lines else None


def _compare(study: Study, task: str, variant: Variant, published: Published) -> PublishedComparison:
    sample = _sample(study, task, variant, published)
    lower = describe(published.metric).lower_is_better
    if published.statistic == "best":
        # The best of more seeds than were published would be better by their number alone.
        first = sample.by_seed.sort_index().iloc[: published.count]
        value, runs = float(first.min() if lower else first.max()), len(first)
    else:
        value, runs = sample.mean, len(sample.by_seed)
    params = [study.results.params.get(str(cell), {}) for cell in study.group(task, variant).index]
    minor = deviations(published.minor, params, published.defaults)
    if published.rule != "last" and (candidates := study.candidates(task)):
        minor.append(candidates[0].lower() + candidates[1:].rstrip("."))
    tolerated = ("minor differences: " + ", ".join(minor),) if minor else ()
    obstacles = _obstacles(study, task, variant, published, params)
    shortage = _shortage(published, len(sample.by_seed))
    bounds, grounds = (float("nan"), float("nan")), shortage
    outcome: Outcome = "not comparable" if obstacles else "unresolved"
    if not obstacles and not shortage:
        test, name = difference(sample.by_seed.to_numpy(), published, lower)
        bounds = test.interval
        outcome, why = judge(bounds, len(sample.by_seed), published.margin, lower)
        grounds = "; ".join(filter(None, (_difference(published, sample, test, name), why)))
    reasons = tuple(filter(None, (*obstacles, grounds, *tolerated)))
    return PublishedComparison(task, variant, published, sample, value, runs, bounds, outcome, reasons)


def _sample(study: Study, task: str, variant: Variant, published: Published) -> Sample:
    """Return our values of the published metric, each at the epoch that the rule of the source chooses."""
    metric = published.metric
    if published.rule != "test" or metric == study.primary(task):
        return study.sample(task, variant, metric, published.rule)
    # The source chose the epoch by this metric, not by the one that losses are ranked by here.
    last = study.sample(task, variant, metric, "last")
    tested = study.history(task, f"test/{metric}")
    cells = tested[np.isfinite(tested["value"])].groupby("cell")["value"]
    best = cells.min() if describe(metric).lower_is_better else cells.max()
    of_seed = {seed: best[cell] for cell, seed in study.group(task, variant)["seed"].items() if cell in best.index}
    return replace(last, by_seed=pd.Series({seed: float(of_seed[seed]) for seed in last.by_seed.index}, dtype=float))


def _obstacles(
    study: Study, task: str, variant: Variant, published: Published, params: list[dict[str, Any]]
) -> tuple[str, ...]:
    """Return every reason why a published value cannot be compared with a variant; none where it can."""
    different = deviations(published.protocol, params, published.defaults)
    found = ["another protocol: " + ", ".join(different)] if different else []
    data = dict.fromkeys(study.group(task, variant)["data_digest"].astype(str))
    if any(not name.startswith(published.data) for name in data):
        found.append(f"other data: {' and '.join(data)}")
    if published.rule == "validation" and not study.validated(task):
        found.append("no validation set error here to choose the epoch by")
    elif published.rule == "validation" and published.metric != SELECTED_BY:
        ours, theirs = describe(SELECTED_BY).label, describe(published.metric).label
        found.append(f"epochs are chosen by {ours} here, not by {theirs}")
    if published.statistic == "best" and published.count is None:
        found.append("the best of an unknown number of runs")
    return tuple(found)


def _shortage(published: Published, seeds: int) -> str:
    """Return in words what our seeds lack for a comparison; "" where they suffice."""
    if not seeds:
        return "no finished seed"
    if published.statistic == "best" and published.count is not None and seeds < published.count:
        return f"the best of {counted(published.count, 'run')}, here {counted(seeds, 'seed')}"
    if seeds < FEWEST_TO_DIFFER:
        return f"{counted(seeds, 'seed')}, and a verdict needs {FEWEST_TO_DIFFER}"
    return ""


def _difference(published: Published, sample: Sample, test: Unpaired, name: str) -> str:
    """Return the difference between ours and the published value in words, with its interval and the p of its test."""
    metric = describe(published.metric)
    shown = number(test.difference, decimals(sample.mean, sample.spread, metric), metric, signed=True)
    bounds = interval(test.interval, sample.mean, sample.spread, metric, signed=True)
    best = published.statistic == "best"
    what = f"bests of {published.count} such runs less the published one:" if best else "difference"
    lost = f"; from {len(sample.by_seed)} of {counted(sample.planned, 'seed')}" if sample.problems else ""
    points = " points" if metric.percent else ""
    return f"{what} {shown}{points} {bounds}, {name} = {p_value(test.p)}".replace("= <", "<") + lost


def _footnote(source: str, found: list[PublishedComparison]) -> str:
    """Return a source with the margins and the notes of what it published."""
    facts = [one.published for one in found if one.published.source == source]
    margins = dict.fromkeys(_margin(fact) for fact in facts if fact.margin is not None)
    notes = dict.fromkeys(fact.note for fact in facts if fact.note)
    return ". ".join([source, *margins]) + "".join(f". {note.rstrip('.')}" for note in notes)


def _margin(fact: Published) -> str:
    metric, width = describe(fact.metric), fact.margin or 0.0
    return f"Margin of agreement: ± {scaled(width, metric):.3g}{' points' if metric.percent else ''}"


def _published(one: PublishedComparison, mark: str) -> Entry:
    """Return a published value as it is printed, and the mean of its listed runs where that is another."""
    published, metric = one.published, describe(one.published.metric)
    runs = "" if published.count is None else f" of {counted(published.count, 'run')}"
    rule = RULES[published.rule].partition(" (")[0]
    printed = measured(published.value, _or_nan(published.spread), metric)
    listed = measured(published.mean, _or_nan(published.deviation), metric)
    apart = f"; the listed runs: {listed}" if listed != printed else ""
    return Entry(printed, f"{published.statistic}{runs}, {rule}{apart}", mark=mark)


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None else value


def _ours(study: Study, one: PublishedComparison) -> Entry:
    sample, metric = one.sample, describe(one.published.metric)
    anchor, warning = group_anchor(study, one.task, one.variant), lacking(sample)
    count = len(sample.by_seed)
    average = measured(sample.mean, sample.spread, metric)
    if one.published.statistic == "best" and count:
        digits = decimals(sample.mean, sample.spread, metric)
        seeds = f"best of {counted(one.runs, 'seed')}"
        return Entry(number(one.value, digits, metric), f"{seeds}; mean {average}", warning, anchor=anchor)
    known = count >= FEWEST_SEEDS
    bounds = f"{interval(sample.student, sample.mean, sample.spread, metric)} " if known else ""
    return Entry(average, f"{bounds}n={count}" if count else "", warning, anchor=anchor)
