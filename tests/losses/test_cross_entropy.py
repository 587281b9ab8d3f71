"""The losses `cross-entropy` of bags and `position` of positions, against torch's cross-entropy."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tests._helpers.losses import per_bag, random_logits

# Five bags, four classes, and positions in a grid of 2 x 3.
B = 5
C = 4
BACKGROUND = C
CLASSES = torch.tensor([2, 0, 3, 3, 1])
LABELS = F.one_hot(CLASSES, C).bool()
MASK_OF_INSTANCES = torch.tensor([
    [[1, 1, 1], [1, 1, 1]],
    [[1, 0, 0], [0, 0, 1]],
    [[0, 1, 1], [0, 1, 0]],
    [[0, 1, 1], [0, 1, 0]],
    [[0, 1, 1], [0, 1, 0]],
]).bool()  # fmt: skip


@pytest.fixture
def logits() -> Tensor:
    return random_logits(B, C + 1, 2, 3, seed=1, scale=3.0).requires_grad_()


def mean_logits(logits: Tensor) -> Tensor:
    """Return (B, C), the means over the positions of each bag, without the background."""
    means = []
    for of_bag, mask in zip(logits, MASK_OF_INSTANCES, strict=True):
        means.append(of_bag[:C, mask].mean(dim=1))
    return torch.stack(means)


def test_the_loss_of_a_bag_is_the_cross_entropy_of_its_mean_logits(logits: Tensor) -> None:
    value = per_bag("cross-entropy")(logits, LABELS, MASK_OF_INSTANCES)
    expected = F.cross_entropy(mean_logits(logits), CLASSES, reduction="none")
    torch.testing.assert_close(value, expected)
    (gradient,) = torch.autograd.grad(value.sum(), logits)
    (expected_gradient,) = torch.autograd.grad(expected.sum(), logits)
    torch.testing.assert_close(gradient, expected_gradient)
    assert (gradient[:, BACKGROUND] == 0).all()


def test_scores_are_the_mean_logits(logits: Tensor) -> None:
    scores = per_bag("cross-entropy").score(logits, MASK_OF_INSTANCES)
    torch.testing.assert_close(scores.classes, mean_logits(logits))


def test_presence_is_the_log_softmax_of_the_mean_logits(logits: Tensor) -> None:
    scores = per_bag("cross-entropy").score(logits, MASK_OF_INSTANCES)
    expected = mean_logits(logits).softmax(dim=1)
    torch.testing.assert_close(scores.presence.exp(), expected)


def test_no_position_of_a_map_is_background(logits: Tensor) -> None:
    probs = per_bag("cross-entropy").score(logits).instances
    assert (probs[:, BACKGROUND] == 0).all()
    torch.testing.assert_close(probs[:, :C], logits[:, :C].softmax(dim=1))


# Three bags with the class of each position; there are two classes, and 2 is the background.
TARGET = torch.tensor([[[0, 2, 2], [2, 1, 2]], [[2, 2, 2], [2, 2, 2]], [[1, 1, 0], [0, 1, 1]]])
MASK = torch.tensor([[[1, 1, 0], [1, 1, 0]], [[0, 1, 0], [0, 0, 0]], [[1, 1, 1], [1, 1, 1]]]).bool()


@pytest.mark.parametrize("mask", [MASK, torch.ones_like(MASK)], ids=["masked", "full"])
def test_the_loss_of_positions_is_the_mean_cross_entropy_of_a_bag(mask: Tensor) -> None:
    logits = random_logits(3, 2 + 1, 2, 3).requires_grad_()
    means = []
    for of_bag, target, there in zip(logits, TARGET, mask, strict=True):
        means.append(F.cross_entropy(of_bag[:, there].T, target[there]))
    expected = torch.stack(means)
    value = per_bag("position")(logits, [[0, 1], [], [0, 1]], mask, TARGET)
    torch.testing.assert_close(value, expected)
    (gradient,) = torch.autograd.grad(value.sum(), logits)
    (expected_gradient,) = torch.autograd.grad(expected.sum(), logits)
    torch.testing.assert_close(gradient, expected_gradient)
