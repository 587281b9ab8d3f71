"""The losses `cross-entropy` and `position`, against the cross-entropy of torch.

`cross-entropy` is for bags of one instance: it classifies a bag by the mean of its logits over the
positions. `position` is given the class of each position, and classifies each position.
"""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tests._helpers.losses import per_bag, random_logits

# For `cross-entropy`: five bags, four classes, and positions in a grid of 2 x 3. Each bag has one
# class. The mask is False at positions that are padding.
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
    for of_bag, is_instance in zip(logits, MASK_OF_INSTANCES, strict=True):
        means.append(of_bag[:C, is_instance].mean(dim=1))
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
    expected = mean_logits(logits).log_softmax(dim=1)
    torch.testing.assert_close(scores.presence, expected)


def test_no_position_of_a_map_is_background(logits: Tensor) -> None:
    """A map says how probable each class is at each position, (B, C+1, *positions)."""
    probs = per_bag("cross-entropy").score(logits).instances
    assert (probs[:, BACKGROUND] == 0).all()
    torch.testing.assert_close(probs[:, :C], logits[:, :C].softmax(dim=1))


# For `position`: three bags with the class of each position, in a grid of 2 x 3 too. There are two
# classes, and 2 is the background.
TARGET = torch.tensor([[[0, 2, 2], [2, 1, 2]], [[2, 2, 2], [2, 2, 2]], [[1, 1, 0], [0, 1, 1]]])
MASK = torch.tensor([[[1, 1, 0], [1, 1, 0]], [[0, 1, 0], [0, 0, 0]], [[1, 1, 1], [1, 1, 1]]]).bool()


@pytest.mark.parametrize("mask", [MASK, torch.ones_like(MASK)], ids=["masked", "full"])
def test_the_loss_of_positions_is_the_mean_cross_entropy_of_a_bag(mask: Tensor) -> None:
    logits = random_logits(3, 2 + 1, 2, 3).requires_grad_()
    means = []
    for of_bag, target, is_instance in zip(logits, TARGET, mask, strict=True):
        # torch takes a row of logits for each position.
        rows = of_bag[:, is_instance].T
        means.append(F.cross_entropy(rows, target[is_instance]))
    expected = torch.stack(means)
    # The loss takes label sets as every loss does, but reads only the target. These are the classes
    # in the target.
    label_sets = [[0, 1], [], [0, 1]]
    value = per_bag("position")(logits, label_sets, mask, TARGET)
    torch.testing.assert_close(value, expected)
    (gradient,) = torch.autograd.grad(value.sum(), logits)
    (expected_gradient,) = torch.autograd.grad(expected.sum(), logits)
    torch.testing.assert_close(gradient, expected_gradient)
