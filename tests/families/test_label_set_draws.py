from __future__ import annotations

import itertools

import pytest
import torch
from scipy.stats import chisquare
from torch import Tensor

from milbench import generator
from milbench.families.label_set_prior import ConditionedDraws, LabelSetPrior, LabelSetRule
from tests._helpers.enumerated_bags import independent, label_set

RATES = [0.25, 0.05, 0.1, 0.6]


def draws_of(rates: list[float], largest: int) -> ConditionedDraws:
    values = torch.tensor(rates, dtype=torch.float64)
    return ConditionedDraws(LabelSetPrior(LabelSetRule(), values, values[:-1], largest), values)


def drawn(draws: ConditionedDraws, size: int, members: int, count: int, width: int | None = None) -> Tensor:
    uniform = torch.rand(count, width or size, dtype=torch.float64, generator=generator("drawn", size, members))
    return draws.given(torch.full((count,), size), torch.full((count,), members), uniform)


@pytest.mark.parametrize(("size", "members"), [(1, 0b010), (2, 0b101), (3, 0b111), (4, 0b110), (4, 0b111), (4, 0b000)])
def test_classes_are_independent_ones_on_the_condition_of_their_label_set(size: int, members: int) -> None:
    wanted = {c for c in range(3) if members >> c & 1}
    exact = {z: p for z, p in independent(size, RATES).items() if label_set(z, 3) == wanted}
    total = sum(exact.values())
    found = [tuple(row) for row in drawn(draws_of(RATES, 4), size, members, 6000).tolist()]
    assert set(found) <= set(exact)
    counts = [found.count(z) for z in exact]
    if len(exact) > 1:
        assert chisquare(counts, [6000 * p / total for p in exact.values()]).pvalue > 1e-3


def test_bags_of_different_sizes_and_sets_are_drawn_side_by_side() -> None:
    draws = draws_of(RATES, 6)
    pairs = [(n, s) for n, s in itertools.product(range(1, 7), range(8)) if s.bit_count() <= n]
    sizes, sets = (torch.tensor(column) for column in zip(*pairs, strict=True))
    uniform = torch.rand(len(pairs), 6, dtype=torch.float64, generator=generator("side by side"))
    found = draws.given(sizes, sets, uniform)
    for row, (size, members) in zip(found.tolist(), pairs, strict=True):
        assert label_set(tuple(row[:size]), 3) == {c for c in range(3) if members >> c & 1}
        assert row[size:] == [3] * (6 - size)


@pytest.mark.parametrize("edge", [0.0, 1 - 2**-53])
def test_the_ends_of_the_interval_draw_what_can_be(edge: float) -> None:
    for size, members in [(2, 0b11), (3, 0b100), (3, 0b111), (3, 0b000)]:
        uniform = torch.full((1, 3), edge, dtype=torch.float64)
        (row,) = draws_of([0.2, 0.2, 0.2, 0.4], 3).given(torch.tensor([size]), torch.tensor([members]), uniform)
        assert label_set(tuple(row.tolist()), 3) == {c for c in range(3) if members >> c & 1}
