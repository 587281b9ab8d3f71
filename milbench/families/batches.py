"""Batches of bags: made when they are accessed, or drawn again and again from a fixed number of bags."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self, overload

import torch
from torch import Tensor

from milbench._utils.devices import to_device
from milbench.api.bags import Bags


class LazyBatches(Sequence[Bags]):
    """Batches of bags, each made of its part, such as the numbers of its bags, when it is accessed."""

    def __init__(self, parts: Sequence[Any], make: Callable[[Any], Bags]) -> None:
        self.parts, self.make = parts, make

    @classmethod
    def of(cls, data: Any, size: int, as_bags: Callable[[Any], Bags], which: Tensor | None = None) -> Self:
        """Return batches of `size` of a sequence, or of its items `which`; the last one may be smaller."""
        starts = range(0, len(data) if which is None else len(which), size)
        parts = [slice(n, n + size) if which is None else which[n : n + size] for n in starts]
        return cls(parts, lambda part: as_bags(data[part]))

    def __len__(self) -> int:
        return len(self.parts)

    @overload
    def __getitem__(self, n: int) -> Bags: ...
    @overload
    def __getitem__(self, n: slice) -> LazyBatches: ...
    def __getitem__(self, n: int | slice) -> Bags | LazyBatches:
        return LazyBatches(self.parts[n], self.make) if isinstance(n, slice) else self.make(self.parts[n])


def in_rounds(items: int, count: int, rng: torch.Generator) -> Tensor:
    """Return (count,) numbers of items in random order, every one before any again."""
    rounds = -(-count // items)
    return torch.cat([torch.randperm(items, generator=rng) for _ in range(rounds)])[:count]


def batches_from(pool: Bags, count: int, size: int, rng: torch.Generator) -> Iterator[Bags]:
    """Yield `count` bags of a pool in batches of `size`, the last one perhaps smaller.

    The pool is gone through in random order, and again in another one, until there are enough: the number of steps does
    not depend on that of the bags.
    """
    for which in in_rounds(len(pool), count, rng).split(size):
        yield pool.selected(to_device(which, pool.labels.device))
