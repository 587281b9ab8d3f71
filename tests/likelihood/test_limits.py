"""Label sets of 9 to 16 classes, long bags and probabilities that underflow."""

from functools import partial
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from milbench.likelihood import (
    bag_log_prob,
    bag_log_prob_bounds,
    bag_log_prob_from_logits,
    instance_posterior,
)
from tests._helpers.likelihood_reference import derived, every_set_prob


def log_prob_of_all(probs: Tensor) -> list[float]:
    """Return log Prb of the set of all classes for each bag, by a recursion over all sets.

    `probs` are (B, C+1, K).
    """
    return [float(np.log(every_set_prob(bag.numpy())[-1])) for bag in probs]


@pytest.mark.parametrize(
    ("dtype", "relative", "absolute"),
    [
        pytest.param(torch.float32, 1.2e-7, 2e-6, id="float32"),
        pytest.param(torch.float64, 1e-11, 1e-12, id="float64"),
    ],
)
@pytest.mark.parametrize(("classes", "background"), [(9, 5.0), (12, 5.0), (13, 2.77), (16, 1.5)])
def test_large_label_sets_of_likely_and_rare_classes(
    classes: int, background: float, dtype: torch.dtype, relative: float, absolute: float
) -> None:
    logits = torch.randn(
        2, classes + 1, 24, generator=torch.Generator().manual_seed(classes), dtype=dtype
    )
    logits[:, -1] += background
    labels = torch.ones(2, classes, dtype=torch.bool)
    log_probs = logits.log_softmax(dim=1)

    from_logits = bag_log_prob_from_logits(logits, labels)
    truth = log_prob_of_all(logits.double().softmax(dim=1))
    assert from_logits.tolist() == pytest.approx(truth, rel=relative, abs=absolute)

    value = bag_log_prob(log_probs, labels)
    truth = log_prob_of_all(log_probs.double().exp())
    assert value.tolist() == pytest.approx(truth, rel=relative, abs=absolute)


def test_the_posterior_of_a_large_label_set_adds_up_and_is_the_slope() -> None:
    logits = torch.randn(1, 14, 20, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    logits[:, -1] += 5
    log_probs = logits.log_softmax(dim=1)
    posterior = instance_posterior(log_probs, torch.ones(1, 13, dtype=torch.bool))
    torch.testing.assert_close(posterior.sum(dim=1), torch.ones(1, 20, dtype=torch.float64))
    probs = log_probs[0].exp().numpy()
    whole = every_set_prob(probs)[-1]
    # Two classes and, as channel 13, the background, each at one position.
    for channel, k in ((0, 3), (12, 0), (13, 19)):
        # The joint probability: the position can show nothing but this channel.
        joint = probs.copy()
        joint[:, k] = 0
        joint[channel, k] = probs[channel, k]
        expected = every_set_prob(joint)[-1] / whole
        assert float(posterior[0, channel, k]) == pytest.approx(expected, abs=1e-9)


class FirstIsBroken(NamedTuple):
    """Logits (2, C+1, 20) of two bags, the first of which has a NaN, and the set of all classes."""

    logits: Tensor
    labels: Tensor


@pytest.fixture(params=[2, 12], ids=["2 classes", "12 classes"])
def broken(request: pytest.FixtureRequest) -> FirstIsBroken:
    classes = request.param
    logits = torch.zeros(2, classes + 1, 20)
    logits[0, 0, 0] = torch.nan
    return FirstIsBroken(logits, torch.ones(2, classes, dtype=torch.bool))


def check_first_is_nan(value: Tensor, gradient: Tensor) -> None:
    assert value.isnan().tolist() == [True, False]
    assert gradient[0].isnan().all()
    assert gradient[1].isfinite().all()


def test_nan_is_no_impossible_label_set(broken: FirstIsBroken) -> None:
    function = partial(bag_log_prob, validate=False)
    check_first_is_nan(*derived(function, broken.logits.log_softmax(dim=1), broken.labels))


def test_nan_among_logits_is_no_impossible_label_set(broken: FirstIsBroken) -> None:
    function = partial(bag_log_prob_from_logits, validate=False)
    check_first_is_nan(*derived(function, broken.logits, broken.labels))


def test_the_bounds_of_nan_are_nan(broken: FirstIsBroken) -> None:
    # As many positions as classes, so that each is needed.
    classes = broken.labels.shape[1]
    log_probs = broken.logits.log_softmax(dim=1)[:, :, :classes]
    bounds = bag_log_prob_bounds(log_probs, broken.labels, validate=False)
    assert bounds.upper[0].isnan()


def test_the_posterior_of_nan_is_nan(broken: FirstIsBroken) -> None:
    log_probs = broken.logits.log_softmax(dim=1)
    posterior = instance_posterior(log_probs, broken.labels, validate=False)
    assert posterior[0].isnan().any()
    assert posterior[1].isfinite().all()


def test_sixteen_classes_and_two_thousand_positions() -> None:
    log_probs = torch.randn(
        1, 18, 2_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    log_probs = log_probs.log_softmax(1).requires_grad_()
    value = bag_log_prob(log_probs, (torch.arange(17) < 16).unsqueeze(0))
    own_channels = torch.cat([log_probs[:, :16], log_probs[:, -1:]], dim=1)
    # With so many positions every class is almost certain to occur. What is left is the probability
    # alpha that no class outside of the label set occurs.
    log_alpha = torch.logsumexp(own_channels, 1).sum()
    assert value.item() == pytest.approx(log_alpha.item(), rel=1e-14)
    (gradient,) = torch.autograd.grad(value.sum(), log_probs)
    torch.testing.assert_close(gradient.sum(dim=1), torch.ones(1, 2_000, dtype=torch.float64))
