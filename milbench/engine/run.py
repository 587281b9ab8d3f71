"""Compute cells: joblib gives them to processes of this machine or of a dask cluster, and survives what kills these."""

from __future__ import annotations

import logging
import os
import re
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

from milbench._utils import extras
from milbench.engine.cell import State
from milbench.engine.spec import MOST_WORKERS
from milbench.engine.worker import Job, compute, died, serve
from milbench.errors import UsageError

T = TypeVar("T")

FIRST_WORKER = 600.0  # seconds to wait for the first worker of a cluster: a batch system may start it late


class ClusterLost(Exception):  # noqa: N818 it is named for what has happened
    """Raised when the scheduler of a cluster does not answer any more."""


def compute_all(jobs: Sequence[Job], workers: int, cluster: str | None = None) -> Generator[tuple[str, State]]:
    """Compute cells and yield, as they end, the id of each and what has become of it.

    Where a process dies, what the processes were computing is computed again, one cell alone, from its last checkpoint,
    until a cell is found whose process dies again: that one has failed. With 0 workers all are computed in this very
    process; a cluster is the address of a dask scheduler, or "local:N".

    Raises:
        ClusterLost: the scheduler has ended.
        UsageError: there is no such cluster, or worker processes die before they begin.
    """
    if not workers or not jobs:
        yield from map(compute, jobs)
        return
    left = {job.cell.id: job for job in jobs}
    for job in jobs:
        job.folder.forget_attempt()
    with _cluster(cluster) as client:
        while left:
            try:
                for cell_id, state in in_processes(compute, list(left.values()), workers, jobs[0].threads, client):
                    del left[cell_id]
                    yield cell_id, state
            except Exception as error:
                if not (how := _death(error, client)):
                    raise
                if not any(job.folder.begun or job.folder.failure() for job in left.values()):
                    raise UsageError(f"worker processes die before they begin with a cell: {how}") from None
                for cell_id, state in _one_by_one([*left.values()], client):
                    del left[cell_id]
                    yield cell_id, state


def _one_by_one(left: Sequence[Job], client: Any) -> Iterator[tuple[str, State]]:
    """Compute one cell alone after the other, the one that was begun last first, until one is found that has died."""
    for job in left:
        if reason := job.folder.failure():  # its process has ended itself, since it has lost its GPU
            yield job.cell.id, State("failed", reason)
    suspects = [job for job in left if job.folder.begun]
    for job in sorted(suspects, key=lambda job: job.folder.begun, reverse=True):
        if job.folder.timed_out:
            yield died(job, "")
            continue
        try:
            yield from in_processes(compute, [job], 1, job.threads, client)
        except Exception as error:
            if not (how := _death(error, client)):
                raise
            yield died(job, how)
            return


def in_processes(
    function: Callable[[Job], T], jobs: Sequence[Job], workers: int, threads: int, client: Any = None
) -> Iterator[T]:
    """Yield what a function returns for jobs, computed by joblib in other processes, as they end.

    So many `workers` of so many `threads` are processes of this machine; with a client they are those of its cluster.
    """
    from joblib import Parallel, delayed, parallel_config

    # joblib starts a process anew that keeps 300 MB more than at first, as one with the data of a task does.
    warnings.filterwarnings("ignore", "A worker stopped while some jobs were given", UserWarning)
    how: dict[str, Any] = {"return_as": "generator_unordered", "batch_size": 1}
    if client is None:
        # With one job joblib would compute in this process. Only `workers` cells are handed out at a time.
        begin: dict[str, Any] = {"initializer": serve, "initargs": (os.getpid(),)}
        config = parallel_config(backend="loky", inner_max_num_threads=threads, **begin)
        how |= {"n_jobs": max(workers, 2), "pre_dispatch": workers, "max_nbytes": None}
    else:
        config = parallel_config(backend="dask", client=client, wait_for_workers_timeout=FIRST_WORKER)
        how |= {"n_jobs": -1} if len(jobs) > 1 else {"n_jobs": -1, "pre_dispatch": 1}
    with config:
        outcomes = Parallel(**how)(delayed(function)(job) for job in jobs)
    try:
        yield from outcomes
    finally:
        outcomes.close()  # which ends processes that still compute


def _death(error: Exception, client: Any) -> str:
    """Return how a process has died, "" for an error of another kind. Raises ClusterLost."""
    if isinstance(error, BrokenProcessPool):
        found = re.search(r"The exit codes of the workers are \{(.*?)\}", str(error))
        return (found[1].strip() if found else "") or "its exit code is not known"
    if client is None:
        return ""
    from distributed import KilledWorker

    if isinstance(error, KilledWorker):
        return "each worker that computed it died"
    if client.status != "running":
        raise ClusterLost from None
    return ""


def check_cluster(address: str) -> None:
    """Raise UsageError where dask is not installed, or the address has no form that a cluster can have."""
    extras.load("distributed", "dask", "--cluster")
    if number := re.fullmatch(r"local:(.*)", address):
        if not re.fullmatch(r"[1-9]\d{0,3}", number[1]) or int(number[1]) > MOST_WORKERS:
            raise UsageError(f"--cluster {address}: expected local:N with N from 1 to {MOST_WORKERS} processes")
    elif not re.fullmatch(r"(\w+://)?[^/\s]+:\d+/?", address):
        raise UsageError(f"--cluster {address}: expected the address of a scheduler, tcp://HOST:PORT, or local:N")


@contextmanager
def _cluster(address: str | None) -> Iterator[Any]:
    """Connect to a dask cluster for the block, None for no address; raise UsageError where no scheduler answers."""
    if address is None:
        yield None
        return
    from distributed import Client, LocalCluster

    for name in [*logging.root.manager.loggerDict, "tornado", "asyncio"]:
        if name.startswith(("distributed", "tornado", "asyncio")):  # what happens to workers is told by their cells
            logging.getLogger(name).setLevel(logging.CRITICAL)
    kind, _, number = address.partition(":")
    with ExitStack() as stack:
        if kind == "local":
            cluster = LocalCluster(n_workers=int(number), threads_per_worker=1, dashboard_address=None)
            address = stack.enter_context(cluster).scheduler_address
        try:
            client = stack.enter_context(Client(address, timeout=15, set_as_default=False))
        except (OSError, ValueError) as error:
            raise UsageError(f"no dask scheduler answers at {address}: {error}") from None
        yield client


def worker_count(devices: Sequence[str], cells: int, jobs: int | None) -> tuple[int, int]:
    """Return how many cells are computed at a time in all, and at most on each GPU; `jobs` is what a user has given.

    On a CPU they are as many as cores, which parallel cells use better than threads in one cell; on GPUs one a GPU.
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
    found = re.fullmatch(r"(\d{1,9})/(\d{1,9})", part)
    index, count = (int(found[1]), int(found[2])) if found else (0, 10)
    if not 1 <= index <= count:
        with_i = " with i from 1 to n" if found else ""
        raise UsageError(f"--shard {part[:40]}: expected i/n{with_i}, such as 1/{max(count, 1)}")
    return list(cells[index - 1 :: count])
