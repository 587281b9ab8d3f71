"""What the data of a comparison exclude, a sentence a task: the losses that are worse than the best one."""

import math
from collections import Counter

from milbench.contracts.metric_info import describe
from milbench.report.formatting import (
    MOST_NAMED,
    counted,
    first_of,
    listed,
    number_word,
    readable,
    with_unit,
)
from milbench.report.marks import equivalence_sentences, marks_frame
from milbench.report.study import Study

MOST_SENTENCES = (
    3  # of more tasks one sentence counts on how many of them each loss may be the best
)
MOST_SEEDS = 1000  # nobody trains more seeds to tell two losses apart
CONFIDENCE = "95 % confidence"
FEW_SEEDS = "So few common seeds"
BASELINE_ANSWER = "a simple baseline, pooled features with extra trees,"
NO_SKILL_ANSWER = "the best constant answer (no skill)"
CHANCE_AUROC = 0.5  # of scores that say nothing, as those of a constant answer


def sentences(study: Study) -> list[str]:
    """Return what is excluded, a sentence a task or one for many, or verdicts by a margin."""
    tasks = [task for task in study.tasks if study.table(task).notna().any(axis=None)]
    if not tasks:
        return study.plan.for_use or ["No cell of this comparison has a result yet."]
    marks = marks_frame(study)
    if len(marks) and (counts := Counter(marks.loc[marks["verdict"] == "pass", "variant"])):
        best = [f"{readable(variant)} {count}" for variant, count in counts.most_common(MOST_NAMED)]
        total = sum(len(mark.bounds) for task in study.tasks for mark in study.info(task).marks)
        return [f"Passed of {total} tests: {', '.join(best)}."]
    if verdicts := equivalence_sentences(study):
        return verdicts
    return (
        [_of_task(study, task) for task in tasks]
        if len(tasks) <= MOST_SENTENCES
        else _of_many(study, tasks)
    )


def more_seeds(study: Study) -> list[str]:
    """Return how many seeds would separate the best mean from the other contenders, a line a task with several."""
    lines, endless = [], []
    for task in study.tasks:
        best, *others = _contenders(study, task) or [""]
        if not others:
            continue
        rows, verdict = (
            list(study.table(task).index),
            study.contenders(task, study.primary(task))[study.kinds[0]],
        )
        seeds = [
            verdict.seeds_to_separate(rows.index(best), rows.index(other)) or math.inf
            for other in others
        ]
        known = sorted(
            (n, readable(other)) for n, other in zip(seeds, others, strict=True) if n <= MOST_SEEDS
        )
        if not known:
            endless.append(readable(task))
            continue
        (least, nearest), *more = known
        parts = [
            f"{least} seeds would separate {readable(best)} from {nearest}",
            *(f"{n} from {v}" for n, v in more),
        ]
        left = len(others) - len(known)
        rest = f", not even {MOST_SEEDS:,} from {number_word(left)} more" if left else ""
        stay = "differences stay" if len(others) > 1 else "difference stays"
        lines.append(f"On {readable(task)} about {first_of(parts)}{rest}, if the {stay}.")
    if endless:
        stay = "if differences stay as small"
        lines.append(
            f"On {first_of(endless)} not even {MOST_SEEDS:,} seeds would separate the best one, {stay}."
        )
    return lines


def _contenders(study: Study, task: str) -> list[str]:
    """Return the losses with the least supervision that may be the best, the best mean first."""
    summary = study.summary(task)
    return [
        str(v)
        for v in summary.index[summary["contender"] & (summary["supervision"] == study.kinds[0])]
    ]


def _of_many(study: Study, tasks: list[str]) -> list[str]:
    unlearnt = [task for task in tasks if not study.has_learnt(task)]
    if len(unlearnt) <= MOST_SENTENCES:
        lines = [_not_above_no_skill(study, task) for task in unlearnt]
    else:
        where = listed([readable(task) for task in unlearnt])
        lines = [f"On {where} no loss{_kind(study)} is shown to beat {NO_SKILL_ANSWER}."]
    for task in tasks:
        better = _better_baseline(study, task)
        if better:
            lines.append(f"On {readable(task)} {better}.")
    several = [t for t in tasks if _contenders(study, t)]
    if not several:
        unknown = f"{FEW_SEEDS} cannot tell which loss is best on any of {len(tasks)} tasks."
        return lines if len(unlearnt) == len(tasks) else [unknown, *lines]
    counts = Counter(v for task in several for v in _contenders(study, task))
    ranking = [v for v in study.ranking() if study.supervision[v] == study.kinds[0]]
    parts = [
        f"{first_of([readable(v) for v in ranking if counts[v] == count])} on {count}"
        for count in sorted(set(counts.values()), reverse=True)[:2]
    ]
    worse = [readable(v) for v in ranking if not counts[v]]
    never = f" Worse than the best on all: {listed(worse)}." if 0 < len(worse) <= MOST_NAMED else ""
    most = (
        f"{parts[0]} of {counted(len(several), 'task')}{''.join(f'; {part}' for part in parts[1:])}"
    )
    return [
        f"Not shown to be worse than the best{_kind(study)} ({CONFIDENCE} on each task): {most}.{never}",
        *lines,
    ]


