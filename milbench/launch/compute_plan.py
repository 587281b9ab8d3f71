"""Print a plan and compute its missing cells."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

from milbench._utils.console import complain
from milbench._utils.interrupts import INTERRUPTED
from milbench.errors import StoreError, UsageError
from milbench.store.existing import deliver, has_store

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from milbench.api.plan import Plan
    from milbench.engine.runner import Launch
    from milbench.launch.events import Events, Failures
    from milbench.launch.progress import Display
    from milbench.launch.request import RunRequest
    from milbench.store.reader import StoreReader
    from milbench.store.workspace import Workspace


def compute_plan(make: Callable[[str], Plan], request: RunRequest, root: Path) -> int:
    """Print a plan and compute its missing cells.

    Args:
        make: returns the plan for a device; data that it needs may be downloaded meanwhile.
        request: how cells are computed.
        root: the folder of the workspace.

    Returns:
        The exit code: 0 if every cell is done (or nothing was to be computed), 1 if some are not, 130 after Ctrl-C.
    """
    from milbench.data import catalog
    from milbench.engine.precision import check_precision
    from milbench.engine.runner import Launch, worker_devices
    from milbench.store.reader import StoreReader
    from milbench.store.workspace import Workspace

    devices = _devices(request)
    with catalog.downloads(not request.dry_run):
        plan = make(devices[0])
        if request.smoke:
            from milbench.engine.smoke_run import shrink

            plan = shrink(plan)
        check_precision(plan.cells, devices)
        if request.log_models:
            _check_models(plan)
        # By the number of all cells, not of those that are left: a resumed cell keeps its number of threads.
        devices = worker_devices(devices, len(plan.cells), request.jobs, request.jobs_per_device)
        workspace = Workspace(root) if request.dry_run else Workspace(root).make()
        if not request.dry_run:
            deliver(workspace)
    reader = StoreReader(workspace) if has_store(workspace) else None
    launch = Launch(plan, reader.cell_runs() if reader else {}, request.rerun)
    display = _display(launch, workspace, request.output)
    display.planned()
    if reader and not reader.joins(plan):
        _say_apart(plan, request)
    if request.dry_run:
        display.over("dry run: nothing was started")
        return 0
    if not launch.to_run:
        return _nothing_to_run(launch, workspace, display, request.command)
    return _execute(launch, workspace, request, devices, display)


def _say_apart(plan: Plan, request: RunRequest) -> None:
    """Print that a launch of a part of a spec stands alone: a report would lack the other losses without a word."""
    from milbench._utils.console import console

    if request.output == "text":
        console.print(
            f"{plan.name}: the earlier launches of that name had other settings or another preset, and the report of "
            "this one is without them; the same --preset and -p would join them, --name keeps them apart",
            markup=False,
            soft_wrap=True,
        )


def _check_models(plan: Plan) -> None:
    """Raise UsageError where a network could be loaded with its data alone: it would be no model that can be moved."""
    from milbench.api.registry import tasks
    from milbench.api.task import Task

    for name in dict.fromkeys(cell.task_file or cell.task for cell in plan.cells):
        kind = tasks().cls(name)
        if kind.network_needs_data and kind.memory is Task.memory:
            raise UsageError(
                f"--log-models: the network of {kind.name} needs its data, and it has no Task.memory of them"
            )


def _devices(request: RunRequest) -> list[str]:
    """Return the devices that cells are dealt to; the workers of a cluster have their own, and do not share this one's.

    Raises:
        UsageError: the device is not there, or an option has no meaning.
    """
    from milbench._utils.devices import resolve, resolve_all

    if request.cluster is None:
        return resolve_all(request.device)
    for flag, number in (("--jobs", request.jobs), ("--jobs-per-device", request.jobs_per_device)):
        if number is not None:
            raise UsageError(f"{flag} is for the devices of this machine; a cluster has as many jobs as workers")
    return [str(resolve(request.device))]


def _threads(request: RunRequest, devices: list[str]) -> int:
    """Return the number of threads of each cell."""
    return request.threads or max(1, (os.cpu_count() or 1) // len(devices))


def _display(
    launch: Launch, workspace: Workspace, output: Literal["text", "quiet", "json"]
) -> Display | Events | Failures:
    from milbench._utils.console import console
    from milbench.launch.events import Events, Failures
    from milbench.launch.progress import Display

    if output == "text":
        return Display(console, launch, workspace)
    return Events(launch) if output == "json" else Failures(launch)


def _execute(
    launch: Launch, workspace: Workspace, request: RunRequest, devices: list[str], display: Display | Events | Failures
) -> int:
    from milbench.engine.cluster import ClusterLost
    from milbench.engine.runner import Interrupted, Options, execute
    from milbench.store.writer import StoreWriter

    how = Options(
        devices=devices,
        threads=_threads(request, devices),
        data_dir=request.data_dir,
        fail_fast=request.fail_fast,
        cluster=request.cluster,
        in_process=request.in_process,
        timeout=request.timeout,
        log_models=request.log_models,
    )
    store = StoreWriter(workspace)
    stopped, failed, problems = "", 0, []
    try:
        with display.live():
            try:
                failed = execute(launch, store, workspace, how, request.command, display)
            except Interrupted:
                stopped = "interrupted"
            except ClusterLost:
                stopped = "the cluster was lost"
        code = _outcome(launch.plan, store, display, request, stopped) or int(failed > 0)
    except StoreError as error:
        code = INTERRUPTED if stopped == "interrupted" else 1
        problems = [str(error), "the same command continues"]
    if waiting := store.waiting():
        kept = f"what {len(waiting)} runs wrote is kept in {workspace.spool}"
        problems.append(f"{kept}, and the next milbench run or milbench status delivers it")
    if problems:
        complain("; ".join(problems))
    return code or int(bool(problems))


def _outcome(
    plan: Plan, store: StoreReader, display: Display | Events | Failures, request: RunRequest, stopped: str
) -> int:
    """Print how many cells of a plan are done, and what stopped the launch, if anything; return the exit code."""
    done, cells = _done(plan, store), len(plan.cells)
    if stopped:
        what = "computes all of them again" if request.rerun == "all" else "continues"
        display.over(f"{stopped}: {done} of {cells} cells done; the same command {what}")
        return INTERRUPTED if stopped == "interrupted" else 1
    if request.smoke:
        display.over(f"smoke run: {done} of {cells} cells run from end to end; nothing was kept")
    else:
        left = f", {cells - done} not (milbench status {plan.name})" if done < cells else ""
        display.over(f"{done} of {cells} cells done{left}; next: milbench report {plan.name}")
    return 0 if done == cells else 1


def _nothing_to_run(launch: Launch, workspace: Workspace, display: Display | Events | Failures, command: str) -> int:
    """Record the launch, unless the last one was the same, and print how many cells are not done."""
    from milbench.store.reader import StoreReader

    undone = [status for cell in launch.plan.cells if (status := launch.status(cell)) != "done"]
    running = undone.count("running")
    left = [f"{running} cells are being computed by another launch"] if running else []
    if len(undone) > running:
        left.append(f"{len(undone) - running} cells are not done (see --rerun)")
    display.over("nothing to run" + (f", but {' and '.join(left)}" if left else ""))
    reader = StoreReader(workspace)
    is_new = not reader.was_launched_last(launch.plan)
    if is_new or reader.has_stale_launches():
        from milbench.store.writer import StoreWriter

        store = StoreWriter(workspace)
        store.close_stale([])
    if is_new:
        store.end(store.launch(launch.plan, command), "FINISHED")
    return 1 if undone else 0


def _done(plan: Plan, store: StoreReader) -> int:
    """Return how many cells of a plan are done."""
    runs = store.cell_runs()
    return sum(cell.id in runs and runs[cell.id].status == "done" for cell in plan.cells)
