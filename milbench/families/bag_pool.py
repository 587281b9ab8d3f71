"""A fixed number of training bags that every epoch uses again."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from milbench._utils.devices import to_device
from milbench.api.bags import Bags


def batches_from(pool: Bags, count: int, size: int, rng: torch.Generator) -> Iterator[Bags]:
    """Yield `count` bags of a pool in batches of `size`, the last one perhaps smaller.

    The pool is gone through in random order, and again in another one, until there are enough: the number of steps
    does not depend on that of the bags.

    Args:
        pool: the bags.
        count: how many bags to yield, which may be more or fewer than there are.
        size: of a batch.
        rng: a generator on the CPU.
    """
    passes = -(-count // len(pool))
    order = torch.cat([torch.randperm(len(pool), generator=rng) for _ in range(passes)])[:count]
    for which in order.split(size):
        yield pool.selected(to_device(which, pool.labels.device))
