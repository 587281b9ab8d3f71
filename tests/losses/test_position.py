"""The oracle against torch's cross-entropy."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from tests._helpers.losses import per_bag, random_logits

B, C, H, W = 3, 2, 2, 3
TARGET = torch.tensor([[[0, 2, 2], [2, 1, 2]], [[2, 2, 2], [2, 2, 2]], [[1, 1, 0], [0, 1, 1]]])
LABELS = torch.tensor([[1, 1], [0, 0], [1, 1]], dtype=torch.bool)
MASK = torch.tensor([[[1, 1, 0], [1, 1, 0]], [[0, 1, 0], [0, 0, 0]], [[1, 1, 1], [1, 1, 1]]]).bool()


def some_logits(seed: int) -> Tensor:
    return random_logits(B, C + 1, H, W, seed=seed)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("mask", [MASK, torch.ones(B, H, W, dtype=torch.bool)], ids=["masked", "full"])
def test_it_is_the_mean_cross_entropy_of_the_positions(seed: int, mask: Tensor) -> None:
    logits = some_logits(seed).requires_grad_()
    bags = zip(logits, TARGET, mask, strict=True)
    expected = torch.stack([cross_entropy(z[:, there].T, target[there]) for z, target, there in bags])
    value = per_bag("position")(logits, LABELS, mask, TARGET)
    torch.testing.assert_close(value, expected)
    found, slope = (torch.autograd.grad(v.sum(), logits)[0] for v in (value, expected))
    torch.testing.assert_close(found, slope)
