"""Run cells in fresh processes of this machine or of a dask cluster; a process that dies fails one cell alone."""

import os
import re
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from milbench.engine.cell import State
from milbench.engine.cluster import ClusterLost, connected
from milbench.engine.worker import Job, record_death, run_cell
from milbench.errors import UsageError
from milbench.processes.fresh import FreshProcesses, ProcessDied, TookTooLong, call_fresh

A = TypeVar("A")
T = TypeVar("T")


@dataclass(frozen=True)
class End(Generic[A, T]):
    """How the process ended that applied a function to an argument: with a result, or by its death."""

    argument: A
    result: T | None = None
    death: ProcessDied | None = None


CellEnd = End[Job, tuple[str, State]]
"""How the process of a cell ended; its result is the id and the state of the cell."""


def run_cells(
    jobs: Sequence[Job], processes: FreshProcesses, at_once: int, cluster: str | None = None
) -> Generator[tuple[str, State]]:
    """Run cells and yield the id and the state of each as it ends.

    A cell whose process dies is tried once more after the others, alone, from its checkpoint: it may have died because
    several needed more memory than there is. A cluster is the address of a dask scheduler, or "local:N". Raises
    UsageError where there is none, or processes die before they begin.
    """
    if jobs and jobs[0].execution.in_process:
        yield from map(run_cell, jobs)
        return

    with ExitStack() as stack:
        if cluster is None:

            def compute(some: Sequence[Job]) -> Iterator[CellEnd]:
                return apply(run_cell, some, processes, at_once)

        else:
            client = stack.enter_context(connected(cluster))

            def compute(some: Sequence[Job]) -> Iterator[CellEnd]:
                return _on_cluster(client, some)

        to_try_again = []
        for end in compute(jobs):
            if end.death is None or _is_final(end):
                yield _cell_and_state(end)
            else:
                to_try_again.append(end.argument)
        for job in to_try_again:
            for end in compute([job]):
                yield _cell_and_state(end)


def _is_final(end: CellEnd) -> bool:
    """Return whether another try is pointless: the cell took too long, or has recorded an error already."""
    folder = end.argument.folder
    if isinstance(end.death, TookTooLong) or folder.timed_out or folder.failure():
        return True
    if not folder.begun and not folder.is_done:
        raise UsageError(f"processes die before they begin with a cell: {end.death}")
    return False


def _cell_and_state(end: CellEnd) -> tuple[str, State]:
    if end.result is not None:
        return end.result
    return record_death(end.argument, end.death or ProcessDied())


def apply(
    function: Callable[[A], T], arguments: Sequence[A], processes: FreshProcesses, at_once: int
) -> Iterator[End[A, T]]:
    """Apply a function to arguments, each in a fresh process and so many at once, and yield each end.

    Where the caller stops early, the processes that still compute are ended.
    """
    waiting = list(reversed(arguments))
    running: dict[Future[T], A] = {}
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                argument = waiting.pop()
                running[processes.submit(function, argument)] = argument
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                yield _end_of(running.pop(future), future)
    finally:
        if running:
            processes.shutdown()


def _end_of(argument: A, future: Future[T]) -> End[A, T]:
    try:
        return End(argument, result=future.result())
    except ProcessDied as death:
        return End(argument, death=death)


def _on_cluster(client: Any, jobs: Sequence[Job]) -> Iterator[CellEnd]:
    """Run cells on a dask cluster, each in a fresh process that its worker starts.

    Raises ClusterLost where the scheduler does not answer any more.
    """
    from distributed import KilledWorker, as_completed

    job_of = {client.submit(call_fresh, run_cell, job, pure=False): job for job in jobs}
    for future in as_completed(job_of, loop=client.loop):
        job = job_of[future]
        try:
            yield _end_of(job, future)
        except KilledWorker:
            yield End(job, death=ProcessDied("each worker of the cluster that computed it died"))
        except Exception:
            if client.status != "running":
                raise ClusterLost from None
            raise


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
    if match is None:
        raise UsageError(f"--shard {part[:40]}: expected i/n, such as 1/10")
    index = int(match[1])
    count = int(match[2])
    if not 1 <= index <= count:
        example = f"1/{max(count, 1)}"
        raise UsageError(f"--shard {part[:40]}: expected i/n with i from 1 to n, such as {example}")
    return list(cells[index - 1 :: count])
