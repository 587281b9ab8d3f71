"""Work that threads do on many files, whose results come in the order of the files."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from milbench.data.table import shown
from milbench.errors import UsageError

T = TypeVar("T")
R = TypeVar("R")


def read_all(read: Callable[[T], R], files: Sequence[T], named: Sequence[str], what: str = "files") -> Iterator[R]:
    """Yield what is read of files, see `in_order`; `named` is how messages name them.

    `read` may raise anything for a damaged file. When all have been tried, UsageError names the first twenty of these.
    """
    broken = []

    def one(number: int) -> R | UsageError:
        try:
            return read(files[number])
        except Exception as error:  # noqa: BLE001 every format has errors of its own for a damaged file
            return UsageError(f"{named[number]}: {(str(error) or type(error).__name__).splitlines()[0]}")

    for found in in_order(one, range(len(files)), f"reading {what}"):
        if isinstance(found, UsageError):
            broken.append(str(found))
        elif not broken:
            yield found
    if broken:
        raise UsageError(f"{len(broken)} of {len(files)} {what} cannot be read: {shown(broken, 20)}")


def in_order(work: Callable[[T], R], items: Sequence[T], label: str) -> Iterator[R]:
    """Yield the results of work on items in their order, done by threads that are never far ahead, with a bar."""
    from rich.progress import track

    from milbench._utils.console import console

    def results() -> Iterable[R]:
        waiting: deque[Future[R]] = deque()
        with ThreadPoolExecutor(threads()) as pool:
            for item in items:
                waiting.append(pool.submit(work, item))
                if len(waiting) > threads():
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()

    yield from track(results(), label, len(items), console=console, disable=not console.is_terminal, transient=True)


def threads() -> int:
    """Return how many threads read files at once: as many as this process has processors, at most 8."""
    return max(1, min(8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1))
