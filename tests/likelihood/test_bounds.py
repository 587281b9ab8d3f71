"""Bounds of the likelihood against its value in 80 digits."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from milbench import UsageError
from milbench.likelihood import bag_log_prob_bounds
from tests._helpers.likelihood_reference import (
    REGIMES,
    PreciseBag,
    RandomBag,
    random_bags,
    regime_log_probs,
)


@given(bag=random_bags(max_classes=7, max_positions=12), exact_labels=st.integers(0, 4))
def test_bounds_hold(bag: RandomBag, exact_labels: int) -> None:
    exact = PreciseBag(bag.log_probs[0], torch.nonzero(bag.labels[0])[:, 0].tolist()).log_prob()
    lower, upper = bag_log_prob_bounds(*bag, exact_labels=exact_labels)
    assert lower.item() <= exact <= upper.item()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("regime", REGIMES)
def test_bounds_hold_on_the_grid(regime: str, dtype: torch.dtype) -> None:
    log_probs = regime_log_probs(regime, 8, 40).to(dtype)
    exact = PreciseBag(log_probs, list(range(6))).log_prob()
    labels = (torch.arange(8) < 6).unsqueeze(0)
    bounds = bag_log_prob_bounds(log_probs[None], labels, exact_labels=3)
    assert bounds.lower.item() <= exact <= bounds.upper.item()
    assert torch.stack([*bounds]).isfinite().all()


def test_bounds_are_tight_for_certain_and_for_few_classes() -> None:
    log_probs = regime_log_probs("uniform", 30, 500)[None]
    labels = (torch.arange(30) < 25).unsqueeze(0)
    lower, upper = bag_log_prob_bounds(log_probs, labels)
    assert (upper - lower).item() < 1e-6
    small = (torch.arange(30) < 5).unsqueeze(0)
    rare = regime_log_probs("background+8", 30, 50)[None]
    lower, upper = bag_log_prob_bounds(rare, small, exact_labels=5)
    assert (upper - lower).item() < 1e-10


def test_bounds_are_differentiable() -> None:
    logits = torch.randn(2, 6, 8, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]).bool()
    for side in (0, 1):
        assert torch.autograd.gradcheck(
            lambda z, s=side: bag_log_prob_bounds(z.log_softmax(1), labels, exact_labels=2)[s],
            (logits,),
        )


def test_bags_side_by_side_have_their_own_bounds() -> None:
    """As on an accelerator, and inside torch.func: every bag then has as many slots as the largest may need."""
    labels = torch.tensor(
        [[0, 0, 0, 0, 0], [0, 1, 0, 0, 1], [1, 1, 1, 1, 1], [1, 0, 1, 1, 0]], dtype=torch.bool
    )
    logits = torch.randn(4, 6, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    mask = torch.arange(7) < torch.tensor([[7], [4], [7], [2]])

    def bounds(z: torch.Tensor, which: slice = slice(None)) -> torch.Tensor:
        args = z.log_softmax(dim=1), labels[which], mask[which]
        return torch.stack(bag_log_prob_bounds(*args, exact_labels=3, max_labels=5))

    def total(z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        found = bounds(z)
        return found.masked_fill(found.isinf(), 0.0).sum(), found

    gradient, (_, together) = torch.func.grad_and_value(total, has_aux=True)(logits)
    assert gradient.isfinite().all()
    alone = torch.cat([bounds(logits[b : b + 1], slice(b, b + 1)) for b in range(4)], dim=1)
    torch.testing.assert_close(together, alone, rtol=1e-9, atol=1e-9)


def test_a_label_set_larger_than_promised_is_error_or_nan() -> None:
    log_probs, labels = torch.zeros(1, 4, 5).log_softmax(dim=1), torch.ones(1, 3, dtype=torch.bool)
    with pytest.raises(UsageError, match=r"\|L\| = 3, above max_labels = 2"):
        bag_log_prob_bounds(log_probs, labels, max_labels=2)
    lower = torch.func.vmap(lambda p: bag_log_prob_bounds(p, labels, max_labels=2).lower)(
        log_probs.unsqueeze(0)
    )
    assert lower.isnan().all()
