"""Verdicts in words: a sentence for each task, or one for many tasks.

`milbench.report.judge` decides on the verdicts. This module has a template for each finding.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from milbench.contracts.metric_info import Metric, describe
from milbench.report.formatting import (
    MOST_NAMED,
    at_most,
    counted,
    first_few,
    listed,
    number_word,
    readable,
    with_unit,
)
from milbench.report.judge import judge
from milbench.report.learning import CHANCE
from milbench.report.marks import equivalence_sentences, marks_frame
from milbench.report.study import Study
from milbench.report.verdict import (
    Best,
    Judgement,
    Leader,
    Learnt,
    NoResult,
    NothingLearnt,
    NotToldApart,
    OneLoss,
    TooFewSeeds,
)

MOST_SENTENCES = 3
"""With more tasks, a single sentence counts on how many of them each loss may be the best."""

CONFIDENCE = "95 % confidence"
FEW_SEEDS = "So few common seeds"
BASELINE_ANSWER = "a simple baseline, pooled features with extra trees,"
NO_SKILL_ANSWER = "the best constant answer (no skill)"


def sentences(study: Study) -> list[str]:
    """Return the sentences that say what a comparison found.

    They are about pass marks or margins if the comparison has any, and else about which losses are
    worse than the best.
    """
    tasks = [task for task in study.tasks if study.table(task).notna().any(axis=None)]
    if not tasks:
        return study.plan.for_use or ["No cell of this comparison has a result yet."]
    passed = _passed_tests(study)
    if passed:
        return [passed]
    by_margin = equivalence_sentences(study)
    if by_margin:
        return by_margin
    judgements = [judge(study, task) for task in tasks]
    if len(tasks) <= MOST_SENTENCES:
        return [sentence_of(judgement) for judgement in judgements]
    return _on_many_tasks(study, judgements)


def _passed_tests(study: Study) -> str:
    """Return which losses pass most tests; "" if there are no tests, or if none is passed."""
    marks = marks_frame(study)
    if marks.empty:
        return ""
    counts = Counter(marks.loc[marks["verdict"] == "pass", "variant"])
    if not counts:
        return ""
    best = [f"{readable(variant)} {count}" for variant, count in counts.most_common(MOST_NAMED)]
    tests = sum(len(mark.bounds) for task in study.tasks for mark in study.info(task).marks)
    return f"Passed of {tests} tests: {', '.join(best)}."


def sentence_of(judgement: Judgement) -> str:
    """Return the sentences on a task: the verdict, cells that are not done, a better baseline."""
    said = _in_words(judgement)
    if judgement.done < judgement.planned:
        rest = f"{judgement.done} of {judgement.planned} cells are done"
        said = f"{said.removesuffix('.')}; {rest}."
    baseline = _baseline(judgement)
    if baseline:
        said += f" {baseline[0].upper()}{baseline[1:]}."
    return said


def _in_words(judgement: Judgement) -> str:
    match judgement.finding:
        case NoResult():
            return f"No loss{_kind(judgement)} has a result on {readable(judgement.task)} yet."
        case NothingLearnt():
            return _nothing_learnt(judgement, judgement.finding)
        case OneLoss(leader):
            return _one_loss(judgement, leader)
        case TooFewSeeds(leader):
            return _too_few_seeds(judgement, leader)
        case NotToldApart():
            return _not_told_apart(judgement, judgement.finding)
        case Best():
            return _best(judgement, judgement.finding)


def _one_loss(judgement: Judgement, leader: Leader) -> str:
    metric = describe(judgement.metric)
    seeds = counted(leader.seeds, "seed")
    if leader.seeds > 1:
        seeds = f"mean of {seeds}"
    value = with_unit(leader.mean, metric)
    return (
        f"One loss has nothing to be better than{_where(judgement)}: "
        f"{readable(leader.loss)} has a {metric.label} of {value} ({seeds})."
    )


def _too_few_seeds(judgement: Judgement, leader: Leader) -> str:
    who = "One seed" if leader.seeds == 1 else FEW_SEEDS
    leads = _leads(leader, describe(judgement.metric))
    return f"{who} cannot tell which loss is best{_where(judgement)}; {leads}."


def _not_told_apart(judgement: Judgement, finding: NotToldApart) -> str:
    """Say that most losses are not told apart, what would show, and which losses are worse."""
    metric = describe(judgement.metric)
    losses = "losses" if not finding.worse else "most losses"
    shown = ""
    if math.isfinite(finding.resolution):
        least = difference_text(finding.resolution, metric)
        shown = f": a difference below {least} may not show"
    said = f"On {readable(judgement.task)} {losses}{_kind(judgement)} cannot be told apart{shown}"
    sure = _sure(finding.leader)
    if not finding.worse:
        return f"{said} {sure}; {_leads(finding.leader, metric)}."
    worse = first_few([readable(loss) for loss in finding.worse])
    return f"{said}. Worse than the best: {worse} {sure}."


def _best(judgement: Judgement, finding: Best) -> str:
    names = [readable(loss) for loss in finding.contenders]
    best = listed(names, "or")
    if len(names) > MOST_NAMED:
        best = f"one of {', '.join(names[:MOST_NAMED])} and {len(names) - MOST_NAMED} more"
    others = f"The other {number_word(len(finding.worse))} are"
    if len(finding.worse) == 1:
        others = f"{readable(finding.worse[0])} is"
    return f"Best{_where(judgement)}: {best}. {others} worse {_sure(finding.leader)}."


def _nothing_learnt(judgement: Judgement, finding: NothingLearnt) -> str:
    """Say that no loss is shown to beat no skill, and by which other metrics losses have learnt."""
    metric = describe(finding.metric)
    leader = finding.leader
    subject = "no loss is" if finding.losses > 1 else f"{readable(leader.loss)} is not"
    value = with_unit(leader.mean, metric)
    line = with_unit(finding.no_skill, metric)
    is_smaller = leader.mean < finding.no_skill
    is_ahead = is_smaller == metric.lower_is_better
    # If both values are written with the same digits, a reader sees no lead to be explained.
    chance = ", which may be chance" if is_ahead and value != line else ""
    said = (
        f"On {readable(judgement.task)} {subject} shown to beat {NO_SKILL_ANSWER} by {metric.label}"
        f"{_kind(judgement)}: no skill has {line}, {readable(leader.loss)} {value}{chance}."
    )
    by_others = [_learnt(learnt) for learnt in finding.by_others]
    return " ".join([said, *by_others])


def _learnt(learnt: Learnt) -> str:
    """Say by which other metric something was learnt."""
    metric = describe(learnt.metric)
    if learnt.metric in CHANCE:
        line = f"above chance ({learnt.no_skill:g})"
    else:
        line = f"better than no skill ({with_unit(learnt.no_skill, metric)})"
    losses = f"{learnt.losses} of {learnt.of} losses are"
    if learnt.of == 1:
        losses = "it is"
    best = readable(learnt.leader.loss)
    value = with_unit(learnt.leader.mean, metric)
    return f"By {metric.label} {losses} {line}: {best} has {value}."


def _on_many_tasks(study: Study, judgements: Sequence[Judgement]) -> list[str]:
    """Return the answer over many tasks, followed by sentences on single tasks."""
    return [
        *_answer_over_tasks(study, judgements),
        *_tasks_without_learning(judgements),
        *_tasks_with_better_baseline(judgements),
        *_tasks_not_told_apart(judgements),
    ]


def _answer_over_tasks(study: Study, judgements: Sequence[Judgement]) -> list[str]:
    """Return on how many tasks each loss may be the best, or that there are too few seeds.

    [] if the losses of no task are judged.
    """
    told_apart = [one for one in judgements if isinstance(one.finding, Best)]
    if len(told_apart) == 1:
        return [_in_words(told_apart[0])]
    if told_apart:
        return [_counts(study, told_apart)]
    has_too_few_seeds = any(isinstance(one.finding, TooFewSeeds) for one in judgements)
    if has_too_few_seeds:
        tasks = len(judgements)
        return [f"{FEW_SEEDS} cannot tell which loss is best on any of {tasks} tasks."]
    return _single_losses(judgements)


def _single_losses(judgements: Sequence[Judgement]) -> list[str]:
    """Say on how many tasks there is only one loss; [] if there are no such tasks."""
    alone = []
    losses: dict[str, None] = {}
    for judgement in judgements:
        if isinstance(judgement.finding, OneLoss):
            alone.append(judgement)
            losses[readable(judgement.finding.leader.loss)] = None
    if not alone:
        return []
    kind = _kind(alone[0])
    tasks = counted(len(alone), "task")
    return [f"One loss{kind} has nothing to be better than on {tasks}: {listed(list(losses))}."]


def _counts(study: Study, judgements: Sequence[Judgement]) -> str:
    """Return the sentence on how many of the given tasks each loss may be the best."""
    counts: Counter[str] = Counter()
    for judgement in judgements:
        if isinstance(judgement.finding, Best):
            counts.update(judgement.finding.contenders)
    ranking = [loss for loss in study.ranking() if study.supervision[loss] == study.kinds[0]]
    # Only losses with one of the two largest counts are named.
    most, *others = sorted(set(counts.values()), reverse=True)[:2]

    def names_with(count: int) -> str:
        return first_few([readable(loss) for loss in ranking if counts[loss] == count])

    said = f"{names_with(most)} on {most} of {counted(len(judgements), 'task')}"
    for count in others:
        said += f"; {names_with(count)} on {count}"
    worse = [readable(loss) for loss in ranking if not counts[loss]]
    never = ""
    if 0 < len(worse) <= MOST_NAMED:
        never = f" Worse than the best on all: {listed(worse)}."
    kind = "" if len(study.kinds) == 1 else f" with {study.kinds[0]} supervision"
    return f"Not shown to be worse than the best{kind} ({CONFIDENCE} on each task): {said}.{never}"


def _tasks_without_learning(judgements: Sequence[Judgement]) -> list[str]:
    unlearnt = [one for one in judgements if isinstance(one.finding, NothingLearnt)]
    if len(unlearnt) <= MOST_SENTENCES:
        return [_in_words(judgement) for judgement in unlearnt]
    where = listed([readable(judgement.task) for judgement in unlearnt])
    kind = _kind(unlearnt[0])
    metrics = dict.fromkeys(describe(judgement.metric).label for judgement in unlearnt)
    return [
        f"On {where} no loss{kind} is shown to beat {NO_SKILL_ANSWER} by {' or '.join(metrics)}."
    ]


def _tasks_not_told_apart(judgements: Sequence[Judgement]) -> list[str]:
    """Say which tasks are left out as they do not tell losses apart, and what each would show."""
    named = []
    for judgement in judgements:
        match judgement.finding:
            case NotToldApart(resolution=resolution) if math.isfinite(resolution):
                least = difference_text(resolution, describe(judgement.metric))
                named.append(f"{readable(judgement.task)} ({least})")
            case NotToldApart():
                named.append(readable(judgement.task))
    if not named:
        return []
    where = "This task is" if len(named) == 1 else "These tasks are"
    line = (
        f"Most losses cannot be told apart on {first_few(named)}. {where} left out of the count; "
        "in brackets: smaller differences may not show."
    )
    return [line]


def _tasks_with_better_baseline(judgements: Sequence[Judgement]) -> list[str]:
    """Return a line for each task on which a simple baseline is better than the best mean."""
    lines = []
    for judgement in judgements:
        baseline = _baseline(judgement)
        if baseline:
            lines.append(f"On {readable(judgement.task)} {baseline}.")
    return lines


def _baseline(judgement: Judgement) -> str:
    """Say that a simple baseline has a better mean than the best loss; "" if it has not."""
    if judgement.baseline is None:
        return ""
    metric = describe(judgement.metric)
    word = "lower" if metric.lower_is_better else "higher"
    value = with_unit(judgement.baseline.mean, metric)
    return f"{BASELINE_ANSWER} has a {word} {metric.label}: {value}"


def _kind(judgement: Judgement) -> str:
    """Return " with set supervision", to be put behind a noun; "" if all losses are meant."""
    return f" with {judgement.supervision} supervision" if judgement.supervision else ""


def _where(judgement: Judgement) -> str:
    """Return " with set supervision on birds", or only " on birds" if all losses are meant."""
    return f"{_kind(judgement)} on {readable(judgement.task)}"


def _leads(leader: Leader, metric: Metric) -> str:
    """Return a clause that says which loss has the best mean."""
    extreme = "smallest" if metric.lower_is_better else "largest"
    value = with_unit(leader.mean, metric)
    return f"{readable(leader.loss)} has the {extreme} {metric.label}, {value}"


def _sure(leader: Leader) -> str:
    """Return how sure it is that losses are worse, in brackets."""
    little = ", but two seeds say little" if leader.seeds < 3 else ""
    return f"({CONFIDENCE}{little})"


def difference_text(difference: float, metric: Metric) -> str:
    """Return a difference with its unit, rounded up to two digits, such as 9.1 points."""
    size = at_most(difference, metric)
    if not metric.percent:
        return size
    return f"{size} point" if size == "1" else f"{size} points"
