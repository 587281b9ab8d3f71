"""The runner: finds the cells of a plan that are to be computed and gives them to a pool of workers."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol

from milbench._utils import locks
from milbench._utils.interrupts import STOPPING
from milbench.api.plan import Cell, Plan
from milbench.engine.cluster import Cluster, check_workers, connected
from milbench.engine.pools import InProcess, Pool, Processes
from milbench.engine.smoke_test import one_a_pair
from milbench.engine.worker import Job, JobResult
from milbench.errors import StoreError, UsageError
from milbench.store.records import CellRun
from milbench.store.workspace import Workspace
from milbench.store.writer import StoreWriter

Rerun = Literal["missing", "failed", "all"]


@dataclass
class Launch:
    """A plan with the cells that are to be computed.

    Args:
        plan: all cells of the comparison.
        known: cell id -> the run of the cell in the store.
        rerun: which cells to compute: those that are missing or interrupted, also those that failed, or all.

    Attributes:
        to_run: the cells to compute, in the order of the plan.
    """

    plan: Plan
    known: dict[str, CellRun]
    rerun: Rerun = "missing"
    to_run: list[Cell] = field(init=False)

    def __post_init__(self) -> None:
        # A search that has chosen is over, whatever is computed again.
        over = self.plan.search.draws if self.plan.search and self.plan.search.chosen else {}
        self.to_run = [cell for cell in self.plan.cells if cell.id not in over and self._wanted(self.status(cell))]

    def status(self, cell: Cell) -> str:
        """Return done, failed, interrupted, running or missing."""
        return self.known[cell.id].status if cell.id in self.known else "missing"

    def _wanted(self, status: str) -> bool:
        return self.rerun == "all" or status in ("missing", "interrupted") or (self.rerun == "failed" == status)


@dataclass(frozen=True)
class Options:
    """Where and how cells are computed; the results do not depend on it.

    Args:
        devices: that of each worker process, such as "cpu" or "cuda:0": as many cells are computed at a time.
        threads: how many threads each of them uses.
        data_dir: the folder of the data; None: the default one.
        fail_fast: whether to stop at the first cell that fails.
        cluster: the address of a dask scheduler, or "local:N"; None: processes of this machine.
        in_process: whether cells are computed in this process, for a debugger.
        timeout: seconds after which a cell fails; None: never.
        log_models: whether the network of every cell is logged as an MLflow model as well.
    """

    devices: Sequence[str]
    threads: int
    data_dir: Path | None
    fail_fast: bool = False
    cluster: str | None = None
    in_process: bool = False
    timeout: float | None = None
    log_models: bool = False


class Interrupted(Exception):  # noqa: N818 it is no error
    """Raised when the user has stopped the launch and the runs of its unfinished cells are closed."""


class LaunchCallback(Protocol):
    """The methods that are called while a launch goes on."""

    def ended(self, result: JobResult) -> None:
        """Handle the result of a cell."""

    def stopping(self) -> None:
        """Handle that the launch was told to stop, and waits for the checkpoints of the cells that are computed."""


def execute(
    launch: Launch, store: StoreWriter, workspace: Workspace, options: Options, command: str, callback: LaunchCallback
) -> int:
    """Compute the cells of a launch and log them.

    Args:
        launch: with the cells to compute.
        store: where the runs are logged.
        workspace: for checkpoints, locks and files of progress.
        options: where and how cells are computed.
        command: the command line, logged with the launch.
        callback: its methods are called.

    Returns:
        How many cells failed.

    Raises:
        Interrupted: Ctrl-C or SIGTERM stopped the launch; the next one continues it.
        ClusterLost: the scheduler of the cluster does not answer any more.
        StoreError: the store failed. The cells that ran are computed as far as it let them; the next launch continues.
        UsageError: a loss does not suit its task, or returns what a loss must not; the cluster does not answer, or one
            of its workers cannot reach the store. Nothing was started then.
    """
    stopping = threading.Event()
    with ExitStack() as stack:
        pool = _pool(options, len(launch.to_run), store, workspace, stopping, stack)
        pool.check(one_a_pair(launch.to_run), options.data_dir, options.timeout)
        sweep(workspace, launch)
        parent = store.launch(launch.plan, command)
        outcome, failure, failed = "KILLED", "", 0
        try:
            stack.enter_context(_stoppable(workspace.stop(parent), stopping, callback))
            stack.enter_context(locks.try_lock(workspace.lock(parent)))
            store.close_stale(cell.id for cell in launch.to_run)
            jobs = [_job(cell, launch, store, workspace, options, parent) for cell in launch.to_run]
            for result in (_recorded(result, jobs, store) for result in pool.results(jobs)):
                with suppress(OSError):  # its terminal or its reader has gone, and the launch goes on
                    callback.ended(result)
                failed += result.status == "failed"
                if result.status == "failed" and options.fail_fast:
                    break
                if result.status == "stopped" and result.reason:  # the store failed: other cells would fare no better
                    failure = result.reason
                    stopping.set()
            if not stopping.is_set():
                outcome = "FAILED" if failed else "FINISHED"
        except KeyboardInterrupt:
            pass
        finally:
            try:
                with suppress(OSError):  # on a disk that is full or read-only
                    workspace.stop(parent).touch()
                pool.close()
            finally:
                _clean_up(launch, store, workspace, parent, outcome)
    if failure:
        raise StoreError(failure)
    if outcome == "KILLED":
        raise Interrupted
    return failed


def _pool(
    options: Options, cells: int, store: StoreWriter, workspace: Workspace, stopping: threading.Event, stack: ExitStack
) -> Pool:
    if options.cluster is not None:
        client = stack.enter_context(connected(options.cluster))
        check_workers(client, workspace, store.uri)
        return Cluster(client, stopping)
    if options.in_process:
        return InProcess(stopping)
    return stack.enter_context(Processes(options.devices[:cells], stopping))


def _job(cell: Cell, launch: Launch, store: StoreWriter, workspace: Workspace, options: Options, parent: str) -> Job:
    if not locks.is_locked(workspace.lock(cell.id)):  # of an earlier launch, perhaps with another timeout
        workspace.hang(cell.id).unlink(missing_ok=True)
    return Job(
        cell=cell,
        comparison=launch.plan.name,
        launch=parent,
        workspace=str(workspace.path),
        tracking_uri=store.uri,
        device=options.devices[0],
        threads=options.threads,
        data_dir=str(options.data_dir) if options.data_dir else None,
        again=launch.rerun == "all",
        timeout=options.timeout,
        log_model=options.log_models,
        is_child=options.cluster is None and not options.in_process,
    )


def _recorded(result: JobResult, jobs: Iterable[Job], store: StoreWriter) -> JobResult:
    """Close the run of a cell that failed where its worker could not: it died. Return the result that now holds."""
    if result.status != "failed" or result.run_id:
        return result
    job = next(job for job in jobs if job.cell.id == result.cell_id)
    try:
        run_id = store.unfinished_run(result.cell_id, job.launch)
        store.end(run_id or store.start_cell(job.comparison, job.cell, job.launch, {}), "FAILED", result.reason)
    except StoreError as error:
        return replace(result, status="stopped", reason=f"{result.reason}; {error}")
    return result


def _clean_up(launch: Launch, store: StoreWriter, workspace: Workspace, parent: str, outcome: str) -> None:
    """Close the launch, and the runs of cells whose workers were ended."""
    to_run = [cell.id for cell in launch.to_run]
    for cell_id in to_run:  # a worker that was killed could not remove its files
        if not locks.is_locked(workspace.lock(cell_id)):
            workspace.progress(cell_id).unlink(missing_ok=True)
            workspace.hang(cell_id).unlink(missing_ok=True)
    with suppress(StoreError):  # the next launch does it
        store.deliver()
        if outcome != "FINISHED":
            store.close_stale(to_run)
    with suppress(StoreError):
        store.end(parent, outcome)
    workspace.lock(parent).unlink(missing_ok=True)
    if not any(locks.is_locked(workspace.lock(cell_id)) for cell_id in to_run):  # else workers are still to see it
        workspace.stop(parent).unlink(missing_ok=True)


def sweep(workspace: Workspace, launch: Launch) -> None:
    """Remove what killed launches have left among the checkpoints, if no other launch is going on."""
    folder = workspace.checkpoints
    if any(locks.is_locked(path) for path in folder.glob("*.lock")):
        return
    for pattern in ("*.stop", "*.progress", "*.hang", "*.damaged", "*.artifacts", ".*"):
        for path in folder.glob(pattern):
            with suppress(OSError):
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink()
    if launch.rerun != "all":
        for cell in launch.plan.cells:
            if launch.status(cell) == "done":
                workspace.checkpoint(cell.id).unlink(missing_ok=True)


@contextmanager
def _stoppable(request: Path, stopping: threading.Event, callback: LaunchCallback) -> Iterator[None]:
    """Let the first Ctrl-C or SIGTERM ask the workers to stop, and a second one stop them at once."""
    asked = threading.Event()

    def stop(*_: Any) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()
        stopping.set()
        request.touch()
        with suppress(OSError):  # the terminal was closed: that is why
            callback.stopping()

    heeded = [name for name in STOPPING if signal.getsignal(name) != signal.SIG_IGN]  # nohup ignores SIGHUP
    before = {name: signal.signal(name, stop) for name in heeded}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)


def worker_devices(devices: Sequence[str], cells: int, jobs: int | None, jobs_per_device: int | None) -> list[str]:
    """Return the device of each worker process, dealt in turn.

    On a CPU there are as many as cores, since parallel cells use them better than threads in one cell; on GPUs there is
    one a GPU.

    Args:
        devices: the different devices, such as ["cpu"] or ["cuda:0", "cuda:1"].
        cells: how many cells there are.
        jobs: how many worker processes the user wants in all; None: the user does not say.
        jobs_per_device: how many on each GPU; None: the user does not say.

    Raises:
        UsageError: both numbers are given, or the one for GPUs beside a CPU.
    """
    if jobs_per_device is None:
        on_cpu = list(devices) == ["cpu"]
        number = jobs or (max(1, min(cells, os.cpu_count() or 1)) if on_cpu else len(devices))
    elif jobs is not None:
        raise UsageError("--jobs and --jobs-per-device exclude each other: cells at a time in all, or on each GPU")
    elif "cpu" in devices:
        raise UsageError(
            f"--jobs-per-device {jobs_per_device} is for GPUs, and cells are computed on the CPU; use --jobs"
        )
    else:
        number = jobs_per_device * len(devices)
    return [devices[worker % len(devices)] for worker in range(number)]
