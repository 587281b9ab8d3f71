from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from milbench import generator
from milbench.families.label_set_posterior import bag_posterior
from milbench.likelihood import best_label_set, label_set_distribution


def some_bags(spread: float = 2.0) -> tuple[Tensor, Tensor]:
    """Log-joint probabilities (40, 4, 5) of three classes and background, and a mask."""
    rng = generator("posterior", spread)
    mask = torch.arange(5) < torch.randint(1, 6, (40, 1), generator=rng)
    return spread * torch.randn(40, 4, 5, dtype=torch.float64, generator=rng) - 30, mask


def test_independent_instances_have_the_posterior_of_each_by_itself() -> None:
    log_joint, mask = some_bags()
    log_probs = log_joint.log_softmax(dim=1)
    found = bag_posterior(log_joint, mask)
    assert_close(found.log_instances, log_probs)
    assert_close(found.log_sets, label_set_distribution(log_probs, mask))
    assert torch.equal(found.best_set, best_label_set(log_probs, mask)[0])


def test_a_label_set_below_every_floating_point_number_has_a_posterior() -> None:
    """The empty set, in 3,000 instances each of which is background with probability 1e-200."""
    count, rare = 3000, 1e-200
    log_joint = torch.tensor([1 - rare, rare], dtype=torch.float64).log().view(1, 2, 1).repeat(1, 1, count)
    mask = torch.ones(1, count, dtype=torch.bool)
    weight = torch.tensor([[0.0, -torch.inf]], dtype=torch.float64)
    found = bag_posterior(log_joint, mask, weight)
    assert found.log_sets.exp().tolist() == [[1.0, 0.0]]
    assert (found.log_instances[:, 1] == 0).all()


def test_label_sets_that_cannot_be_have_no_part() -> None:
    """Only {1} is left: instances are of class 1 or background, and one at least is of class 1."""
    log_joint, mask = some_bags(spread=8.0)
    weight = torch.full((40, 8), -torch.inf, dtype=torch.float64)
    weight[:, 0b010] = 0
    found = bag_posterior(log_joint, mask, weight)
    assert found.log_sets.exp()[:, 0b010].tolist() == pytest.approx([1.0] * 40)
    odd = (log_joint[:, 1] - log_joint[:, 3]).sigmoid() * mask
    some = 1 - (1 - odd).prod(dim=1, keepdim=True)
    assert_close(found.log_instances[:, 1].exp() * mask, odd / some, rtol=1e-9, atol=1e-13)
    assert not found.log_instances[:, [0, 2]].exp().any()
