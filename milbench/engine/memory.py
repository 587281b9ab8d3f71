"""Repeats a computation on fewer bags at a time where memory runs out."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

SIGNS = ("out of memory", "can't allocate memory", "not enough memory", "_STATUS_ALLOC_FAILED")
"""What the messages say of torch's allocators on a GPU, on Linux and on Windows, and of NVIDIA's libraries."""


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that memory has run out, so that a smaller computation may succeed."""
    if isinstance(error, RuntimeError):
        return any(sign in str(error) for sign in SIGNS)
    return isinstance(error, MemoryError)


def halving(size: int, compute: Callable[[int], T], smaller: Callable[[int], None]) -> T:
    """Return `compute(size)`, with half the size, and half of that, as long as memory runs out; at least with 1.

    Args:
        size: how many bags to compute at a time.
        compute: must leave nothing behind when it fails.
        smaller: called with the new size before each repetition.
    """
    while True:
        try:
            return compute(size)
        except (MemoryError, RuntimeError) as error:
            if size <= 1 or not is_out_of_memory(error):
                raise
        # Out here nothing refers to the error any more, and the tensors of the failed computation are free.
        size //= 2
        smaller(size)
