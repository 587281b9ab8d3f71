"""Run a comparison: from a spec to the folders of its cells, with the search of settings that it asks for."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from milbench._utils import locks
from milbench._utils.words import counted
from milbench.api.plan import Cell, Plan
from milbench.api.resolver import local_object
from milbench.engine.folders import Root, damaged
from milbench.engine.spec import Spec
from milbench.errors import INTERRUPTED, UsageError

if TYPE_CHECKING:
    from milbench.engine.cell import Status
    from milbench.engine.display import Display
    from milbench.engine.run import Processes
    from milbench.engine.worker import Job

RERUN = {
    "missing": ("missing",),
    "failed": ("missing", "failed"),
    "all": ("missing", "failed", "done"),
}
"""The states of the cells that each value of `--rerun` runs."""
HUGE_PAGES = (
    "THP_MEM_ALLOC_ENABLE",
    "1",
)  # PyTorch asks Linux for pages of 2 MB: slides load 1.5 times faster


def run_comparison(
    spec: Spec, root: Path, command: str, *, quiet: bool = False, dry_run: bool = False
) -> int:
    """Print the plan of a comparison and run its missing cells in the store of a root.

    The command is kept with the plan. A dry run only shows the plan; with `quiet` only failures are printed. Returns
    the exit code: 0 if every cell is done, 1 if some are not, 130 after Ctrl-C. Raises UsageError where the spec is
    wrong, and no cell was run; or no draw of a search has a metric to choose by.
    """
    os.environ.setdefault(*HUGE_PAGES)
    launch = _Launch(Root(root), spec, command, quiet, dry_run)
    if spec.tune:
        return launch.search_and_run()
    plan = launch.make_plan()
    return launch.run(_Stage(plan, plan.cells))


@dataclass(frozen=True)
class _Stage:
    """The cells of a plan that are run together: those of a stage of the search, or those that are compared."""

    plan: Plan
    cells: list[Cell]
    search_end: str = ""  # said when a stage of the search is done, "" for the comparison
    then: str = ""  # said by a dry run of what follows


class _Launch:
    def __init__(self, root: Root, spec: Spec, command: str, quiet: bool, dry_run: bool) -> None:
        from milbench._utils.devices import resolve_all, unusable_gpu
        from milbench.engine.run import check_cluster

        self.root, self.spec, self.command = root, spec, command
        self.quiet, self.dry_run = quiet, dry_run
        self.execution = spec.run
        if self.execution.cluster is None:
            self.devices = resolve_all(self.execution.device)
        elif self.execution.jobs:
            raise UsageError(
                "--jobs is for the devices of this machine; a cluster has as many jobs as workers"
            )
        else:  # each worker finds its own devices
            check_cluster(self.execution.cluster)
            self.devices = [self.execution.device]
        self.unusable_gpu = (
            unusable_gpu() if self.execution.device == "auto" and self.devices == ["cpu"] else ""
        )
        if self.execution.in_process and (self.execution.timeout or self.execution.cluster):
            raise UsageError(
                "run.in_process excludes run.timeout and --cluster, which run cells in other processes"
            )

    def make_plan(self) -> Plan:
        """Return the plan of the comparison, or that of the first stage of its search; it may download data."""
        from milbench.data import catalog
        from milbench.engine.planning import make_plan
        from milbench.engine.tuning import search_plan

        earlier = self._earlier()
        precision = earlier.precision if earlier else ""
        planner = search_plan if self.spec.tune else make_plan
        with catalog.downloads(not self.dry_run):
            return planner(self.spec, self._planning_device(), precision)

    def _tuned_plan(self, draws: Plan) -> Plan:
        """Return the plan of the comparison with the settings that finished draws choose."""
        from milbench.data import catalog
        from milbench.engine.tuning import tuned_plan

        with catalog.downloads(not self.dry_run):
            return tuned_plan(self.spec, draws, self._values(draws), self._planning_device())

    def _planning_device(self) -> str:
        """Return the device that decides what the precision auto is."""
        from milbench._utils.devices import resolve

        if self.execution.cluster:
            return str(resolve(self.execution.device))
        return self.devices[0]

    def _values(self, draws: Plan) -> dict[str, float]:
        """Return the metric of a search by the id of a cell, of the cells that are done and have it."""
        if draws.search is None:
            return {}
        values: dict[str, float] = {}
        for cell in draws.cells:
            folder = self.root.cell(cell.id)
            if not folder.is_done:
                continue
            value = folder.last_metrics().get(draws.search.metric)
            if value is not None:
                values[cell.id] = value
        return values

    def search_and_run(self) -> int:
        """Run the search stage by stage, then the comparison with the settings that it chose.

        The launch ends with a stage that has unfinished cells, since what follows depends on all of them. Nothing is
        kept between stages but the cells, so that the same command goes on from any point.
        """
        from milbench.engine.tuning import has_finalists

        if self.spec.tune is None:
            raise ValueError("the spec has no search")  # `run_comparison` checks it
        is_two_staged = has_finalists(self.spec.tune)
        stage = self._first_stage(is_last=not is_two_staged)
        code = self._run_search(stage)
        if not self._is_searched(stage, code):
            return code
        if is_two_staged:
            stage = self._second_stage(stage.plan)
            code = self._run_search(stage)
            if not self._is_searched(stage, code):
                return code
        plan = self._tuned_plan(stage.plan)
        return self.run(_Stage(plan, plan.compared))

    def _first_stage(self, *, is_last: bool) -> _Stage:
        """Return the stage of a search in which all draws are trained."""
        from milbench.engine.tuning import after_search

        plan = self.make_plan()
        end = "the search is done" if is_last else "the first stage of the search is done"
        return _Stage(plan, plan.cells, end, after_search(self.spec, plan))

    def _second_stage(self, first: Plan) -> _Stage:
        """Return the stage of a search in which the finalists of a finished first one get the other seeds."""
        from milbench.engine.tuning import after_search, finalists_plan

        plan = finalists_plan(self.spec, first, self._values(first))
        done = {cell.id for cell in first.cells}
        cells = [cell for cell in plan.cells if cell.id not in done]
        return _Stage(plan, cells, "the search is done", after_search(self.spec, plan))

    def _run_search(self, stage: _Stage) -> int:
        """Run a stage of the search and return the exit code; a dry run passes over one that is finished."""
        if self.dry_run and self._is_finished(stage):
            return 0
        return self.run(stage)

    def _is_searched(self, stage: _Stage, code: int) -> bool:
        """Return whether the launch may go on after a stage that ended with an exit code."""
        return code != INTERRUPTED and self._is_finished(stage)

    def _is_finished(self, stage: _Stage) -> bool:
        """Return whether every cell of a stage is done or has failed."""
        states = self.root.states(stage.cells).values()
        return all(state.status in ("done", "failed") for state in states)

    def _earlier(self) -> Plan | None:
        """Return the plan of earlier launches of the same name and origin, None if there are none."""
        if self.spec.name not in self.root.names():
            return None
        earlier = self.root.plan(self.spec.name)
        return earlier if earlier.spec.get("origin") == self.spec.origin else None

    def _save_plan(self, plan: Plan) -> Plan:
        """Write the plan, joined with that of earlier and concurrent launches of its origin, and return it."""
        self.root.make()
        plan = replace(
            plan,
            command=self.command,
            launched=time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        )
        with locks.lock(self.root.runs / f"{plan.name}.lock"):
            for leftover in self.root.runs.glob(f".{plan.name}.json.*"):  # of a killed process
                leftover.unlink(missing_ok=True)
            if earlier := self._earlier():
                plan = plan.joined(earlier)
            self.root.save(plan)
        return plan

    def run(self, stage: _Stage) -> int:
        """Print the plan of a stage and run its missing cells."""
        from milbench.engine.display import Display
        from milbench.engine.run import Processes, shard, worker_count

        plan = stage.plan
        # All cells count, also finished ones, so that a resumed cell keeps its number of threads.
        workers, slots = os.cpu_count() or 1, 1
        if self.execution.cluster is None:
            workers, slots = worker_count(self.devices, len(plan.cells), self.execution.jobs)
        threads = self.execution.threads or max(1, (os.cpu_count() or 1) // workers)
        cells = shard(stage.cells, self.execution.shard)
        states = self.root.states(plan.cells) | self.root.states(cells, weights=True)
        to_run = [cell for cell in cells if states[cell.id].status in RERUN[self.execution.rerun]]
        display = Display(plan, states, to_run, self.root, quiet=self.quiet)
        notes = [self.unusable_gpu] if self.unusable_gpu and to_run else []
        notes += damaged(plan, {cell.id: states[cell.id] for cell in to_run})
        if self.dry_run:
            from milbench.data import catalog
            from milbench.engine.estimate import outlook, published

            display.print_plan([*plan.notes, *published(plan)])
            with catalog.downloads(allowed=False):
                lines = outlook(plan, to_run, self.root, workers, threads, self.execution)
            then = [stage.then] if stage.then else []
            for line in (
                *lines,
                *then,
                *notes,
                "dry run: nothing was started; next: the same without --dry-run",
            ):
                display.print_line(line)
            return 0
        display.print_plan([*plan.notes[len(self.spec.notes) :], *notes])
        jobs = [self._job(plan, cell, slots, threads) for cell in to_run]
        with (
            display.live() if jobs else nullcontext(),
            closing(Processes(workers, threads)) as processes,
        ):
            if jobs:
                from milbench.engine.check import check_all

                for warning in check_all(jobs, processes):
                    display.print_line(warning)
            for cell in cells:
                if cell.id in display.to_run or states[cell.id].status != "failed":
                    self.root.cell(cell.id).tidy()
            stage = replace(stage, plan=self._save_plan(plan), cells=cells)
            return self._run_jobs(stage, jobs, display, processes)

    def _job(self, plan: Plan, cell: Cell, slots: int, threads: int) -> Job:
        from milbench.engine.worker import Job
        from milbench.networks.registry import registries

        entries = [
            registry.entries.get(getattr(cell, kind)) for kind, registry in registries().items()
        ]
        is_foreign = any(
            entry.origin != "milbench" for entry in entries if entry
        )  # a task's network is no entry
        local = tuple(  # classes that were defined in a notebook are sent to the workers
            (kind, plugin, registry.entry(getattr(cell, kind)).code)
            for kind, registry in registries().items()
            if (plugin := local_object(registry, getattr(cell, kind)))
        )
        folder = self.root.cell(cell.id)
        label, execution = plan.label(cell), self.execution
        searching = plan.is_searching
        return Job(
            cell,
            label,
            folder,
            execution,
            threads,
            self.devices,
            slots,
            searching,
            is_foreign,
            local,
        )

    def _run_jobs(
        self, stage: _Stage, jobs: list[Job], display: Display, processes: Processes
    ) -> int:
        """Run cells, bring MLflow up to date, also for earlier launches, and print how the stage ended."""
        from milbench.engine.mirror import Mirror
        from milbench.engine.run import ClusterLost, run_cells

        if self.execution.rerun == "all":
            for job in jobs:
                job.folder.remove()
        mirror = Mirror(self.root, stage.plan, log_models=self.execution.log_models)
        mirror.start()
        stopped = ""
        try:
            with closing(run_cells(jobs, processes, self.execution.cluster)) as finished_cells:
                for cell_id, state in finished_cells:
                    display.print_end(cell_id, state)
        except KeyboardInterrupt:
            stopped = "interrupted"
        except ClusterLost:
            stopped = "the cluster was lost"
        if warning := mirror.finish():
            display.print_line(warning)
        statuses = Counter(state.status for state in self.root.states(stage.cells).values())
        display.print_line(_describe_end(statuses, stopped, stage.search_end, self.execution.rerun))
        return (
            INTERRUPTED
            if stopped == "interrupted"
            else int(bool(stopped) or statuses["done"] < len(stage.cells))
        )


def _describe_end(statuses: Mapping[Status, int], stopped: str, search_end: str, rerun: str) -> str:
    """Describe in one line how a stage of the search (which says how it ends) or the comparison ended."""
    total, done = sum(statuses.values()), statuses["done"]
    if stopped:
        return f"{stopped}: {done} of {counted(total, 'cell')} done; the same command continues"
    if done == total:
        if search_end:
            return search_end
        cells = "the cell is" if total == 1 else f"all {total:,} cells are"
        return f"{cells} done"
    words: dict[Status, str] = {
        "failed": "failed",
        "missing": "unfinished",
        "running": "running in another launch",
    }
    parts = [
        f"{counted(statuses[status], 'cell')} {word}"
        for status, word in words.items()
        if statuses[status]
    ]
    has_failed = statuses["failed"] and rerun == "missing" and not search_end
    again = "to try again, add --rerun failed" if has_failed else "the same command continues"
    return f"{', '.join(parts)}; {again}"
