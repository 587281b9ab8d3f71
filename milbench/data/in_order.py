"""Compute results in threads ahead of time, and hand them out in order.

Files are read in this way, and batches to train on are made.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import repeat, takewhile
from typing import Any, TypeVar

from milbench.data.name_lists import abbreviate
from milbench.errors import UsageError

T = TypeVar("T")
R = TypeVar("R")
_MOST_THREADS = 8


def read_all(
    read: Callable[[T], R], files: Sequence[T], named: Sequence[str], what: str = "files"
) -> Iterator[R]:
    """Yield the result of `read` for each file, in order.

    If a file cannot be read, no more results are yielded. The other files are still read, so that
    one error can name all bad files.

    Args:
        read: reads a file. If it raises an exception of any kind, the file cannot be read.
        files: the files.
        named: how messages name each file.
        what: how the progress bar and messages call the files.

    Raises:
        UsageError: where files cannot be read, with the reasons for the first twenty.
    """
    broken: list[str] = []

    def read_or_error(number: int) -> R | UsageError:
        try:
            return read(files[number])
        # Every format has errors of its own for a damaged file.
        except Exception as error:  # noqa: BLE001
            reason = str(error) or type(error).__name__
            first_line = reason.splitlines()[0]
            return UsageError(f"{named[number]}: {first_line}")

    for result in in_order(read_or_error, range(len(files)), f"reading {what}"):
        if isinstance(result, UsageError):
            broken.append(str(result))
        elif not broken:
            yield result
    if broken:
        raise UsageError(
            f"{len(broken)} of {len(files)} {what} cannot be read: {abbreviate(broken, 20)}"
        )


def in_order(work: Callable[[T], R], items: Sequence[T], label: str) -> Iterator[R]:
    """Yield the results of `work` on items, in the order of the items, and show a progress bar.

    Threads compute the results a few items ahead. `label` is the text of the bar, which only
    a terminal shows.
    """
    from rich.progress import track

    from milbench._utils.console import console

    threads = min(_MOST_THREADS, _usable_cores())
    results = _ahead((partial(work, item) for item in items), threads)
    yield from track(
        results, label, len(items), console=console, disable=not console.is_terminal, transient=True
    )


def _usable_cores() -> int:
    """Return the number of cores that this process may use.

    Where the system does not say this, return the number of cores of the machine.
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def prefetched(batches: Iterable[T]) -> Iterator[T]:
    """Yield batches in their order, while a thread makes the next batch.

    If an error occurs while a batch is made, it is raised in place of the batch.
    """
    source = iter(batches)
    # This object, which is no batch, marks the end of the batches. Without it, `next` would raise
    # StopIteration, and `_ahead` would raise it again at `result()`. `_ahead` is a generator, in
    # which Python turns a StopIteration into a RuntimeError.
    end = object()
    make_batch = partial(next, source, end)
    # The list of jobs never ends: each job makes one more batch. `takewhile` stops at the first
    # result that is `end`. When the caller drops the iterator, the generator of `_ahead` is closed,
    # and its thread ends.
    made: Iterator[Any] = _ahead(repeat(make_batch), threads=1)
    return takewhile(lambda batch: batch is not end, made)


def _ahead(jobs: Iterable[Callable[[], R]], threads: int) -> Iterator[R]:
    """Yield the results of jobs in their order; each thread is one result ahead."""
    waiting: deque[Future[R]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        for job in jobs:
            waiting.append(pool.submit(job))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
