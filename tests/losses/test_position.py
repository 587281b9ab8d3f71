"""The oracle against loops over its positions."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from tests._helpers.losses import per_bag, random_logits

B, C, H, W = 3, 2, 2, 3
TARGET = torch.tensor([[[0, 2, 2], [2, 1, 2]], [[2, 2, 2], [2, 2, 2]], [[1, 1, 0], [0, 1, 1]]])
LABELS = torch.tensor([[1, 1], [0, 0], [1, 1]], dtype=torch.bool)
MASK = torch.tensor([[[1, 1, 0], [1, 1, 0]], [[0, 1, 0], [0, 0, 0]], [[1, 1, 1], [1, 1, 1]]]).bool()


def some_logits(seed: int) -> Tensor:
    return random_logits(B, C + 1, H, W, seed=seed)


def definition(logits: Tensor, target: Tensor, mask: Tensor) -> tuple[float, list[list[list[float]]]]:
    """Return the loss of one bag and its gradient."""
    there = int(mask.sum())
    value, gradient = 0.0, [[[0.0] * W for _ in range(H)] for _ in range(C + 1)]
    for y in range(H):
        for x in range(W):
            if mask[y, x]:
                odds = [math.exp(logits[c, y, x]) for c in range(C + 1)]
                truth = int(target[y, x])
                value -= math.log(odds[truth] / sum(odds)) / there
                for c in range(C + 1):
                    gradient[c][y][x] = (odds[c] / sum(odds) - (c == truth)) / there
    return value, gradient


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("mask", [MASK, None], ids=["masked", "full"])
def test_value_and_gradient_are_those_of_the_definition(seed: int, mask: Tensor | None) -> None:
    logits = some_logits(seed).requires_grad_()
    value = per_bag("position")(logits, LABELS, mask, TARGET)
    (gradient,) = torch.autograd.grad(value.sum(), logits)
    everywhere = torch.ones(H, W, dtype=torch.bool)
    for b in range(B):
        expected, slope = definition(logits[b].detach(), TARGET[b], everywhere if mask is None else mask[b])
        assert value[b].item() == pytest.approx(expected)
        torch.testing.assert_close(gradient[b], torch.tensor(slope, dtype=torch.float64))


def test_scores_are_the_expected_counts() -> None:
    logits = some_logits(1)
    p = logits.exp() / logits.exp().sum(dim=1, keepdim=True)
    expected = torch.stack([p[b, :C, MASK[b]].sum(dim=1) for b in range(B)])
    torch.testing.assert_close(per_bag("position").class_scores(logits, MASK), expected)