def _not_above_no_skill(study: Study, task: str) -> str:
    """Return that no loss is shown to beat no skill, by which metric, and whether any does by AUROC."""
    name = study.line_metric(task)
    metric = describe(name)
    summary = study.summary(task)
    summary = summary[(summary["supervision"] == study.kinds[0]) & summary["mean"].notna()]
    best = str(summary.index[0])
    own = float(study.summary(task, name)["mean"][best])
    no_skill = float(study.no_skill(task, name).mean())
    subject = "no loss is" if len(summary) > 1 else f"{readable(best)} is not"
    value, line = with_unit(own, metric), with_unit(no_skill, metric)
    is_ahead = (own < no_skill) == metric.lower_is_better and value != line
    chance = ", which may be chance" if is_ahead else ""
    return (
        f"On {readable(task)} {subject} shown to beat {NO_SKILL_ANSWER} by {metric.label}"
        f"{_kind(study)}: no skill has {line}, {readable(best)} {value}{chance}."
        f"{_above_chance(study, task)}"
    )


def _above_chance(study: Study, task: str) -> str:
    """Return how many losses are above chance by AUROC; "" where none is shown to be.

    A loss counts if the 95 % interval of its mean over seeds lies above 0.5.
    """
    if "auroc" not in study.metrics(task):
        return ""
    summary = study.summary(task, "auroc")
    summary = summary[(summary["supervision"] == study.kinds[0]) & summary["mean"].notna()]
    above = summary[summary["low"] > CHANCE_AUROC]
    if above.empty:
        return ""
    best = readable(str(above.index[0]))
    value = with_unit(float(above["mean"].iloc[0]), describe("auroc"))
    losses = "it is"
    if len(summary) > 1:
        losses = f"{len(above)} of {len(summary)} losses are"
    return f" By AUROC {losses} above chance ({CHANCE_AUROC}): {best} has {value}."


def _kind(study: Study) -> str:
    return "" if len(study.kinds) == 1 else f" with {study.kinds[0]} supervision"


def _of_task(study: Study, task: str) -> str:
    """Return the sentence of a task; at its end where cells lack, since a loss without them may be the best too."""
    done = study.cells_of(task)["status"] == "done"
    verdict = _verdict(study, task)
    if not done.all():
        verdict = f"{verdict.removesuffix('.')}; {done.sum()} of {len(done)} cells are done."
    better = _better_baseline(study, task)
    if better:
        verdict += f" {better[0].upper()}{better[1:]}."
    return verdict


def _better_baseline(study: Study, task: str) -> str:
    """Say that a simple baseline has a better mean than the best loss, "" where it has not, or that is not known."""
    metric = study.metric(task)
    best = float(study.summary(task)["mean"].iloc[0])
    baseline = float(study.baseline(task).mean())
    if math.isnan(best) or math.isnan(baseline):
        return ""
    is_better = baseline < best if metric.lower_is_better else baseline > best
    if not is_better:
        return ""
    word = "lower" if metric.lower_is_better else "higher"
    return f"{BASELINE_ANSWER} has a {word} {metric.label}: {with_unit(baseline, metric)}"


def _verdict(study: Study, task: str) -> str:
    summary, metric, where = (
        study.summary(task),
        study.metric(task),
        f"{_kind(study)} on {readable(task)}",
    )
    summary = summary[(summary["supervision"] == study.kinds[0]) & summary["mean"].notna()]
    if not len(summary):
        return f"No loss{_kind(study)} has a result{where.removeprefix(_kind(study))} yet."
    value, first = with_unit(summary["mean"].iloc[0], metric), readable(str(summary.index[0]))
    seeds = int(summary["seeds"].max())
    if not study.has_learnt(task):
        return _not_above_no_skill(study, task)
    if len(summary) == 1:
        result = f"{first} has a {metric.label} of {value} ({'mean of ' * (seeds > 1)}{counted(seeds, 'seed')})"
        return f"One loss has nothing to be better than{where}: {result}."
    leads = f"{first} has the {'smallest' if metric.lower_is_better else 'largest'} {metric.label}, {value}"
    names = [readable(name) for name in _contenders(study, task)]
    worse = [readable(str(name)) for name in summary.index[~summary["contender"]]]
    if not names:
        return f"{'One seed' if seeds == 1 else FEW_SEEDS} cannot tell which loss is best{where}; {leads}."
    sure = f"({CONFIDENCE}{', but two seeds say little' if seeds < 3 else ''})"
    if not worse:
        return f"No loss is shown to be worse than the best{where} {sure}; {leads}."
    if len(names) > MOST_NAMED and len(worse) <= MOST_NAMED:
        rest = f"The other {number_word(len(names))} are not told apart."
        return f"Worse than the best{where}: {listed(worse)} {sure}. {rest}"
    best = (
        listed(names, "or")
        if len(names) <= MOST_NAMED
        else f"one of {', '.join(names[:MOST_NAMED])}, …"
    )
    others = f"{worse[0]} is" if len(worse) == 1 else f"The other {number_word(len(worse))} are"
    return f"Best{where}: {best}. {others} worse {sure}."
