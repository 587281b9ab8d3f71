"""Reads many files in threads and yields the results in the order of the files."""

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from milbench.data.table import abbreviate
from milbench.errors import UsageError

T = TypeVar("T")
R = TypeVar("R")


def read_all(read: Callable[[T], R], files: Sequence[T], named: Sequence[str], what: str = "files") -> Iterator[R]:
    """Yield the result of `read` for each file; after all, UsageError has the errors of twenty, by names in `named`."""
    broken: list[str] = []

    def read_or_error(number: int) -> R | UsageError:
        try:
            return read(files[number])
        except Exception as error:  # noqa: BLE001 every format has errors of its own for a damaged file
            return UsageError(f"{named[number]}: {(str(error) or type(error).__name__).splitlines()[0]}")

    for result in in_order(read_or_error, range(len(files)), f"reading {what}"):
        if isinstance(result, UsageError):
            broken.append(str(result))
        elif not broken:
            yield result
    if broken:
        raise UsageError(f"{len(broken)} of {len(files)} {what} cannot be read: {abbreviate(broken, 20)}")


def in_order(work: Callable[[T], R], items: Sequence[T], label: str) -> Iterator[R]:
    """Yield the results of `work` on items in their order, computed in threads a few items ahead, with a bar."""
    from rich.progress import track

    from milbench._utils.console import console

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = min(8, cores)

    def results() -> Iterator[R]:
        waiting: deque[Future[R]] = deque()
        with ThreadPoolExecutor(threads) as pool:
            for item in items:
                waiting.append(pool.submit(work, item))
                if len(waiting) > threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()

    yield from track(results(), label, len(items), console=console, disable=not console.is_terminal, transient=True)
