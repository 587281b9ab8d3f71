"""Classification of bags of one instance, and of positions, against torch's own cross-entropy."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tests._helpers.losses import per_bag, random_logits

B, C = 5, 4
CLASSES = torch.tensor([2, 0, 3, 3, 1])
LABELS = F.one_hot(CLASSES, C).bool()


def test_it_is_the_cross_entropy_of_the_mean_logits() -> None:
    logits = random_logits(B, C + 1, 2, 3, seed=1, scale=3.0).requires_grad_()
    mask = torch.tensor(
        [[[1, 1, 1], [1, 1, 1]], [[1, 0, 0], [0, 0, 1]]] + [[[0, 1, 1], [0, 1, 0]]] * 3
    ).bool()
    means = torch.stack([logits[b, :C, mask[b]].mean(dim=1) for b in range(B)])
    loss = per_bag("cross-entropy")
    value, expected = loss(logits, LABELS, mask), F.cross_entropy(means, CLASSES, reduction="none")
    torch.testing.assert_close(value, expected)
    found, slope = (
        torch.autograd.grad(v.sum(), logits, retain_graph=True)[0] for v in (value, expected)
    )
    torch.testing.assert_close(found, slope)  # which is 0 for the background
    scores = loss.score(logits, mask)
    torch.testing.assert_close(scores.classes, means)
    torch.testing.assert_close(scores.presence.exp(), means.softmax(dim=1))
    probs = loss.score(logits).instances
    assert (probs[:, C] == 0).all(), "no instance is background"
    torch.testing.assert_close(probs[:, :C], logits[:, :C].softmax(dim=1))


TARGET = torch.tensor([[[0, 2, 2], [2, 1, 2]], [[2, 2, 2], [2, 2, 2]], [[1, 1, 0], [0, 1, 1]]])
MASK = torch.tensor([[[1, 1, 0], [1, 1, 0]], [[0, 1, 0], [0, 0, 0]], [[1, 1, 1], [1, 1, 1]]]).bool()


@pytest.mark.parametrize("mask", [MASK, torch.ones_like(MASK)], ids=["masked", "full"])
def test_of_positions_it_is_the_mean_over_a_bag(mask: Tensor) -> None:
    logits = random_logits(3, 2 + 1, 2, 3).requires_grad_()
    bags = zip(logits, TARGET, mask, strict=True)
    expected = torch.stack(
        [F.cross_entropy(z[:, there].T, target[there]) for z, target, there in bags]
    )
    value = per_bag("position")(logits, [[0, 1], [], [0, 1]], mask, TARGET)
    torch.testing.assert_close(value, expected)
    found, slope = (torch.autograd.grad(v.sum(), logits)[0] for v in (value, expected))
    torch.testing.assert_close(found, slope)
