"""Where cells are computed: in this process, or in processes of this machine; `cluster` has dask's.

A pool yields the result of every job that it has started. It starts none after its launch is told to stop.
"""

from __future__ import annotations

import queue
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool as ProcessDied
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, Self

from milbench.api.plan import Cell
from milbench.engine.worker import (
    Job,
    JobResult,
    compute_cell,
    end_with_the_launcher,
    has_lost_its_gpu,
    too_late,
)
from milbench.engine.worker_context import worker_context
from milbench.errors import UsageError
from milbench.store.workspace import Workspace

GRACE = 5.0
"""Seconds after a cell's timeout until its process is killed, if its own timer could not end it."""
SIGNAL_DELAY = 0.5
"""Seconds in which a signal that ended a worker process also reaches the launcher."""
IDLE = 3600.0
"""Seconds after which a worker process without work ends; it ends with its launcher anyhow."""


class Pool(Protocol):
    """Computes cells."""

    def check(self, cells: Iterable[Cell], data_dir: Path | None, timeout: float | None) -> None:
        """Try out the losses of some cells on their tasks. Raises UsageError if one does not suit."""

    def results(self, jobs: Sequence[Job]) -> Iterator[JobResult]:
        """Compute jobs and yield their results as they end."""

    def close(self) -> None:
        """End what is still computed, at once where that is possible."""


@dataclass
class InProcess:
    """Computes one cell after the other in this process, for a debugger. A plug-in that ends the process ends all.

    Args:
        stopping: set when no more cells are to be started.
    """

    stopping: threading.Event

    def check(self, cells: Iterable[Cell], data_dir: Path | None, timeout: float | None) -> None:  # noqa: ARG002
        """Try out the losses of some cells on their tasks. Raises UsageError if one does not suit."""
        from milbench.engine.smoke_test import complaint

        for cell in cells:
            _raise(complaint(cell, data_dir))

    def results(self, jobs: Sequence[Job]) -> Iterator[JobResult]:
        """Compute jobs and yield their results."""
        for job in jobs:
            if self.stopping.is_set():
                return
            yield compute_cell(job)

    def close(self) -> None:
        """Do nothing: what was computed has ended."""


