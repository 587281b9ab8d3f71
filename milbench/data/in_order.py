"""Works in threads ahead of who takes the results, which come in their order: of files, and of batches to train on."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import repeat, takewhile
from typing import Any, TypeVar

from milbench.data.table import abbreviate
from milbench.errors import UsageError

T = TypeVar("T")
R = TypeVar("R")


def read_all(
    read: Callable[[T], R], files: Sequence[T], named: Sequence[str], what: str = "files"
) -> Iterator[R]:
    """Yield the result of `read` for each file; after all, UsageError has the errors of twenty, by names in `named`."""
    broken: list[str] = []

    def read_or_error(number: int) -> R | UsageError:
        try:
            return read(files[number])
        except Exception as error:  # noqa: BLE001 every format has errors of its own for a damaged file
            return UsageError(
                f"{named[number]}: {(str(error) or type(error).__name__).splitlines()[0]}"
            )

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
    """Yield the results of `work` on items in their order, computed in threads a few items ahead, with a bar."""
    from rich.progress import track

    from milbench._utils.console import console

    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    threads = min(8, cores)
    results = _ahead((partial(work, item) for item in items), threads)
    yield from track(
        results, label, len(items), console=console, disable=not console.is_terminal, transient=True
    )


def prefetched(batches: Iterable[T]) -> Iterator[T]:
    """Yield batches in their order, while a thread makes the next one, and raise an error of it in its place."""
    source, end = iter(batches), object()
    made: Iterator[Any] = _ahead(repeat(partial(next, source, end)), 1)
    return takewhile(lambda batch: batch is not end, made)


def _ahead(jobs: Iterable[Callable[[], R]], threads: int) -> Iterator[R]:
    """Yield the results of jobs, of which a number of threads compute as many ahead."""
    waiting: deque[Future[R]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        for job in jobs:
            waiting.append(pool.submit(job))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
