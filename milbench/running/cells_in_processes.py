"""Run cells in fresh processes, on this machine or on a dask cluster.

If a process dies, only its own cell fails.
"""

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
    """The end of one call, which was computed in a process of its own."""

    argument: A
    """The argument of the call."""
    outcome: T | ProcessDied
    """The result of the function, or how the process died without one."""


CellEnd = End[Job, tuple[str, State]]
"""How the process of a cell ended. `run_cell` returns the id and the state of the cell."""


def run_cells(
    jobs: Sequence[Job],
    processes: FreshProcesses,
    cells_at_once: int,
    cluster: str | None = None,
) -> Generator[tuple[str, State]]:
    """Run cells, and yield the id and the state of each cell as it ends.

    A cell whose process dies is tried once more, from its checkpoint, when all other cells have
    ended. It then runs alone, since several cells together may have needed more memory than there
    is. `cluster` is the address of a dask scheduler, or "local:N". Raises UsageError if there is no
    such cluster, or if processes die before they begin with a cell.
    """
    # The jobs of a launch share one `execution`, so the first one speaks for all.
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
    """Return whether the process of a cell died in a way that may not happen again.

    A second try would not help after a time limit or a recorded error. Raises UsageError if the
    process died before it began with the cell, since every other process would die too.
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
    """Return the id and the state of a cell. If its process died, record that first."""
    if isinstance(end.outcome, ProcessDied):
        return record_death(end.argument, end.outcome)
    return end.outcome


def apply(
    function: Callable[[A], T], arguments: Sequence[A], processes: FreshProcesses, at_once: int
) -> Iterator[End[A, T]]:
    """Apply a function to each argument, in fresh processes, and yield the end of each call.

    `at_once` processes run at a time. If the caller stops early, they are ended.
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
    """Return how a call ended. Raises what its function raised."""
    try:
        return End(argument, future.result())
    except ProcessDied as death:
        return End(argument, death)


def _on_cluster(client: Any, jobs: Sequence[Job]) -> Iterator[CellEnd]:
    """Run cells on a dask cluster, each in a fresh process that a worker of the cluster starts.

    Raises ClusterLost if the scheduler stops answering.
    """
    from distributed import KilledWorker, as_completed

    # pure=False: dask would give a second try of a cell the result of the first.
    job_of = {client.submit(call_fresh, run_cell, job, pure=False): job for job in jobs}
    for future in as_completed(job_of, loop=client.loop):
        job = job_of[future]
        try:
            yield _end_of(job, future)
        except KilledWorker:
            yield End(job, ProcessDied("each worker of the cluster that computed it died"))
        except Exception:
            # When the scheduler is lost, its futures raise errors of many types.
            if client.status != "running":
                raise ClusterLost from None
            raise


@dataclass(frozen=True)
class Capacity:
    """How many cells are computed at a time."""

    cells_at_once: int
    cells_per_gpu: int
    """How many of these cells may share a GPU."""


def capacity(devices: Sequence[str], cells: int, asked: int | None) -> Capacity:
    """Return how many cells are computed at a time, out of a number of `cells`.

    `asked` is the user's `--jobs`. By default one cell runs on each GPU. Without a GPU one cell
    runs on each core, since several cells use cores better than the threads of one cell.
    """
    if list(devices) == ["cpu"]:
        cores = os.cpu_count() or 1
        by_default = max(1, min(cells, cores))
        return Capacity(asked or by_default, cells_per_gpu=1)
    at_once = asked or len(devices)
    return Capacity(at_once, cells_per_gpu=math.ceil(at_once / len(devices)))


def shard(cells: Sequence[Any], part: str | None) -> list[Any]:
    """Return the cells of a part "i/n": every n-th cell from the i-th on.

    The number i is from 1 to n. The part None stands for all cells.

    Examples:
        >>> shard("abcdefg", "2/3")
        ['b', 'e']
    """
    if part is None:
        return list(cells)
    match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", part)
    if match is None:
        # What the user typed may be very long.
        raise UsageError(f"--shard {part[:40]}: expected i/n, such as 1/10")
    index = int(match[1])
    count = int(match[2])
    if not 1 <= index <= count:
        example = f"1/{max(count, 1)}"
        raise UsageError(f"--shard {part[:40]}: expected i/n with i from 1 to n, such as {example}")
    return list(cells[index - 1 :: count])