class Processes:
    """Computes each cell in one of several worker processes of this machine.

    Every worker has a pool of its own: where a process dies, it is known which cell it was computing. The block of
    `with` begins with processes that import what they need, and ends them.

    Args:
        devices: that of each worker process, such as "cpu" or "cuda:0"; a cell gets that of the worker it comes to.
        stopping: set when no more cells are to be started.
    """

    def __init__(self, devices: Sequence[str], stopping: threading.Event) -> None:
        self._workers = [WorkerProcess(device) for device in devices]
        self._stopping, self._over = stopping, threading.Event()

    def __enter__(self) -> Self:
        for worker in self._workers:
            worker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the processes at once."""
        self._over.set()
        for worker in self._workers:
            worker.close()

    def check(self, cells: Iterable[Cell], data_dir: Path | None, timeout: float | None) -> None:
        """Try out the losses of some cells on their tasks. Raises UsageError if one does not suit."""
        self._workers[0].check(cells, data_dir, timeout)

    def results(self, jobs: Sequence[Job]) -> Iterator[JobResult]:
        """Compute jobs and yield their results as they end."""
        waiting: queue.SimpleQueue[Job] = queue.SimpleQueue()
        for job in jobs:
            waiting.put(job)
        ended: queue.SimpleQueue[JobResult | BaseException | None] = queue.SimpleQueue()
        for worker in self._workers:
            threading.Thread(target=self._follow, args=(worker, waiting, ended), daemon=True).start()
        at_work = len(self._workers)
        while at_work:
            result = ended.get()
            if isinstance(result, BaseException):
                raise result
            if result is None:
                at_work -= 1
            else:
                yield result

    def _follow(
        self,
        worker: WorkerProcess,
        waiting: queue.SimpleQueue[Job],
        ended: queue.SimpleQueue[JobResult | BaseException | None],
    ) -> None:
        """Give one worker a job after the other."""
        try:
            while not (self._stopping.is_set() or self._over.is_set()):
                job = replace(waiting.get_nowait(), device=worker.device)
                ended.put(worker.compute(job, self._stopping))
        except queue.Empty:
            pass
        except BaseException as error:  # noqa: BLE001 it is raised in the thread that waits for the results
            ended.put(error)
        ended.put(None)


class WorkerProcess:
    """One process at a time, which computes one cell after the other.

    Args:
        device: of its cells, such as "cpu" or "cuda:0".
    """

    def __init__(self, device: str = "cpu") -> None:
        self.device = device
        self._executor: Any = None
        self._submitting, self._closed = threading.Lock(), False

    def start(self) -> None:
        """Start the process, beside what this one does."""
        self._submit(end_with_the_launcher)

    def check(self, cells: Iterable[Cell], data_dir: Path | None, timeout: float | None) -> None:
        """Try out the losses of some cells on their tasks. Raises UsageError if one does not suit."""
        from milbench.engine.smoke_test import complaint

        for cell in cells:
            try:
                _raise(self._call(timeout, complaint, cell, data_dir))
            except (ProcessDied, TimeoutError):  # the cells of this pair will fail, and say so
                self.kill()

    def compute(self, job: Job, stopping: threading.Event) -> JobResult:
        """Return the result of a job, also if the process dies or hangs.

        Args:
            job: the job.
            stopping: set when the launch is told to stop.
        """
        try:
            result: JobResult = self._call(job.timeout and job.timeout + GRACE, compute_cell, job)
        except TimeoutError:
            result = JobResult(job.cell.id, "failed", f"it took longer than --timeout {job.timeout:g} seconds")
        except ProcessDied as error:
            late = too_late(job, Workspace(Path(job.workspace)))
            result = JobResult(job.cell.id, "failed", late or _death(error))
            # Ctrl-C reaches a process that has just started as well: then its death tells nothing about the cell.
            if stopping.wait(SIGNAL_DELAY):
                result = JobResult(job.cell.id, "stopped")
        if result.status == "failed" and (not result.run_id or job.device != "cpu" or has_lost_its_gpu(result)):
            self.kill()  # it is dead, or hangs, or may have lost its GPU to an error: the next cell gets a new process
        return result

    def close(self) -> None:
        """End the process at once, and start none again."""
        self._closed = True
        self.kill()

    def kill(self) -> None:
        """End the process at once; the next job gets a new one."""
        with self._submitting:
            executor, self._executor = self._executor, None
        if executor is None:
            return
        with suppress(queue.Empty):  # joblib gives up jobs that wait, and would then miss those that it has not noticed
            while True:
                executor._work_ids.get_nowait()  # noqa: SLF001
        executor.shutdown(wait=True, kill_workers=True)

    def _call(self, timeout: float | None, function: Callable[..., Any], *args: Any) -> Any:
        """Return the result of a call in the process; raise TimeoutError where it takes longer."""
        self._submit(end_with_the_launcher).result()  # its start is no part of the time that the call may take
        return self._submit(function, *args).result(timeout)

    def _submit(self, function: Callable[..., Any], *args: Any) -> Any:
        """Return the future of a call in the process, which is started if there is none."""
        with self._submitting:
            if self._closed:
                raise ProcessDied
            self._executor = self._executor or _one_process()
            return self._executor.submit(function, *args)


def _one_process() -> Any:
    """Return an executor of one process."""
    from joblib.externals.loky import ProcessPoolExecutor

    # joblib starts a process anew that keeps 300 MB more than at first, as one with the data of a task does.
    # The next cell gets the new process: nothing is lost, and nothing is to be done about it.
    warnings.filterwarnings("ignore", "A worker stopped while some jobs were given", UserWarning)
    return ProcessPoolExecutor(max_workers=1, timeout=IDLE, context=worker_context())


def _raise(complaint: str) -> None:
    if complaint:
        raise UsageError(complaint)


def _death(error: BaseException) -> str:
    text = " ".join(str(error).split())
    _, found, codes = text.partition("The exit codes of the workers are {")
    how = codes.partition("}")[0] if found else text[:200]
    return f"its process died ({how}); out of memory, or ended by the plug-in?"
