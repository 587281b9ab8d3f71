"""What a comparison says in one sentence a task: which losses may be the best."""

from __future__ import annotations

from collections import Counter

from milbench.report.equivalence import equivalence_sentences
from milbench.report.formatting import counted, with_unit
from milbench.report.marks import passed
from milbench.report.study import Study

MOST_SENTENCES = 3
"""Of more tasks one sentence counts on how many of them each loss may be the best."""
MOST_NAMED = 6


def sentences(study: Study) -> list[str]:
    """Return which losses may be the best, a sentence a task or one for many, or verdicts by a margin."""
    tasks = [task for task in study.tasks if study.table(task).notna().any(axis=None)]
    if not tasks:
        return ["No cell of this comparison has a result yet."]
    if counts := passed(study):
        best = [f"{variant} {count}" for variant, count in counts.most_common(MOST_NAMED)]
        total = sum(len(study.info(task).marks) for task in study.tasks)
        return [f"Passed of {total} tests: {', '.join(best)}."]
    if verdicts := equivalence_sentences(study):
        return verdicts
    if len(tasks) <= MOST_SENTENCES:
        return [f"On {task} {_of_task(study, task)}{_left(study, task)}." for task in tasks]
    several = [task for task in tasks if study.summary(task)["contender"].any()]
    if not several:
        return [f"One seed a loss on {counted(len(tasks), 'task')}: no loss can be named the best."]
    counts = Counter(v for task in several for v in _contenders(study, task))
    found: list[str] = []
    for count in sorted(set(counts.values()), reverse=True)[:2]:
        names = [variant for variant in study.order() if counts[variant] == count]
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        found.append(f"{', '.join(names[:MOST_NAMED])}{more} on {count}{'' if found else f' of {len(several)} tasks'}")
    kind = "" if len(study.kinds) == 1 else f" with {study.kinds[0]} supervision"
    return [f"Contenders for the best loss{kind}, with 95 % confidence on each task: {'; '.join(found)}."]


def _contenders(study: Study, task: str) -> list[str]:
    found = study.summary(task)
    return [str(v) for v in found.index[found["contender"] & (found["supervision"] == study.kinds[0])]]


def _left(study: Study, task: str) -> str:
    """Return the end of a sentence, which says where cells lack, since a loss without them may be the best too."""
    done = study.cells_of(task)["status"] == "done"
    return "" if done.all() else f" ({done.sum()} of {len(done)} cells done)"


def _of_task(study: Study, task: str) -> str:
    found, metric = study.summary(task), study.metric(task)
    found = found[(found["supervision"] == study.kinds[0]) & found["mean"].notna()]
    names = [str(name) for name in found.index[found["contender"]]]
    if not len(found):
        return "no loss has a result yet"
    best = found.iloc[0]
    value = f"{'smallest' if metric.lower_is_better else 'largest'} {metric.label}, {with_unit(best['mean'], metric)}"
    seeds = int(found["seeds"].max())
    if len(found) == 1:
        return f"{found.index[0]} has a mean {metric.label} of {with_unit(best['mean'], metric)}"
    if not names:
        return f"{found.index[0]} has the {value}; one seed can't tell whether it is the best loss"
    weak = f"; with {counted(seeds, 'seed')} that says little" if seeds < 3 else ""
    if len(names) == 1:
        return f"the best loss is {names[0]}, with 95 % confidence{weak}"
    if len(names) == len(found):
        return f"any of the {len(names)} losses may be the best{weak}; {found.index[0]} has the {value}"
    if len(names) > MOST_NAMED:
        few = ", ".join(names[:MOST_NAMED])
        return f"the best loss is one of {len(names)} of {len(found)}, with 95 % confidence{weak}: {few}, …"
    return f"the best loss is {', '.join(names[:-1])} or {names[-1]}, with 95 % confidence{weak}"
