"""Ordinary classification against torch's own cross-entropy."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from milbench import UsageError
from tests._helpers.losses import per_bag, random_logits

B, C = 5, 4
CLASSES = torch.tensor([2, 0, 3, 3, 1])
LABELS = F.one_hot(CLASSES, C).bool()


def some_logits(*positions: int) -> Tensor:
    return random_logits(B, C + 1, *positions, seed=1, scale=3.0)


def test_at_one_position_it_is_the_cross_entropy_of_torch() -> None:
    logits = some_logits(1, 1).requires_grad_()
    value = per_bag("cross-entropy")(logits, LABELS)
    (gradient,) = torch.autograd.grad(value.sum(), logits)
    own = logits.detach()[:, :C, 0, 0].requires_grad_()
    expected = F.cross_entropy(own, CLASSES, reduction="none")
    (slope,) = torch.autograd.grad(expected.sum(), own)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(gradient[:, :C, 0, 0], slope)
    assert (gradient[:, C] == 0).all()  # there is no background


def test_at_several_positions_it_is_that_of_their_mean_logits() -> None:
    logits = some_logits(2, 3)
    mask = torch.tensor([[[1, 1, 1], [1, 1, 1]], [[1, 0, 0], [0, 0, 1]]] + [[[0, 1, 1], [0, 1, 0]]] * 3).bool()
    means = torch.stack([logits[b, :C, mask[b]].mean(dim=1) for b in range(B)])
    loss = per_bag("cross-entropy")
    torch.testing.assert_close(loss(logits, LABELS, mask), F.cross_entropy(means, CLASSES, reduction="none"))
    scores = loss.score(logits, mask)
    torch.testing.assert_close(scores.classes, means)
    torch.testing.assert_close(scores.presence.exp(), means.softmax(dim=1))


def test_no_instance_is_background() -> None:
    probs = per_bag("cross-entropy").score(some_logits(2, 3)).instances
    assert (probs[:, C] == 0).all()
    torch.testing.assert_close(probs[:, :C], some_logits(2, 3)[:, :C].softmax(dim=1))


@pytest.mark.parametrize(("classes", "count"), [([], 0), ([0, 2], 2)])
def test_bags_of_none_or_several_classes_are_refused(classes: list[int], count: int) -> None:
    labels = LABELS.clone()
    labels[3] = False
    labels[3, classes] = True
    with pytest.raises(UsageError, match=f"bag 3 has {count} classes in its label set"):
        per_bag("cross-entropy")(some_logits(2, 2), labels)
