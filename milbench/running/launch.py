"""Run a comparison: from a spec to the folders of its cells.

If the spec has a search for settings, its stages run first.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from milbench._utils import locks
from milbench._utils.console import plain, write_line
from milbench._utils.words import counted
from milbench.contracts.resolver import local_object
from milbench.errors import INTERRUPTED, UsageError
from milbench.experiment.cell import Cell
from milbench.experiment.launch_settings import Execution, Launch
from milbench.experiment.plan import Plan
from milbench.plugins.record import ImportRecord
from milbench.store.folders import Root, cell_problems
from milbench.store.late_notes import late_import_notes

if TYPE_CHECKING:
    from milbench.experiment.spec import Spec
    from milbench.experiment.stages import Stage, Stages
    from milbench.processes.fresh import FreshProcesses
    from milbench.running.cells_in_processes import Capacity
    from milbench.running.display import Display
    from milbench.running.worker import Job
    from milbench.store.cell_folder import State, Status

RERUN = {
    "missing": ("missing",),
    "failed": ("missing", "failed"),
    "all": ("missing", "failed", "done"),
}
"""The states of the cells that each value of `--rerun` runs."""


def run_comparison(spec: Spec, launch: Launch) -> int:
    """Print the plan of a comparison and run its missing cells, stage by stage.

    The next stage of a search depends on all cells of the stage before. So the launch ends after
    the first stage that has unfinished cells, such as cells of other shards. The same command goes
    on from any point, since the folders of the cells tell which cells are finished.

    Returns the exit code: 0 if every cell is done, 1 if some are not, 130 after Ctrl-C. Raises
    UsageError before any cell is run if the spec is wrong, and later if no draw of a search has a
    metric to choose by.
    """
    from milbench.experiment.stages import Stages

    # With this PyTorch asks Linux for memory pages of 2 MB. The features of slides, bags of many
    # instances, then load 1.5 times faster.
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    stages = Stages(spec, launch)
    runner = _Runner(spec.name, launch)
    stage = runner.first_stage(stages)
    while stage.is_search:
        code = runner.run_search(stage)
        if code == INTERRUPTED or not runner.is_finished(stage):
            return code
        stage = runner.stage_after(stage, stages)
    return runner.run(stage)


@dataclass(frozen=True)
class _Schedule:
    """Which cells of a stage this launch runs, and how many of them at a time."""

    stage: Stage
    cells: list[Cell]
    """The cells of the stage that are in the shard of this launch."""
    to_run: list[Cell]
    """The cells among `cells` that this launch computes."""
    states: dict[str, State]
    """Cell id -> the state of the cell, for all cells of the plan."""
    capacity: Capacity
    """How many cells are computed at a time."""
    threads: int
    """The threads of PyTorch for each cell."""


class _Runner:
    """Runs the stages of a comparison on the devices of this machine, or on a cluster."""

    def __init__(self, name: str, launch: Launch) -> None:
        from milbench._utils.devices import resolve_all, unusable_gpu

        self.name = name
        self.launch = launch
        self.root = Root(launch.root)
        self.execution = launch.execution
        _check_execution(self.execution)
        if self.execution.cluster is None:
            self.devices = resolve_all(self.execution.device)
        else:
            # Each worker of the cluster finds its own devices.
            self.devices = [self.execution.device]
        self.unusable_gpu = ""
        if self.execution.device == "auto" and self.devices == ["cpu"]:
            self.unusable_gpu = unusable_gpu()

    def first_stage(self, stages: Stages) -> Stage:
        """Return the first stage of the comparison; it may download data."""
        from milbench.data import catalog

        # Where the recipe has the precision `auto`, the cells of this launch get what it stood for
        # in the first launch. So all cells of a comparison have the same precision.
        earlier = self._earlier_plan()
        precision = earlier.precision if earlier else ""
        with catalog.downloads(allowed=not self.launch.dry_run):
            return stages.first(self._planning_device(), precision)

    def stage_after(self, stage: Stage, stages: Stages) -> Stage:
        """Return the stage that follows a finished one of the search."""
        from milbench.data import catalog

        values = self._search_values(stage.plan)
        with catalog.downloads(allowed=not self.launch.dry_run):
            return stages.after(stage, values, self._planning_device())

    def _planning_device(self) -> str:
        """Return the device that decides what the precision `auto` is."""
        from milbench._utils.devices import resolve

        # The precision is a part of each cell, so the plan must fix it before any worker has
        # started. For a cluster, whose devices are not known here, a device of this machine
        # decides.
        if self.execution.cluster:
            return str(resolve(self.execution.device))
        return self.devices[0]

    def _search_values(self, plan: Plan) -> dict[str, float]:
        """Return cell id -> the metric by which the search chooses, for finished cells."""
        if plan.search is None:
            return {}
        values: dict[str, float] = {}
        for cell in plan.cells:
            folder = self.root.cell(cell.id)
            if not folder.is_done:
                continue
            value = folder.last_metrics().get(plan.search.metric)
            if value is not None:
                values[cell.id] = value
        return values

    def run_search(self, stage: Stage) -> int:
        """Run a stage of the search and return the exit code.

        A dry run skips a stage that is finished.
        """
        if self.launch.dry_run and self.is_finished(stage):
            return 0
        return self.run(stage)

    def is_finished(self, stage: Stage) -> bool:
        """Return whether every cell of a stage is done or has failed."""
        states = self.root.states(stage.cells).values()
        return all(state.status in ("done", "failed") for state in states)

    def _earlier_plan(self) -> Plan | None:
        """Return the plan of earlier launches of this comparison, None if there are none.

        Another spec or other flags under the same name make another comparison.
        """
        self.root.check_place(self.name)
        if self.name not in self.root.names():
            return None
        earlier = self.root.plan(self.name)
        return earlier if earlier.origin == self.launch.origin else None

    def _save_plan(self, plan: Plan) -> Plan:
        """Join the plan with that of earlier launches, write the joined plan and return it."""
        self.root.make()
        plan = replace(
            plan,
            command=self.launch.command,
            launched=time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        )
        with locks.lock(self.root.runs / f"{plan.name}.lock"):
            # A process that was killed while it wrote the plan may have left a temporary file.
            for leftover in self.root.runs.glob(f".{plan.name}.json.*"):
                leftover.unlink(missing_ok=True)
            earlier = self._earlier_plan()
            if earlier:
                plan = plan.joined(earlier)
            self.root.save(plan)
        return plan

    def run(self, stage: Stage) -> int:
        """Print the plan of a stage, run its missing cells and return the exit code."""
        schedule = self._make_schedule(stage)
        if self.launch.dry_run:
            return self._show_outlook(schedule)
        display = self._display(schedule)
        # The notes of the spec are not repeated here: a report and a dry run show them.
        display.print_plan([*stage.plan.own_notes, *self._warnings(schedule)])
        if self.launch.quiet:
            self._print_unreadable(schedule)
        return self._compute(schedule, display)

    def _print_unreadable(self, schedule: _Schedule) -> None:
        """Say on standard error which cells cannot be read, since they make the exit code 1."""
        ids = {cell.id for cell in schedule.cells}
        states = {
            cell_id: state
            for cell_id, state in schedule.states.items()
            if cell_id in ids and state.status == "unreadable"
        }
        for line in cell_problems(schedule.stage.plan, states):
            write_line(sys.stderr, plain(line))

    def _make_schedule(self, stage: Stage) -> _Schedule:
        """Decide which cells of a stage this launch runs, and how many at a time."""
        from milbench.running.cells_in_processes import Capacity, capacity, shard

        cores = os.cpu_count() or 1
        if self.execution.cluster is None:
            # The number of cells decides how many run at a time, and with that how many threads
            # each cell gets. All cells of the plan count, also finished ones and those of earlier
            # stages, so that a resumed cell keeps its number of threads.
            count = len(stage.plan.cells)
            launch_capacity = capacity(self.devices, count, self.execution.jobs)
            cores_of_cell = max(1, cores // launch_capacity.cells_at_once)
            threads = self.execution.threads or cores_of_cell
        else:
            # The cluster decides how many cells run at a time. This capacity is for the check on
            # the first batch, which runs on this machine.
            launch_capacity = Capacity(cells_at_once=cores, cells_per_gpu=1)
            threads = self.execution.threads or 1
        cells = shard(stage.cells, self.execution.shard)
        # The display counts all cells of the plan.
        states = self.root.states(stage.plan.cells)
        # The digests of stored weights are checked for this shard only, since checking them takes
        # long for large weights.
        states |= self.root.states(cells, weights=True)
        statuses_to_run = RERUN[self.execution.rerun]
        return _Schedule(
            stage=stage,
            cells=cells,
            to_run=[cell for cell in cells if states[cell.id].status in statuses_to_run],
            states=states,
            capacity=launch_capacity,
            threads=threads,
        )

    def _display(self, schedule: _Schedule) -> Display:
        """Return the display for a stage."""
        from milbench.running.display import Display

        plan = schedule.stage.plan
        return Display(plan, schedule.states, schedule.to_run, self.root, quiet=self.launch.quiet)

    def _warnings(self, schedule: _Schedule) -> list[str]:
        """Return warnings about late imports, an unusable GPU, and damaged or unreadable cells.

        A late import is one that a plug-in makes while a cell is trained, not when the plug-in
        itself is imported. The id of the cell does not depend on what was imported late.
        """
        cells = schedule.stage.plan.cells
        warnings = late_import_notes(cells, self.root.imported_later(cells))
        if self.unusable_gpu and schedule.to_run:
            warnings.append(self.unusable_gpu)
        states = {cell.id: schedule.states[cell.id] for cell in schedule.to_run}
        for cell in schedule.cells:
            if schedule.states[cell.id].status == "unreadable":
                states[cell.id] = schedule.states[cell.id]
        return warnings + cell_problems(schedule.stage.plan, states)

    def _show_outlook(self, schedule: _Schedule) -> int:
        """Print the plan of a stage, an estimate of its time and what follows it. Start nothing."""
        from milbench.data import catalog
        from milbench.running.estimate import outlook, published_lines

        stage = schedule.stage
        display = self._display(schedule)
        # Below the plan: the notes on it, and the published results that the report will show.
        display.print_plan([*stage.plan.notes, *published_lines(stage.plan)])
        with catalog.downloads(allowed=False):
            lines = outlook(
                stage.plan,
                schedule.to_run,
                self.root,
                schedule.capacity.cells_at_once,
                schedule.threads,
                self.execution,
            )
        if stage.then:
            lines.append(stage.then)
        lines += self._warnings(schedule)
        lines.append("dry run: nothing was started; next: the same without --dry-run")
        for line in lines:
            display.print_line(line)
        return 0

    def _compute(self, schedule: _Schedule, display: Display) -> int:
        """Check the losses, save the plan, run the missing cells and return the exit code."""
        from milbench.processes.fresh import shared_processes

        jobs = [self._job(schedule, cell) for cell in schedule.to_run]
        processes = shared_processes(schedule.threads)
        try:
            with display.live() if jobs else nullcontext():
                if jobs:
                    self._check(schedule, jobs, display, processes)
                self._tidy(schedule)
                plan = self._save_plan(schedule.stage.plan)
                stage = replace(schedule.stage, plan=plan)
                return self._run_jobs(replace(schedule, stage=stage), jobs, display, processes)
        finally:
            processes.shutdown()

    def _check(
        self, schedule: _Schedule, jobs: list[Job], display: Display, processes: FreshProcesses
    ) -> None:
        """Try every loss on every task before any cell is computed, and print the warnings."""
        from milbench.running.first_batch_check import check_all

        for warning in check_all(jobs, processes, schedule.capacity.cells_at_once):
            display.print_line(warning)

    def _tidy(self, schedule: _Schedule) -> None:
        """Remove what ended processes have left in the folders of the cells.

        It is the progress and the error of an earlier attempt, temporary files, and the checkpoint
        of a finished cell. A failed cell that is run again then counts as missing and no longer as
        failed. A failed cell that is not run again keeps its error, and an unreadable one is left
        alone.
        """
        ids_to_run = {cell.id for cell in schedule.to_run}
        for cell in schedule.cells:
            status = schedule.states[cell.id].status
            if status in ("failed", "unreadable") and cell.id not in ids_to_run:
                continue
            # A cell that another launch computes at the moment is left as it is.
            self.root.cell(cell.id).tidy()

    def _job(self, schedule: _Schedule, cell: Cell) -> Job:
        """Return what a process needs to compute a cell."""
        from milbench.running.worker import Job

        plan = schedule.stage.plan
        return Job(
            cell=cell,
            label=plan.label(cell),
            folder=self.root.cell(cell.id),
            execution=self.execution,
            threads=schedule.threads,
            devices=self.devices,
            cells_per_gpu=schedule.capacity.cells_per_gpu,
            is_draw=plan.is_searching,
            notebook_plugins=_notebook_plugins(cell),
            records=_records(cell),
        )

    def _run_jobs(
        self, schedule: _Schedule, jobs: list[Job], display: Display, processes: FreshProcesses
    ) -> int:
        """Run cells, bring MLflow up to date and print the end. Return the exit code."""
        from milbench.running.cells_in_processes import run_cells
        from milbench.running.cluster import ClusterLost
        from milbench.store.mirror import Mirror

        stage = schedule.stage
        if self.execution.rerun == "all":
            for job in jobs:
                job.folder.remove()
        # MLflow also gets the cells that earlier launches of this plan have finished.
        mirror = Mirror(self.root, stage.plan, log_models=self.execution.log_models)
        mirror.start()
        code = 0
        stopped = ""
        try:
            cells_at_once = schedule.capacity.cells_at_once
            ends = run_cells(jobs, processes, cells_at_once, self.execution.cluster)
            # Closing the generator ends the processes that still compute.
            with closing(ends):
                for cell_id, state in ends:
                    display.print_end(cell_id, state)
        except KeyboardInterrupt:
            code = INTERRUPTED
            stopped = "interrupted"
        except ClusterLost:
            code = 1
            stopped = "the cluster was lost"
        warning = mirror.finish()
        if warning:
            display.print_line(warning)
        # Only the cells of this shard count, since other launches report on theirs.
        statuses = Counter(state.status for state in self.root.states(schedule.cells).values())
        display.print_line(_describe_end(statuses, stopped, stage.end, self.execution.rerun))
        if code == 0 and statuses["done"] < len(schedule.cells):
            return 1
        return code


def _check_execution(execution: Execution) -> None:
    """Raise UsageError if settings exclude each other, or the cluster cannot be used."""
    from milbench.running.cluster import check_cluster

    if execution.in_process and (execution.timeout or execution.cluster):
        raise UsageError(
            "run.in_process excludes run.timeout and --cluster, which run cells in other processes"
        )
    if execution.cluster is None:
        return
    if execution.jobs:
        raise UsageError(
            "--jobs is for the devices of this machine; a cluster has as many jobs as workers"
        )
    check_cluster(execution.cluster)


def _notebook_plugins(cell: Cell) -> tuple[tuple[str, Any], ...]:
    """Return the kind and the class or function of each plug-in that a notebook or script defines.

    They are sent to the workers by value, since a worker cannot import them.
    """
    from milbench.networks.known_networks import registries

    found: list[tuple[str, Any]] = []
    for kind, registry in registries().items():
        plugin = local_object(registry, cell.choices[kind].name)
        if plugin:
            found.append((kind, plugin))
    return tuple(found)


def _records(cell: Cell) -> dict[str, ImportRecord]:
    """Return kind (loss, task or network) -> the import record, for the plug-ins of a cell."""
    from milbench.networks.known_networks import registries

    records: dict[str, ImportRecord] = {}
    for kind, registry in registries().items():
        # A network that a task defines has no entry of its own: the record of the task covers it.
        entry = registry.entries.get(cell.choices[kind].name)
        if entry and entry.origin != "milbench":
            records[kind] = entry.record
    return records


def _describe_end(statuses: Mapping[Status, int], stopped: str, search_end: str, rerun: str) -> str:
    """Say in one line how the launch ended, and how to go on.

    Args:
        statuses: how many cells have each status.
        stopped: what stopped the launch, "" where nothing did.
        search_end: the line for a stage of a search whose cells are all done, "" for a comparison.
        rerun: the value of `--rerun`.
    """
    total = sum(statuses.values())
    done = statuses["done"]
    if stopped:
        return f"{stopped}: {done} of {counted(total, 'cell')} done; the same command continues"
    if done == total:
        if search_end:
            return search_end
        return "the cell is done" if total == 1 else f"all {total:,} cells are done"
    words: dict[Status, str] = {
        "failed": "failed",
        "missing": "unfinished",
        "running": "running in another launch",
        "unreadable": "not readable and left alone",
    }
    parts = [
        f"{counted(statuses[status], 'cell')} {word}"
        for status, word in words.items()
        if statuses[status]
    ]
    return f"{', '.join(parts)}; {_how_to_go_on(statuses, bool(search_end), rerun)}"


def _how_to_go_on(statuses: Mapping[Status, int], is_search: bool, rerun: str) -> str:
    """Say which command goes on after a launch that has left cells undone."""
    # A search goes on without the draws that failed.
    if statuses["failed"] and rerun == "missing" and not is_search:
        return "to try again, add --rerun failed"
    cells_to_run = statuses["missing"] + statuses["running"]
    if rerun != "missing":
        cells_to_run += statuses["failed"]
    # No launch runs an unreadable cell.
    if statuses["unreadable"] and not cells_to_run:
        return "the same command continues once the files can be read"
    return "the same command continues"
