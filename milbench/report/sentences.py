"""What the data of a comparison exclude, a sentence a task: the losses that are worse than the best one."""

from collections import Counter

from milbench.api.metric_info import describe
from milbench.report.formatting import MOST_NAMED, counted, first_of, listed, number_word, readable, with_unit
from milbench.report.marks import equivalence_sentences, marks_frame
from milbench.report.study import Study

MOST_SENTENCES = 3  # of more tasks one sentence counts on how many of them each loss may be the best
MOST_SEEDS = 1000  # nobody trains more seeds to tell two losses apart
CONFIDENCE = "95 % confidence"


def sentences(study: Study) -> list[str]:
    """Return what is excluded, a sentence a task or one for many, or verdicts by a margin."""
    tasks = [task for task in study.tasks if study.table(task).notna().any(axis=None)]
    if not tasks:
        return study.plan.for_use or ["No cell of this comparison has a result yet."]
    marks = marks_frame(study)
    if len(marks) and (counts := Counter(marks.loc[marks["verdict"] == "pass", "variant"])):
        best = [f"{readable(variant)} {count}" for variant, count in counts.most_common(MOST_NAMED)]
        total = sum(len(study.info(task).marks) for task in study.tasks)
        return [f"Passed of {total} tests: {', '.join(best)}."]
    if verdicts := equivalence_sentences(study):
        return verdicts
    return [_of_task(study, task) for task in tasks] if len(tasks) <= MOST_SENTENCES else _of_many(study, tasks)


def more_seeds(study: Study) -> list[str]:
    """Return how many seeds would separate the best mean from the other contenders, a line a task with several."""
    lines = []
    for task in study.tasks:
        best, *others = (study.has_learnt(task) and _contenders(study, task)) or [""]
        found = {other: study.seeds_to_separate(task, best, other) for other in others}
        known = {other: seeds for other, seeds in found.items() if seeds and seeds <= MOST_SEEDS}
        counts = sorted(set(known.values()))[:MOST_NAMED]
        parts = [f"from {listed([readable(v) for v in known if known[v] == n])}" for n in counts]
        parts[1:] = [f"{n} {part}" for n, part in zip(counts[1:], parts[1:], strict=True)]
        rest = f", not even {MOST_SEEDS:,} from {number_word(left)} more" if (left := len(others) - len(known)) else ""
        seeds = f"about {counts[0]} seeds" if parts else f"not even {MOST_SEEDS:,} seeds"
        whom = f"{listed(parts)}{rest}" if parts else "from another contender"
        stay = "differences stay" if len(others) > 1 else "difference stays"
        if others:
            lines.append(f"On {readable(task)} {seeds} would separate {readable(best)} {whom}, if the {stay}.")
    return lines


def _contenders(study: Study, task: str) -> list[str]:
    found = study.summary(task)
    return [str(v) for v in found.index[found["contender"] & (found["supervision"] == study.kinds[0])]]


def _of_many(study: Study, tasks: list[str]) -> list[str]:
    unlearnt = [task for task in tasks if not study.has_learnt(task)]
    nothing = [f"No loss{_kind(study)} has learnt anything yet on {listed([readable(t) for t in unlearnt])}."]
    several = [t for t in tasks if t not in unlearnt and study.contenders(t, study.primary(t))]
    lines = nothing if unlearnt else []
    if not several:
        one = f"One seed cannot tell which loss is best on any of {len(tasks)} tasks."
        return lines if len(unlearnt) == len(tasks) else [one, *lines]
    counts = Counter(v for task in several for v in _contenders(study, task))
    order = [v for v in study.order() if study.supervision[v] == study.kinds[0]]
    parts = [
        f"{first_of([readable(v) for v in order if counts[v] == count])} on {count}"
        for count in sorted(set(counts.values()), reverse=True)[:2]
    ]
    worse = [readable(v) for v in order if not counts[v]]
    never = f" Worse than the best on all: {listed(worse)}." if 0 < len(worse) <= MOST_NAMED else ""
    found = f"{parts[0]} of {counted(len(several), 'task')}{''.join(f'; {part}' for part in parts[1:])}"
    return [f"Not shown to be worse than the best{_kind(study)} ({CONFIDENCE} on each task): {found}.{never}", *lines]


def _kind(study: Study) -> str:
    return "" if len(study.kinds) == 1 else f" with {study.kinds[0]} supervision"


def _of_task(study: Study, task: str) -> str:
    """Return the sentence of a task; at its end where cells lack, since a loss without them may be the best too."""
    done = study.cells_of(task)["status"] == "done"
    said = _excluded(study, task)
    return said if done.all() else f"{said.removesuffix('.')}; {done.sum()} of {len(done)} cells are done."


def _excluded(study: Study, task: str) -> str:
    found, metric, on = study.summary(task), study.metric(task), f"{_kind(study)} on {readable(task)}"
    found = found[(found["supervision"] == study.kinds[0]) & found["mean"].notna()]
    if not len(found):
        return f"No loss{_kind(study)} has a result{on.removeprefix(_kind(study))} yet."
    value, first = with_unit(found["mean"].iloc[0], metric), readable(str(found.index[0]))
    seeds = int(found["seeds"].max())
    if not study.has_learnt(task):
        who = "No loss has learnt anything" if len(found) > 1 else f"{first} has learnt nothing"
        name = study.line_metric(task)
        metric, own = describe(name), study.summary(task, name)["mean"][str(found.index[0])]
        line, value = with_unit(float(study.no_skill(task, name).mean()), metric), with_unit(float(own), metric)
        return f"{who} yet{on}: the best constant answer has a {metric.label} of {line}, {first} {value}."
    if len(found) == 1:
        said = f"{first} has a {metric.label} of {value} ({'mean of ' * (seeds > 1)}{counted(seeds, 'seed')})"
        return f"One loss has nothing to be better than{on}: {said}."
    leads = f"{first} has the {'smallest' if metric.lower_is_better else 'largest'} {metric.label}, {value}"
    names = [readable(name) for name in _contenders(study, task)]
    worse = [readable(str(name)) for name in found.index[~found["contender"]]]
    if not names:
        return f"One seed cannot tell which loss is best{on}; {leads}."
    sure = f"({CONFIDENCE}{', but two seeds say little' if seeds < 3 else ''})"
    if not worse:
        return f"No loss is shown to be worse than the best{on} {sure}; {leads}."
    if len(names) > MOST_NAMED and len(worse) <= MOST_NAMED:
        rest = f"The other {number_word(len(names))} are not told apart."
        return f"Worse than the best{on}: {listed(worse)} {sure}. {rest}"
    best = listed(names, "or") if len(names) <= MOST_NAMED else f"one of {', '.join(names[:MOST_NAMED])}, …"
    others = f"{worse[0]} is" if len(worse) == 1 else f"The other {number_word(len(worse))} are"
    return f"Best{on}: {best}. {others} worse {sure}."
