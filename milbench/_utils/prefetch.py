"""Make the next batch while a network is trained on this one."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def prefetched(batches: Iterable[T]) -> Iterator[T]:
    """Yield batches in their order, while a thread makes the one after that: two of them are in memory at once.

    Reading files and copying release Python's global lock. What the batches raise is raised here in its place.

    Examples:
        >>> list(prefetched(n * n for n in range(4)))
        [0, 1, 4, 9]
    """
    source = iter(batches)
    end = object()
    with ThreadPoolExecutor(1, thread_name_prefix="batches") as pool:
        following = pool.submit(next, source, end)
        while (batch := following.result()) is not end:
            following = pool.submit(next, source, end)
            yield batch  # type: ignore[misc]  # it is not the end
