"""The likelihood from logits: its value and gradient against results in 80 digits."""

from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from milbench import UsageError
from milbench.likelihood import bag_log_prob, bag_log_prob_from_logits, instance_posterior
from tests._helpers.likelihood_reference import REGIMES, PreciseBag, derived, regime_log_probs
from tests._helpers.losses import random_logits

LIMITS = {torch.float64: (1e-12, 1e-9), torch.float32: (1e-5, 1e-4)}
"""The largest error of the value and of the gradient that is allowed."""
DTYPES = pytest.mark.parametrize("dtype", LIMITS, ids=["float64", "float32"])
# |L|, the number of classes in the label set, and the number of positions.
SIZES = [(0, 7), (1, 1), (1, 50), (2, 200), (3, 3), (5, 24), (8, 10), (9, 10)]


def solved(logits: Tensor, labels: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return the value and its gradient."""
    return derived(lambda z, y: bag_log_prob_from_logits(z, y, mask), logits, labels)


class Errors(NamedTuple):
    """How far the results for one bag are from the truth."""

    value: float
    """The error of the value over max(1, |value|)."""
    gradient: float
    """The largest error of the entries of the gradient that are compared."""
    largest_entry: float
    """The largest entry of the gradient."""


def errors(regime: str, size: int, positions: int, dtype: torch.dtype) -> Errors:
    shift = 5 * random_logits(1, positions, seed=size)
    logits = (regime_log_probs(regime, size + 2, positions) + shift).to(dtype)
    truth = PreciseBag(logits, list(range(size)), normalised=True)
    value, gradient = solved(logits.unsqueeze(0), torch.arange(size + 2).unsqueeze(0) < size)
    if not truth.prob:
        assert value.item() == -torch.inf
        assert not gradient.any()
        return Errors(0.0, 0.0, 0.0)
    exact = float(truth.log_prob())
    softmax = logits.double().softmax(0)
    middle = positions // 2
    # The background is slot 0 of the truth, and the last row of the gradient.
    rows = [size + 2, *range(size)]
    differences = []
    for slot in (0, (size + 1) // 2, size):
        row = rows[slot]
        expected = float(truth.posterior(slot, middle)) - softmax[row, middle].item()
        differences.append(abs(gradient[0, row, middle].item() - expected))
    return Errors(
        value=abs(value.item() - exact) / max(1.0, abs(exact)),
        gradient=max(differences),
        largest_entry=gradient.abs().max().item(),
    )


@DTYPES
@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize(("size", "positions"), SIZES)
def test_value_and_gradient_agree_with_80_digits(
    size: int, positions: int, regime: str, dtype: torch.dtype
) -> None:
    largest_of_value, largest_of_gradient = LIMITS[dtype]
    found = errors(regime, size, positions, dtype)
    assert found.value <= largest_of_value
    # The gradient is a difference of two probabilities, which may be rounded. Beside this rounding,
    # the error is measured relative to the largest entry.
    rounding = torch.finfo(dtype).eps
    assert found.gradient <= largest_of_gradient * found.largest_entry + rounding


@DTYPES
@pytest.mark.parametrize("other", [300.0, 1e4, 1e6])
def test_a_class_outside_of_the_label_set_may_be_sure(other: float, dtype: torch.dtype) -> None:
    """The posterior depends on far smaller logits, which must not be rounded away."""
    logits = random_logits(3, 4, seed=5).to(dtype)
    logits[1] += other
    truth = PreciseBag(logits, [0], normalised=True)
    value, gradient = solved(logits.unsqueeze(0), torch.tensor([[True, False]]))
    largest_of_value, largest_of_gradient = LIMITS[dtype]
    assert value.item() == pytest.approx(float(truth.log_prob()), rel=largest_of_value)
    # The softmax of background and class 0 is almost 0, so that the gradient is the posterior.
    of_background = [float(truth.posterior(0, k)) for k in range(4)]
    of_class = [float(truth.posterior(1, k)) for k in range(4)]
    assert gradient[0, 2].tolist() == pytest.approx(of_background, abs=largest_of_gradient)
    assert gradient[0, 0].tolist() == pytest.approx(of_class, abs=largest_of_gradient)


@given(
    seed=st.integers(0, 2**32),
    scale=st.sampled_from([0.5, 3.0, 30.0]),
    background=st.sampled_from([0.0, 6.0, 20.0]),
    is_masked=st.booleans(),
)
def test_batches_of_every_kind(seed: int, scale: float, background: float, is_masked: bool) -> None:
    """One batch has label sets of 0 to 9 classes, which are computed in different ways."""
    rng = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(12, 10, 3, 4, generator=rng, dtype=torch.float64)
    logits[:, -1] += background
    labels = torch.rand(12, 9, generator=rng) < torch.rand(12, 1, generator=rng)
    mask = torch.ones(12, 3, 4, dtype=torch.bool)
    if is_masked:
        mask = torch.rand(12, 3, 4, generator=rng) < 0.9
    given_mask = mask if is_masked else None
    value, gradient = solved(logits, labels, given_mask)

    log_probs = logits.log_softmax(1)
    expected = bag_log_prob(log_probs, labels, given_mask)
    assert torch.allclose(value, expected, rtol=1e-12, atol=1e-12)
    # The gradient is 0 in bags whose label set cannot occur, and at masked positions.
    is_possible = (expected > -torch.inf).view(-1, 1, 1, 1)
    slope = instance_posterior(log_probs, labels, given_mask) - log_probs.exp()
    expected_gradient = torch.where(is_possible & mask.unsqueeze(1), slope, 0.0)
    assert torch.allclose(gradient, expected_gradient, atol=1e-9)

    without_gradient = bag_log_prob_from_logits(logits, labels, given_mask)
    torch.testing.assert_close(without_gradient, value, rtol=1e-14, atol=1e-14)


def test_an_infinite_logit_is_named_with_its_position() -> None:
    logits = torch.zeros(2, 3, 4)
    logits[1, 2, 3] = torch.inf
    with pytest.raises(
        UsageError, match=r"logits must be finite; got inf at bag 1, channel 2, position \(3,\)"
    ):
        bag_log_prob_from_logits(logits, torch.zeros(2, 2).bool())
