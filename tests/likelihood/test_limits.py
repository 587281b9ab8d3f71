"""Label sets of 9 to 16 classes, long bags and probabilities that underflow."""

from functools import partial

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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(("classes", "background"), [(9, 5.0), (12, 5.0), (13, 2.77), (16, 1.5)])
def test_large_label_sets(classes: int, background: float, dtype: torch.dtype) -> None:
    """Some classes are likely and others rare."""
    logits = torch.randn(
        2, classes + 1, 24, generator=torch.Generator().manual_seed(classes), dtype=dtype
    )
    logits[:, -1] += background
    labels = torch.ones(2, classes, dtype=torch.bool)
    log_probs = logits.log_softmax(dim=1)
    relative, absolute = (1e-11, 1e-12) if dtype == torch.float64 else (1.2e-7, 2e-6)
    for bag, (from_logits, value) in enumerate(
        zip(bag_log_prob_from_logits(logits, labels), bag_log_prob(log_probs, labels), strict=True)
    ):
        truth = float(np.log(every_set_prob(logits[bag].double().softmax(dim=0).numpy())[-1]))
        assert float(from_logits) == pytest.approx(truth, rel=relative, abs=absolute)
        truth = float(np.log(every_set_prob(log_probs[bag].double().exp().numpy())[-1]))
        assert float(value) == pytest.approx(truth, rel=relative, abs=absolute)


def test_the_posterior_of_a_large_label_set_adds_up_and_is_the_slope() -> None:
    logits = torch.randn(1, 14, 20, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    logits[:, -1] += 5
    log_probs, labels = logits.log_softmax(dim=1), torch.ones(1, 13, dtype=torch.bool)
    posterior = instance_posterior(log_probs, labels)
    torch.testing.assert_close(posterior.sum(dim=1), torch.ones(1, 20, dtype=torch.float64))
    probs = log_probs[0].exp().numpy()
    whole = every_set_prob(probs)[-1]
    for slot, k in ((0, 3), (12, 0), (13, 19)):
        fixed = probs.copy()
        fixed[:, k] = 0
        fixed[slot, k] = probs[slot, k]
        assert float(posterior[0, slot, k]) == pytest.approx(
            every_set_prob(fixed)[-1] / whole, abs=1e-9
        )


def test_a_broken_network_is_no_impossible_label_set() -> None:
    for classes in (2, 12):
        logits = torch.zeros(2, classes + 1, 20)
        logits[0, 0, 0] = torch.nan
        labels = torch.ones(2, classes, dtype=torch.bool)
        for function, values in (
            (bag_log_prob, logits.log_softmax(dim=1)),
            (bag_log_prob_from_logits, logits),
        ):
            value, gradient = derived(partial(function, validate=False), values, labels)
            assert value.isnan().tolist() == [True, False]
            assert gradient[0].isnan().all()
            assert gradient[1].isfinite().all()
        assert (
            bag_log_prob_bounds(logits.log_softmax(dim=1)[:, :, :classes], labels, validate=False)
            .upper[0]
            .isnan()
        )
        found: Tensor = instance_posterior(logits.log_softmax(dim=1), labels, validate=False)
        assert found[0].isnan().any()
        assert found[1].isfinite().all()


def test_sixteen_classes_and_two_thousand_positions() -> None:
    log_probs = torch.randn(
        1, 18, 2_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    log_probs = log_probs.log_softmax(1).requires_grad_()
    value = bag_log_prob(log_probs, (torch.arange(17) < 16).unsqueeze(0))
    chosen = torch.cat([log_probs[:, :16], log_probs[:, -1:]], dim=1)
    assert value.item() == pytest.approx(
        torch.logsumexp(chosen, 1).sum().item(), rel=1e-14
    )  # every class is certain
    (gradient,) = torch.autograd.grad(value.sum(), log_probs)
    torch.testing.assert_close(gradient.sum(dim=1), torch.ones(1, 2_000, dtype=torch.float64))
