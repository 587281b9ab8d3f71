"""Run cells: joblib gives them to processes of this machine or of a dask cluster; one that dies fails one cell."""

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
from milbench.engine.worker import Job, follow_launcher, record_death, run_cell
from milbench.errors import UsageError

T = TypeVar("T")

FIRST_WORKER = 600.0  # seconds to wait for the first worker of a cluster: a batch system may start it late


class ClusterLost(Exception):  # noqa: N818 it is named for what has happened
    """Raised when the scheduler of a cluster does not answer any more."""


def run_cells(jobs: Sequence[Job], workers: int, cluster: str | None = None) -> Generator[tuple[str, State]]:
    """Run cells and yield the id and the state of each as it ends.

    When a process dies, the cells that were running continue from their checkpoints, each alone, until one of them
    kills its process again: that one has failed. With 0 workers all cells run in this process; a cluster is the address
    of a dask scheduler, or "local:N". Raises UsageError where there is none, or processes die before they begin.
    """
    if not workers or not jobs:
        yield from map(run_cell, jobs)
        return
    remaining = {job.cell.id: job for job in jobs}
    with _cluster(cluster) as client:
        while remaining:
            try:
                left = list(remaining.values())
                for cell_id, state in in_processes(run_cell, left, workers, jobs[0].threads, client):
                    del remaining[cell_id]
                    yield cell_id, state
            except Exception as error:
                if not (cause := _explain_death(error, client)):
                    raise
                if not any(job.folder.begun or job.folder.failure() for job in remaining.values()):
                    raise UsageError(f"worker processes die before they begin with a cell: {cause}") from None
                for cell_id, state in _one_by_one([*remaining.values()], client):
                    del remaining[cell_id]
                    yield cell_id, state


def _one_by_one(remaining: Sequence[Job], client: Any) -> Iterator[tuple[str, State]]:
    """Run the cells that were begun, one alone after the other, the latest first, until the process of one dies."""
    for job in remaining:
        if reason := job.folder.failure():  # its process lost its GPU and ended itself
            yield job.cell.id, State("failed", reason)
    suspects = [job for job in remaining if job.folder.begun]
    for job in sorted(suspects, key=lambda job: job.folder.begun, reverse=True):
        if job.folder.timed_out:
            yield record_death(job, "")
            continue
        try:
            yield from in_processes(run_cell, [job], 1, job.threads, client)
        except Exception as error:
            if not (cause := _explain_death(error, client)):
                raise
            yield record_death(job, cause)
            return


def in_processes(
    function: Callable[[Job], T], jobs: Sequence[Job], workers: int, threads: int, client: Any = None
) -> Iterator[T]:
    """Apply a function to jobs in other processes, by joblib, and yield the results as they come.

    The processes are `workers` of this machine, of so many `threads` each, or those of the cluster of a dask client.
    """
    from joblib import Parallel, delayed, parallel_config

    # joblib starts a process anew that keeps 300 MB more than at first, as one with the data of a task does.
    warnings.filterwarnings("ignore", "A worker stopped while some jobs were given", UserWarning)
    options: dict[str, Any] = {"return_as": "generator_unordered", "batch_size": 1}
    if client is None:
        # With one job joblib would compute in this process. Only `workers` cells are handed out at a time.
        initializer: dict[str, Any] = {"initializer": follow_launcher, "initargs": (os.getpid(),)}
        config = parallel_config(backend="loky", inner_max_num_threads=threads, **initializer)
        options |= {"n_jobs": max(workers, 2), "pre_dispatch": workers, "max_nbytes": None}
    else:
        config = parallel_config(backend="dask", client=client, wait_for_workers_timeout=FIRST_WORKER)
        options |= {"n_jobs": -1} if len(jobs) > 1 else {"n_jobs": -1, "pre_dispatch": 1}
    with config:
        outcomes = Parallel(**options)(delayed(function)(job) for job in jobs)
    try:
        yield from outcomes
    finally:
        outcomes.close()  # which ends processes that still compute


def _explain_death(error: Exception, client: Any) -> str:
    """Return the cause of the death of a process, "" for any other error. Raises ClusterLost."""
    if isinstance(error, BrokenProcessPool):
        exit_codes = re.search(r"The exit codes of the workers are \{(.*?)\}", str(error))
        return (exit_codes[1].strip() if exit_codes else "") or "its exit code is not known"
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
        if name.startswith(("distributed", "tornado", "asyncio")):  # cells report what happens to workers
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
