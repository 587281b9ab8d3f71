"""Aggregation cross-entropy against the formula of arXiv:1904.08364, in plain Python."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from tests._helpers.per_bag import per_bag
from tests._helpers.random_logits import random_logits

torch.set_num_threads(1)

B, C, H, W = 4, 3, 2, 4
COUNTS = torch.tensor([[2, 0, 1], [0, 1, 0], [0, 0, 0], [1, 1, 3]])
MASK = torch.tensor([[1, 1, 1, 1, 1, 1, 0, 0], [0, 0, 1, 0, 0, 0, 0, 0], [1] * 8, [1, 0, 1, 1, 1, 1, 1, 0]]).bool()
EVERYWHERE = torch.ones(B, H * W, dtype=torch.bool)


def some_logits(seed: int) -> Tensor:
    return random_logits(B, C + 1, H, W, seed=seed)


def aggregation(logits: Tensor, counts: list[int], mask: Tensor) -> float:
    """Return -sum_c (N_c / T) log((y_c^1 + ... + y_c^T) / T) of one bag, N_background = T - |S|."""
    columns = [column for column, there in zip(logits.flatten(1).T.tolist(), mask.tolist(), strict=True) if there]
    T = len(columns)
    numbers = [*counts, T - sum(counts)]
    total = 0.0
    for c, number in enumerate(numbers):
        shown = sum(math.exp(column[c]) / sum(map(math.exp, column)) for column in columns)
        total -= number / T * math.log(shown / T)
    return total


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("mask", [MASK, EVERYWHERE], ids=["masked", "full"])
def test_value_is_that_of_the_formula(seed: int, mask: Tensor) -> None:
    logits = some_logits(seed)
    value = per_bag("count")(logits, COUNTS > 0, mask.view(B, H, W), COUNTS)
    for b in range(B):
        assert value[b].item() == pytest.approx(aggregation(logits[b], COUNTS[b].tolist(), mask[b]))


def test_the_smallest_value_is_where_the_expected_counts_are_the_true_ones() -> None:
    """At mean_k p = N / K the loss is the entropy of the shares, and its gradient is 0: half the bag is of class 0."""
    logits = torch.tensor([[[2.0, 0.0], [-9.0, -9.0], [0.0, 2.0]]], dtype=torch.float64).log_softmax(dim=1)
    logits[:, 1] = -200  # never shown
    leaf = logits.requires_grad_()
    value = per_bag("count")(leaf, torch.tensor([[True, False]]), None, torch.tensor([[1, 0]]))
    (gradient,) = torch.autograd.grad(value.sum(), leaf)
    assert value.item() == pytest.approx(math.log(2))
    torch.testing.assert_close(gradient, torch.zeros_like(gradient))


def test_more_instances_than_positions_leave_nothing_to_the_background() -> None:
    logits = torch.zeros(1, 3, 2, dtype=torch.float64)
    value = per_bag("count")(logits, torch.tensor([[True, True]]), None, torch.tensor([[2, 1]]))
    assert value.item() == pytest.approx((2 / 2 + 1 / 2) * math.log(3))


def test_scores_are_the_expected_counts() -> None:
    logits = some_logits(1)
    mask = MASK.view(B, H, W)
    p = logits.exp() / logits.exp().sum(dim=1, keepdim=True)
    expected = torch.stack([p[b, :C, mask[b]].sum(dim=1) for b in range(B)])
    torch.testing.assert_close(per_bag("count").class_scores(logits, mask), expected)
    torch.testing.assert_close(per_bag("count").presence_scores(logits, mask), expected)
