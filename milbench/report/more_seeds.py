"""How many seeds would separate the losses that may be the best."""

from __future__ import annotations

from milbench.report.formatting import first_few, number_word, readable
from milbench.report.judge import judge
from milbench.report.study import Study
from milbench.report.verdict import Best, NotToldApart

MOST_SEEDS = 1000
"""A larger number of seeds is not reported: nobody trains as many to tell two losses apart."""


def more_seeds(study: Study) -> list[str]:
    """Return how many seeds would separate the best mean from the other contenders.

    There is a line for each task with several contenders. A single line names the tasks on which
    MOST_SEEDS seeds would separate none of them.
    """
    lines = []
    endless = []
    for task in study.tasks:
        finding = judge(study, task).finding
        if not isinstance(finding, Best | NotToldApart) or len(finding.contenders) < 2:
            continue
        seeds = _seeds_to_separate(study, task, finding.contenders)
        line = _line(task, finding.contenders, seeds)
        if line:
            lines.append(line)
        else:
            endless.append(readable(task))
    if endless:
        lines.append(
            f"On {first_few(endless)} not even {MOST_SEEDS:,} seeds would separate the best one, "
            "if differences stay as small."
        )
    return lines


def _seeds_to_separate(study: Study, task: str, contenders: tuple[str, ...]) -> dict[str, int]:
    """Return contender -> the number of seeds that would separate it from the best mean.

    Contenders for which MOST_SEEDS seeds are too few are left out.
    """
    rows = list(study.table(task).index)
    found = study.contenders(task, study.primary(task))[study.kinds[0]]
    best, *others = contenders
    seeds = {}
    for other in others:
        needed = found.seeds_to_separate(rows.index(best), rows.index(other))
        if needed is not None and needed <= MOST_SEEDS:
            seeds[other] = needed
    return seeds


def _line(task: str, contenders: tuple[str, ...], seeds: dict[str, int]) -> str:
    """Return the line of a task; "" if `seeds` is empty."""
    if not seeds:
        return ""
    best, *others = contenders
    by_name = {readable(other): count for other, count in seeds.items()}
    fewest_seeds_first = sorted(by_name, key=lambda name: (by_name[name], name))
    first, *further = fewest_seeds_first
    parts = [f"{by_name[first]} seeds would separate {readable(best)} from {first}"]
    parts += [f"{by_name[name]} from {name}" for name in further]
    not_separated = len(others) - len(seeds)
    rest = ""
    if not_separated:
        rest = f", not even {MOST_SEEDS:,} from {number_word(not_separated)} more"
    stay = "differences stay" if len(others) > 1 else "difference stays"
    return f"On {readable(task)} about {first_few(parts)}{rest}, if the {stay}."
