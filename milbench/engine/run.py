"""Run cells in processes of this machine, or on a dask cluster; a process that dies fails one cell."""

import logging
import os
import re
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, TypeVar

from milbench._utils import extras
from milbench._utils.process import uninterrupted
from milbench.engine.cell import State
from milbench.engine.spec import MOST_WORKERS
from milbench.engine.worker import Job, follow_launcher, record_death, run_cell
from milbench.errors import UsageError

T = TypeVar("T")
Ends = Iterator[tuple[Job, T | None, str]]
"""Jobs as they end, each with its result and "", or None and how its process has died."""

THREADS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
"""The variables that tell libraries how many threads to have."""


class ClusterLost(Exception):  # noqa: N818 it is named for what has happened
    """Raised when the scheduler of a cluster does not answer any more."""


def run_cells(
    jobs: Sequence[Job], processes: "Processes", cluster: str | None = None
) -> Generator[tuple[str, State]]:
    """Run cells and yield the id and the state of each as it ends.

    A cell whose process dies continues from its checkpoint after the others, alone, and has failed if it dies again.
    A cluster is the address of a dask scheduler, or "local:N". Raises UsageError where there is none, or processes die
    before they begin.
    """
    if not jobs or jobs[0].execution.in_process:
        yield from map(run_cell, jobs)
        return
    died = []
    with _cluster(cluster) as client:
        compute = partial(_on_cluster, client) if client else partial(processes.apply, run_cell)
        for job, end, cause in compute(jobs):
            if end or job.folder.failure() or job.folder.timed_out:
                yield end or record_death(job, cause)
            elif job.folder.begun or job.folder.is_done:
                died.append(job)
            else:
                raise UsageError(f"worker processes die before they begin with a cell: {cause}")
        for last in died:
            for job, end, cause in compute([last]):
                yield end or record_death(job, cause)


class Processes:
    """Processes of this machine, of so many threads each, that apply functions to jobs.

    One that has run somebody's own loss, task or network gets no other cell: what such code may change has no end.
    """

    def __init__(self, count: int, threads: int) -> None:
        self.count = count
        self.environment = {"PYTHONUNBUFFERED": "1", **dict.fromkeys(THREADS, str(threads))}
        self._idle: list[Any] = []

    def apply(
        self, function: Callable[[Job], T], jobs: Sequence[Job], *, by_one: bool = False
    ) -> Ends[T]:
        """Apply a function to jobs, and yield each as it ends; `by_one` process all of them, one after the other."""
        waiting, running, is_spent = deque(jobs), dict[Any, tuple[Any, Job]](), False
        try:
            while waiting or running:
                with uninterrupted():
                    while waiting and len(running) < (1 if by_one else self.count):
                        process = self._idle.pop() if self._idle else self._start()
                        job = waiting.popleft()
                        running[process.submit(function, job)] = process, job
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    process, job = running.pop(future)
                    result, cause = None, ""
                    try:
                        result = future.result()
                    except BrokenProcessPool as error:
                        exit_codes = re.search(
                            r"The exit codes of the workers are \{(.*?)\}", str(error)
                        )
                        cause = (
                            exit_codes[1].strip() if exit_codes else ""
                        ) or "its exit code is not known"
                    is_spent = job.is_foreign or (is_spent and by_one)
                    if cause or (is_spent and not (by_one and waiting)):
                        process.shutdown(kill_workers=True)
                    else:
                        self._idle.append(process)
                    yield job, result, cause
        finally:
            self._idle += [process for process, _ in running.values()]
            if running:
                self.close()

    def _start(self) -> Any:
        from joblib.externals.loky import ProcessPoolExecutor

        return ProcessPoolExecutor(
            1, initializer=follow_launcher, initargs=(os.getpid(),), env=self.environment
        )

    def close(self) -> None:
        """End the processes, also those that still compute."""
        with uninterrupted():
            while self._idle:
                self._idle.pop().shutdown(kill_workers=True)


def _on_cluster(client: Any, jobs: Sequence[Job]) -> Ends[tuple[str, State]]:
    """Run cells on a dask cluster. Raises ClusterLost where its scheduler does not answer any more."""
    from distributed import KilledWorker, as_completed

    futures = {client.submit(run_cell, job, pure=False): job for job in jobs}
    for future in as_completed(futures, loop=client.loop):
        try:
            yield futures[future], future.result(), ""
        except KilledWorker:
            yield futures[future], None, "each worker that computed it died"
        except Exception:
            if client.status != "running":
                raise ClusterLost from None
            raise


def check_cluster(address: str) -> None:
    """Raise UsageError where dask is not installed, or the address has no form that a cluster can have."""
    extras.load("distributed", "dask", "--cluster")
    if number := re.fullmatch(r"local:(.*)", address):
        if not re.fullmatch(r"[1-9]\d{0,3}", number[1]) or int(number[1]) > MOST_WORKERS:
            raise UsageError(
                f"--cluster {address}: expected local:N with N from 1 to {MOST_WORKERS} processes"
            )
    elif not re.fullmatch(r"(\w+://)?[^/\s]+:\d+/?", address):
        raise UsageError(
            f"--cluster {address}: expected the address of a scheduler, tcp://HOST:PORT, or local:N"
        )


@contextmanager
def _cluster(address: str | None) -> Iterator[Any]:
    """Connect to a dask cluster for the block, None for no address; raise UsageError where no scheduler answers."""
    if address is None:
        yield None
        return
    from distributed import Client, LocalCluster

    for name in [*logging.root.manager.loggerDict, "tornado", "asyncio"]:
        if name.startswith(
            ("distributed", "tornado", "asyncio")
        ):  # cells report what happens to workers
            logging.getLogger(name).setLevel(logging.CRITICAL)
    kind, _, number = address.partition(":")
    with ExitStack() as stack:
        if kind == "local":
            with uninterrupted():
                cluster = LocalCluster(
                    n_workers=int(number), threads_per_worker=1, dashboard_address=None
                )
            address = stack.enter_context(cluster).scheduler_address
        try:
            client = stack.enter_context(Client(address, timeout=15, set_as_default=False))
        except (OSError, ValueError) as error:
            raise UsageError(f"no dask scheduler answers at {address}: {error}") from None
        yield client


def worker_count(devices: Sequence[str], cells: int, jobs: int | None) -> tuple[int, int]:
    """Return how many cells run at a time, and how many at most on each GPU; `jobs` is what the user asked for.

    By default as many cells run as there are cores, which cells use better than threads of one cell do, or one a GPU.
    """
    if list(devices) == ["cpu"]:
        return jobs or max(1, min(cells, os.cpu_count() or 1)), 1
    jobs = jobs or len(devices)
    return jobs, -(-jobs // len(devices))


def shard(cells: Sequence[Any], part: str | None) -> list[Any]:
    """Return every n-th of the cells, from the i-th on, for the part "i/n" (i from 1 to n); all of them for None.

    Examples:
        >>> shard("abcdefg", "2/3")
        ['b', 'e']
    """
    if part is None:
        return list(cells)
    match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", part)
    index, count = (int(match[1]), int(match[2])) if match else (0, 10)
    if not 1 <= index <= count:
        with_i = " with i from 1 to n" if match else ""
        raise UsageError(f"--shard {part[:40]}: expected i/n{with_i}, such as 1/{max(count, 1)}")
    return list(cells[index - 1 :: count])
