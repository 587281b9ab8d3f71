from __future__ import annotations

from collections import Counter

import pytest
import torch

from milbench import Bags, Truth, generator
from milbench.families.fixed_bags import in_rounds

NUMBERS = torch.arange(5)
POOL = Bags(
    NUMBERS.view(5, 1, 1).float(),
    NUMBERS.unsqueeze(1) == torch.arange(5),
    NUMBERS.unsqueeze(1) >= 0,
    Truth(NUMBERS.unsqueeze(1), NUMBERS.view(5, 1, 1).expand(5, 1, 4).float(), NUMBERS.unsqueeze(1)),
)


@pytest.mark.parametrize(("count", "least", "most"), [(3, 0, 1), (5, 1, 1), (12, 2, 3)])
def test_every_bag_is_used_as_often_as_any_other_or_once_more(count: int, least: int, most: int) -> None:
    used = Counter(in_rounds(5, count, generator(0)).tolist())
    assert all(least <= used[number] <= most for number in range(5))
    assert sum(used.values()) == count


def test_all_of_a_bag_goes_with_it() -> None:
    which = in_rounds(5, 10, generator(1))
    bags = POOL.selected(which)
    assert torch.equal(bags.labels.int().argmax(dim=1), which)
    assert bags.mask is not None
    assert bags.mask.shape == (len(which), 1)
    truth = bags.truth
    assert truth is not None
    assert truth.boxes is not None
    assert truth.position_classes is not None
    for part in (bags.instances, truth.classes, truth.boxes[..., 0], truth.position_classes):
        assert torch.equal(part.flatten().long(), which)


def test_the_order_is_that_of_the_generator_and_another_one_in_every_pass() -> None:
    first, again, other = (in_rounds(5, 50, generator(seed)).tolist() for seed in (0, 0, 1))
    assert first == again != other
    passes = {tuple(first[start : start + 5]) for start in range(0, 50, 5)}
    assert len(passes) > 5
