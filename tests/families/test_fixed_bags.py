from __future__ import annotations

from collections import Counter

import pytest

from milbench import generator
from milbench.families.fixed_bags import in_rounds


@pytest.mark.parametrize(("count", "least", "most"), [(3, 0, 1), (5, 1, 1), (12, 2, 3)])
def test_every_bag_is_used_as_often_as_any_other_or_once_more(count: int, least: int, most: int) -> None:
    used = Counter(in_rounds(5, count, generator(0)).tolist())
    assert all(least <= used[number] <= most for number in range(5))
    assert sum(used.values()) == count


def test_the_order_is_that_of_the_generator_and_another_one_in_every_pass() -> None:
    first, again, other = (in_rounds(5, 50, generator(seed)).tolist() for seed in (0, 0, 1))
    assert first == again != other
    passes = {tuple(first[start : start + 5]) for start in range(0, 50, 5)}
    assert len(passes) > 5
