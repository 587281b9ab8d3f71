"""Run cells in fresh processes of this machine or of a dask cluster; a process that dies fails one cell alone."""

import math
import os
import re
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from milbench.errors import UsageError
from milbench.processes.fresh import FreshProcesses, ProcessDied, TookTooLong, call_fresh
from milbench.running.cluster import ClusterLost, connected
from milbench.running.worker import Job, record_death, run_cell
from milbench.store.cell_folder import State

A = TypeVar("A")
T = TypeVar("T")


@dataclass(frozen=True)
class End(Generic[A, T]):
    """The outcome of one call in its own process."""

    argument: A
    outcome: T | ProcessDied
    """What the function returned, or how the process died without a result."""


CellEnd = End[Job, tuple[str, State]]
"""How the process of a cell ended. `run_cell` returns the id and the state of the cell."""


def run_cells(
    jobs: Sequence[Job],
    processes: FreshProcesses,
    cells_at_once: int,
    cluster: str | None = None,
) -> Generator[tuple[str, State]]:
    """Run cells and yield the id and the state of each as it ends.

    A cell whose process dies is tried once more after the others, alone, from its checkpoint: it may have died because
    several needed more memory than there is. A cluster is the address of a dask scheduler, or "local:N". Raises
    UsageError where there is none, or processes die before they begin.
    """
    # All jobs of a launch are executed alike.
    if jobs and jobs[0].execution.in_process:
        yield from map(run_cell, jobs)
        return

    compute: Callable[[Sequence[Job]], Iterator[CellEnd]]
    with ExitStack() as stack:
        if cluster is None:
            compute = partial(apply, run_cell, processes=processes, at_once=cells_at_once)
        else:
            compute = partial(_on_cluster, stack.enter_context(connected(cluster)))

        to_try_again = []
        for end in compute(jobs):
            if _deserves_another_try(end):
                to_try_again.append(end.argument)
            else:
                yield _cell_and_state(end)
        for job in to_try_again:
            for end in compute([job]):
                yield _cell_and_state(end)


def _deserves_another_try(end: CellEnd) -> bool:
    """Return whether a process died, and neither because the cell took too long nor with an error on record.

    Raises UsageError where it died before it began with the cell: others would, too.
    """
    death = end.outcome
    if not isinstance(death, ProcessDied):
        return False
    folder = end.argument.folder
    if isinstance(death, TookTooLong) or folder.timed_out or folder.failure():
        return False
    if not folder.begun and not folder.is_done:
        raise UsageError(f"processes die before they begin with a cell: {death}")
    return True


def _cell_and_state(end: CellEnd) -> tuple[str, State]:
    """Return the id and the state of a cell; where its process died, record that first."""
    if isinstance(end.outcome, ProcessDied):
        return record_death(end.argument, end.outcome)
    return end.outcome


def apply(
    function: Callable[[A], T], arguments: Sequence[A], processes: FreshProcesses, at_once: int
) -> Iterator[End[A, T]]:
    """Apply a function to each argument in a fresh process, so many at once, and yield how each process ended.

    Where the caller stops early, the processes that still compute are ended.
    """
    waiting = deque(arguments)
    running: dict[Future[T], A] = {}
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                argument = waiting.popleft()
                running[processes.submit(function, argument)] = argument
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                yield _end_of(running.pop(future), future)
    finally:
        if running:
            processes.shutdown()


def _end_of(argument: A, future: Future[T]) -> End[A, T]:
    try:
        return End(argument, future.result())
    except ProcessDied as death:
        return End(argument, death)


def _on_cluster(client: Any, jobs: Sequence[Job]) -> Iterator[CellEnd]:
    """Run cells on a dask cluster, each in a fresh process that its worker starts.

    Raises ClusterLost where the scheduler does not answer any more.
    """
    from distributed import KilledWorker, as_completed

    # dask caches pure functions, so that a retry would get the first result.
    job_of = {client.submit(call_fresh, run_cell, job, pure=False): job for job in jobs}
    for future in as_completed(job_of, loop=client.loop):
        job = job_of[future]
        try:
            yield _end_of(job, future)
        except KilledWorker:
            yield End(job, ProcessDied("each worker of the cluster that computed it died"))
        except Exception:
            # The futures of a lost scheduler raise errors of many types.
            if client.status != "running":
                raise ClusterLost from None
            raise


@dataclass(frozen=True)
class Capacity:
    """How many cells are computed at a time."""

    cells_at_once: int
    cells_per_gpu: int
    """How many at most share a GPU."""


def capacity(devices: Sequence[str], cells: int, asked: int | None) -> Capacity:
    """Return how many cells of a launch are computed at a time: as many as the user asked for by `--jobs`.

    By default one cell runs on each GPU. Without a GPU as many run as there are cores: cells make better use of cores
    than the threads of one cell do.
    """
    if list(devices) == ["cpu"]:
        cores = os.cpu_count() or 1
        by_default = max(1, min(cells, cores))
        return Capacity(asked or by_default, cells_per_gpu=1)
    at_once = asked or len(devices)
    return Capacity(at_once, cells_per_gpu=math.ceil(at_once / len(devices)))


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
