"""The runner: finds the cells of a plan that are to be computed and distributes them over worker processes."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from milbench._utils import locks
from milbench.api.plan import Cell, Plan
from milbench.engine.worker import Job, JobResult, compute_cell
from milbench.errors import UsageError
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
        self.to_run = [cell for cell in self.plan.cells if self._wanted(self.status(cell))]

    def status(self, cell: Cell) -> str:
        """Return done, failed, interrupted, running or missing."""
        return self.known[cell.id].status if cell.id in self.known else "missing"

    def _wanted(self, status: str) -> bool:
        return self.rerun == "all" or status in ("missing", "interrupted") or (self.rerun == "failed" == status)


@dataclass(frozen=True)
class Options:
    """Where and how cells are computed; the results do not depend on it.

    Args:
        device: such as "cpu" or "cuda:0".
        jobs: how many cells are computed at a time.
        threads: how many threads each of them uses.
        data_dir: the folder of the data; None: the default one.
        fail_fast: whether to stop at the first cell that fails.
        cluster: the address of a dask scheduler; None: processes on this machine.
    """

    device: str
    jobs: int
    threads: int
    data_dir: Path | None
    fail_fast: bool = False
    cluster: str | None = None


class Interrupted(Exception):  # noqa: N818 it is no error
    """Raised when the user has stopped the launch and the runs of its unfinished cells are closed."""


def execute(
    launch: Launch,
    store: StoreWriter,
    workspace: Workspace,
    options: Options,
    command: str,
    report: Callable[[JobResult], None],
) -> None:
    """Compute the cells of a launch and log them.

    Args:
        launch: with the cells to compute.
        store: where the runs are logged.
        workspace: for checkpoints, locks and files of progress.
        options: where and how cells are computed.
        command: the command line, logged with the launch.
        report: is called with the result of each cell as it ends.

    Raises:
        Interrupted: Ctrl-C or SIGTERM stopped the launch; the next one continues it.
    """
    parent = ""
    jobs: list[Job] = []
    outcome = "KILLED"
    try:
        with _stoppable(), contextlib.ExitStack() as stack:
            parent = store.launch(launch.plan, command)
            stack.enter_context(locks.try_lock(workspace.lock(parent)))
            for cell in launch.to_run:
                jobs.append(_job(cell, launch, store, workspace, options, parent))  # noqa: PERF401 an interrupt keeps them
            store.close_stale([job.cell.id for job in jobs], [job.run_id for job in jobs])
            failed = False
            for done in _results(jobs, store, workspace, options):
                if done.status == "failed":
                    store.abandon([done.run_id], "FAILED", done.reason)
                report(done)
                failed = failed or done.status == "failed"
                if failed and options.fail_fast:
                    break
            outcome = "FAILED" if failed else "FINISHED"
    except KeyboardInterrupt:
        raise Interrupted from None
    finally:
        _stop_workers(options)
        for job in jobs:  # a worker that was killed could not remove its file
            workspace.progress(job.cell.id).unlink(missing_ok=True)
        store.abandon([job.run_id for job in jobs])
        if parent:
            store.end(parent, outcome)
            workspace.lock(parent).unlink(missing_ok=True)


def _job(cell: Cell, launch: Launch, store: StoreWriter, workspace: Workspace, options: Options, parent: str) -> Job:
    """Return the job of a cell: with a new run, or with the interrupted one where its checkpoint exists."""
    known = launch.known.get(cell.id)
    resumable = known and known.status == "interrupted" and workspace.checkpoint(cell.id).exists()
    run_id = known.run_id if known and resumable else store.child(launch.plan, cell, parent)
    return Job(
        cell,
        run_id,
        str(workspace.path),
        store.uri,
        options.device,
        options.threads,
        str(options.data_dir) if options.data_dir else None,
        resume=bool(resumable),
        again=launch.rerun == "all",
    )


def _results(jobs: list[Job], store: StoreWriter, workspace: Workspace, options: Options) -> Iterator[JobResult]:
    """Yield results as cells end. A worker process that crashes fails its own cell, and no other."""
    import joblib
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    left = {job.cell.id: job for job in jobs}
    suspects: list[Job] = []
    while left:
        # A worker that crashes ends the whole pool. The cells that were running are then computed one by one, from
        # their checkpoints, so that the cell that crashes its worker is found.
        batch = [replace(suspects.pop(), resume=True)] if suspects else list(left.values())
        parallel = joblib.Parallel(
            n_jobs=options.jobs, return_as="generator_unordered", pre_dispatch="n_jobs", batch_size=1
        )
        try:
            with _backend(options):
                for done in parallel(joblib.delayed(compute_cell)(job) for job in batch):
                    del left[done.cell_id]
                    yield done
        except TerminatedWorkerError as error:
            if len(batch) > 1:
                suspects = [job for job in left.values() if workspace.progress(job.cell.id).exists()] or list(
                    left.values()
                )
                continue
            (job,) = batch
            reason = f"the worker process died (out of memory?): {' '.join(str(error).split())[:300]}"
            store.end(job.run_id, "FAILED", reason)
            del left[job.cell.id]
            yield JobResult(job.cell.id, job.run_id, "failed", reason)


@contextmanager
def _backend(options: Options) -> Iterator[None]:
    import joblib

    if options.cluster is None:
        with joblib.parallel_config("loky" if options.jobs > 1 else "sequential"):
            yield
        return
    with _client(options.cluster), joblib.parallel_config("dask"):
        yield


def check_cluster(address: str) -> None:
    """Raise UsageError if no dask scheduler answers at the address."""
    with _client(address):
        pass


def _client(address: str) -> Any:
    try:
        from distributed import Client
    except ImportError:
        raise UsageError("--cluster needs dask: pip install 'milbench[dask]'") from None
    try:
        return Client(address, timeout=15)
    except (OSError, ValueError) as error:
        raise UsageError(f"no dask scheduler answers at {address}: {error}") from None


@contextmanager
def _stoppable() -> Iterator[None]:
    """Turn SIGTERM into KeyboardInterrupt, so that it ends a launch as cleanly as Ctrl-C."""

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _stop_workers(options: Options) -> None:
    if options.jobs > 1 and options.cluster is None:
        from joblib.externals.loky import get_reusable_executor

        get_reusable_executor().shutdown(wait=True, kill_workers=True)


def default_jobs(device: str, cells: int) -> int:
    """Return how many cells to compute at a time.

    On a CPU this is the number of cores, since parallel cells use them better than threads in one cell; on a GPU it is
    1.

    Args:
        device: such as "cpu" or "cuda:0".
        cells: how many cells there are.
    """
    return max(1, min(cells, os.cpu_count() or 1)) if device == "cpu" else 1
