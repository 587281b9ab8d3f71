"""A comparison as it stood at an earlier launch, which is named by a git commit or by the id of the launch."""

from __future__ import annotations

import itertools
import math

from milbench.api.results import Results
from milbench.errors import UsageError, closest
from milbench.store.collect import results_of
from milbench.store.reader import StoreReader
from milbench.store.records import CODE, COMMITS, PARENT, CellRun, RunSummary

FEWEST = 4
"""Characters that name a commit or a launch, at least."""
_SHOWN = 5


def collect_at(store: StoreReader, name: str, moment: str = "") -> Results:
    """Return everything that a report shows of a comparison, with the code of its time alone.

    Of a loss or a task whose code has changed between launches, the cells of the newest of these launches count.

    Args:
        store: the store to read.
        name: the comparison.
        moment: the beginning of a commit or of a launch's id: the comparison as it was after the last such launch; "":
            as it is now.

    Raises:
        UsageError: there is no such comparison or launch, or its plan cannot be read.
    """
    until = launch_at(store, name, moment) if moment else ""
    return results_of(store, *store.plan(name, until), _runs(store, name, until))


def launch_at(store: StoreReader, name: str, moment: str) -> str:
    """Return the id of the newest launch of a comparison that has a commit, or whose id is this one.

    A launch has the commits of the folder in which it was started and of the folders of its plug-in files, and
    milbench's own where that was run from a checkout.

    Args:
        store: the store to read.
        name: the comparison.
        moment: the beginning of the commit or id, of FEWEST characters at least.

    Raises:
        UsageError: there is no such comparison, no such launch, or `moment` begins several commits or ids.
    """
    launches = store.all_launches(name)
    codes: dict[str, set[str]] = {}
    for run in store.search("cell"):
        codes.setdefault(run.tags.get(PARENT, ""), set()).add(run.tags.get(CODE, ""))
    known = {run.run_id: {*run.tags.get(COMMITS, "").split(","), *codes.get(run.run_id, ())} - {""} for run in launches}
    meant = {text for run_id, commits in known.items() for text in (run_id, *commits) if text.startswith(moment)}
    if len(moment) < FEWEST:
        raise UsageError(f"{name}@{moment}: give {FEWEST} characters of a commit or of the id of a launch at least")
    if len({text.removesuffix("-dirty") for text in meant}) > 1:
        raise UsageError(f"{name}@{moment} may be any of {', '.join(sorted(meant))}: give more of it")
    found = [run for run in launches if meant & {run.run_id, *known[run.run_id]}]
    if found:
        return found[0].run_id
    names = {text[: len(moment)] for run_id, commits in known.items() for text in (run_id, *commits)}
    near = closest(moment, sorted(names))
    hint = f"; did you mean {name}@{near}?" if near else ""
    raise UsageError(f"no launch of {name} has the commit or the id {moment!r}{hint} ({_listed(launches, known)})")


def _listed(launches: list[RunSummary], known: dict[str, set[str]]) -> str:
    """Return the newest launches in words."""
    named = [f"launch {run.run_id[:8]} of {_shortened(known[run.run_id])}" for run in launches[:_SHOWN]]
    more = f", and {len(launches) - _SHOWN} earlier ones" if len(launches) > _SHOWN else ""
    return f"there are: {', '.join(named)}{more}"


def _shortened(commits: set[str]) -> str:
    return " and ".join(sorted(text[:8] for text in commits)) or "no known commit"


def _runs(store: StoreReader, name: str, until: str) -> dict[str, CellRun]:
    """Return the runs of cells that counted before the launch after `until`, else those that count now.

    A cell that was computed again has a run for each time. One that was done only later is the same computation.
    """
    launches = store.all_launches(name)
    newer = list(itertools.takewhile(lambda run: run.run_id != until, launches)) if until else []
    then = store.cell_runs(newer[-1].start if newer else math.inf)
    return store.cell_runs() | {cell: run for cell, run in then.items() if run.status == "done"}
