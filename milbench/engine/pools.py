"""Where cells are computed: in this process, in processes of this machine, or on a dask cluster.

A pool yields the result of every job that it has started. It starts none after its launch is told to stop.
"""

from __future__ import annotations

import logging
import multiprocessing
import queue
import re
import threading
import time
import uuid
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from concurrent.futures.process import BrokenProcessPool as ProcessDied
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Protocol, Self

from milbench._utils import locks
from milbench.api.plan import Cell
from milbench.engine.worker import (
    Job,
    JobResult,
    check_worker,
    compute_cell,
    compute_in_cluster,
    end_with_the_launcher,
    has_lost_its_gpu,
    too_late,
)
from milbench.errors import UsageError
from milbench.store.workspace import Workspace

FIRST_WORKER = 600.0
"""Seconds to wait for the first worker of a cluster: a batch system may start it late."""
ANSWER = 15.0
"""Seconds to wait for the scheduler of a cluster to answer."""
POLL = 0.1
"""Seconds between two looks at a cluster for cells that have ended and workers that have joined."""
TRIES = 3
"""How often dask may give up a cell of which nothing shows that a worker has begun it."""
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
    return ProcessPoolExecutor(max_workers=1, timeout=IDLE, context=_context())


@cache
def _context() -> Any:
    """Return how worker processes are started: forked from one that has imported torch and MLflow, where that works."""
    if "forkserver" not in multiprocessing.get_all_start_methods():  # on Windows
        return None
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["milbench.engine.preload"])
    return context


def _raise(complaint: str) -> None:
    if complaint:
        raise UsageError(complaint)


def _death(error: BaseException) -> str:
    text = " ".join(str(error).split())
    _, found, codes = text.partition("The exit codes of the workers are {")
    how = codes.partition("}")[0] if found else text[:200]
    return f"its process died ({how}); out of memory, or ended by the plug-in?"


class ClusterLost(Exception):  # noqa: N818 it is named for what has happened
    """Raised when the scheduler of a cluster does not answer any more."""


@dataclass
class Cluster:
    """Computes cells on the workers of a dask cluster.

    Args:
        client: connected to the cluster.
        stopping: set when no more cells are to be started.
    """

    client: Any
    stopping: threading.Event
    _futures: dict[str, Any] = field(default_factory=dict, init=False)
    _lost: Counter[str] = field(default_factory=Counter, init=False)

    def check(self, cells: Iterable[Cell], data_dir: Path | None, timeout: float | None) -> None:
        """Try out the losses of some cells on their tasks, on this machine. Raises UsageError if one does not suit."""
        worker = WorkerProcess()
        try:
            worker.check(cells, data_dir, timeout)
        finally:
            worker.close()

    def results(self, jobs: Sequence[Job]) -> Iterator[JobResult]:
        """Compute jobs and yield their results as they end. What a lost worker was computing is computed elsewhere.

        Raises:
            ClusterLost: the scheduler has ended.
        """
        from distributed import as_completed

        waiting = list(reversed(jobs))
        running: dict[str, Job] = {}
        ended = as_completed(loop=self.client.loop)

        def submit(job: Job) -> None:
            future = self.client.submit(
                compute_in_cluster, job, key=f"milbench-{job.cell.id}-{uuid.uuid4().hex}", pure=False
            )
            running[future.key], self._futures[future.key] = job, future
            ended.add(future)

        # No more than the workers can compute at once: a cell that waits at a worker that dies would count as suspect.
        while running or (waiting and not self.stopping.is_set()):
            for future in ended.next_batch(block=False):
                job = running.pop(future.key)
                del self._futures[future.key]
                result = self._result(future, job)
                if self.client.status != "running":
                    raise ClusterLost
                if result is not None:
                    yield result
                elif not self.stopping.is_set():
                    waiting.append(job)
            time.sleep(POLL)
            # Workers may join at any time. Without any, cells wait for the next one.
            while waiting and not self.stopping.is_set() and len(running) < self._threads():
                submit(waiting.pop())

    def _threads(self) -> int:
        """Return how many cells the workers can compute at once. Raises ClusterLost where nobody answers."""
        try:
            return sum(self.client.nthreads().values())
        except OSError:
            raise ClusterLost from None

    def close(self) -> None:
        """Wait for the cells that are computed: the launch has asked them to stop."""
        from distributed import wait

        with suppress(TimeoutError, OSError, CancelledError), self.client.as_current():  # the cluster may be lost
            wait(list(self._futures.values()), timeout=GRACE)

    def _result(self, future: Any, job: Job) -> JobResult | None:
        """Return the result of a job; None where its worker was lost before it began."""
        from distributed import KilledWorker

        try:
            result: JobResult = future.result()
            return result
        except KilledWorker:
            self._lost[job.cell.id] += 1
            begun = Workspace(Path(job.workspace)).progress(job.cell.id).exists()
            if not begun and self._lost[job.cell.id] < TRIES:
                return None
            return JobResult(job.cell.id, "failed", "each worker that computed it died: out of memory, or ended by it?")
        except CancelledError:
            return None


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """Connect to a dask cluster for the block.

    Args:
        address: of a scheduler, or "local:N" for a cluster of N processes on this machine, which ends with the block.

    Raises:
        UsageError: dask is not installed, or no scheduler answers.
    """
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        raise UsageError("--cluster needs dask: pip install 'milbench[dask]'") from None
    for name in [*logging.root.manager.loggerDict, "tornado", "asyncio"]:
        if name.startswith(("distributed", "tornado", "asyncio")):  # what happens to workers is told by their cells
            logging.getLogger(name).setLevel(logging.CRITICAL)
    kind, _, number = address.partition(":")
    with ExitStack() as stack:
        if kind == "local":
            if not number.isdigit() or not 0 < int(number) <= 1024:
                raise UsageError(f"--cluster {address}: expected local:N with N from 1 to 1024 processes")
            cluster = LocalCluster(n_workers=int(number), threads_per_worker=1, dashboard_address=None)
            scheduler = stack.enter_context(cluster).scheduler_address
        elif re.fullmatch(r"(\w+://)?[^/\s]+:\d+/?", address):
            scheduler = address
        else:
            raise UsageError(f"--cluster {address}: expected the address of a scheduler, tcp://HOST:PORT, or local:N")
        try:
            client = stack.enter_context(Client(scheduler, timeout=ANSWER, set_as_default=False))
        except (OSError, ValueError) as error:
            raise UsageError(f"no dask scheduler answers at {address}: {error}") from None
        yield client


def check_workers(client: Any, workspace: Workspace, tracking_uri: str) -> None:
    """Raise UsageError if there is no worker, or if one cannot reach the store."""
    token = workspace.lock(f"seen-by-workers-{uuid.uuid4().hex}")
    token.touch()  # also where the file system has no locks
    try:
        with locks.try_lock(token):  # other launches sweep the folder, but not while a lock in it is held
            with suppress(TimeoutError):
                client.wait_for_workers(1, timeout=FIRST_WORKER)
            reasons = client.run(check_worker, str(workspace.path), tracking_uri, token.name, on_error="return")
    finally:
        token.unlink(missing_ok=True)
    if not reasons:
        raise UsageError(f"the dask cluster had no worker for {FIRST_WORKER:.0f} seconds")
    for worker, reason in reasons.items():
        if reason:
            raise UsageError(f"worker {worker} cannot reach the store: {reason}")
