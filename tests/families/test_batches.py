from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch

from milbench import Bags, Truth, generator
from milbench.families.batches import batches_from

NUMBERS = torch.arange(5)
POOL = Bags(
    NUMBERS.view(5, 1, 1).float(),
    NUMBERS.unsqueeze(1) == torch.arange(5),
    NUMBERS.unsqueeze(1) >= 0,
    Truth(NUMBERS.unsqueeze(1), NUMBERS.view(5, 1, 1).expand(5, 1, 4).float(), NUMBERS.unsqueeze(1)),
)


def names(batches: list[Bags]) -> list[int]:
    return [int(number) for bags in batches for number in bags.instances.flatten()]


@pytest.mark.parametrize(("count", "least", "most"), [(3, 0, 1), (5, 1, 1), (12, 2, 3)])
def test_every_bag_is_used_as_often_as_any_other_or_once_more(count: int, least: int, most: int) -> None:
    batches = list(batches_from(POOL, count, 4, generator(0)))
    assert [len(bags) for bags in batches] == [4] * (count // 4) + [count % 4] * (count % 4 > 0)
    used = Counter(names(batches))
    assert all(least <= used[number] <= most for number in range(5))
    assert sum(used.values()) == count


def test_all_of_a_bag_goes_with_it() -> None:
    batches: Any = batches_from(POOL, 10, 4, generator(1))
    for bags in batches:
        which = bags.instances.flatten().long()
        assert torch.equal(bags.labels.int().argmax(dim=1), which)
        assert bags.mask.shape == (len(which), 1)
        for part in (bags.truth.classes, bags.truth.boxes[..., 0], bags.truth.position_classes):
            assert torch.equal(part.flatten().long(), which)


def test_the_order_is_that_of_the_generator_and_another_one_in_every_pass() -> None:
    first, again, other = (names(list(batches_from(POOL, 50, 4, generator(seed)))) for seed in (0, 0, 1))
    assert first == again != other
    passes = {tuple(first[start : start + 5]) for start in range(0, 50, 5)}
    assert len(passes) > 5
