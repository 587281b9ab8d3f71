"""Batches of bags that are made when they are accessed, since all together may not fit into memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, Self, TypeVar, overload

from torch import Tensor

from milbench.api.bags import Bags


class Selectable(Protocol):
    """Data of which some can be selected, such as labelled images."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: slice | Tensor) -> Self: ...


Data = TypeVar("Data", bound=Selectable)


class LazyBatches(Sequence[Bags]):
    """Batches of bags, each made when it is accessed.

    Args:
        parts: what each batch is made from, such as the numbers of its bags.
        make: makes a batch.
    """

    def __init__(self, parts: Sequence[Any], make: Callable[[Any], Bags]) -> None:
        self.parts, self.make = parts, make

    @classmethod
    def of(cls, data: Data, size: int, as_bags: Callable[[Data], Bags], which: Tensor | None = None) -> Self:
        """Return batches of `size` bags, the last one perhaps smaller.

        Args:
            data: images, sequences or other data.
            size: of a batch.
            as_bags: makes bags of some of the data.
            which: (n,) int64, the numbers of the data that are used, in their order; None: all.
        """
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
