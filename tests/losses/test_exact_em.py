"""The loss `exact-em` against enumerated label maps and the loss `exact`.

EM is expectation maximisation. The bags have C classes and K positions. Expected values are
computed with 600 digits, by the mpmath context `exactly`.
"""

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.testing import assert_close

from tests._helpers.label_maps import ALL_LABELS, EXTREME, C, K, LabelMaps, bag, exactly, softmax
from tests._helpers.losses import per_bag, random_logits


def enumerated(logits: Tensor, sharpness: float = 1.0) -> tuple[Tensor, Tensor]:
    """Return the cost (2^C,) of every label set and its gradient (2^C, C+1, K).

    The gradient holds the posterior fixed. The posterior, given the label set, belongs to the
    probabilities softmax(s * logits) with the sharpness s: p^s, normalised at every position.
    """
    maps = LabelMaps(sharpness * logits)
    p = softmax(logits)
    costs = []
    gradients = []
    for labels in ALL_LABELS.tolist():
        label_set = frozenset(c for c, is_held in enumerate(labels) if is_held)
        cost = exactly.mpf(0)
        gradient = torch.zeros(C + 1, K, dtype=torch.float64)
        for c in range(C + 1):
            for k in range(K):
                q = maps.posterior(label_set, c, k)
                cost -= q * exactly.log(p[c][k])
                gradient[c, k] = float(p[c][k] - q)
        costs.append(float(cost))
        gradients.append(gradient)
    return torch.tensor(costs, dtype=torch.float64), torch.stack(gradients)


PRECISE = [
    pytest.param(bag(seed), sharpness, 1e-11, 1e-12, id=f"random {seed}, sharpness {sharpness}")
    for seed in range(2)
    for sharpness in (1.0, 0.5, 3.0)
]
SINGLE = [
    pytest.param(EXTREME[name].float(), 1.0, 1e-5, 2e-6, id=name)
    for name in ("wide", "signs", "all low", "sure background")
]


@pytest.mark.parametrize(("logits", "sharpness", "rel", "tiny"), PRECISE + SINGLE)
def test_value_and_gradient_agree_with_the_enumerated_posterior(
    logits: Tensor, sharpness: float, rel: float, tiny: float
) -> None:
    leaf = logits.repeat(len(ALL_LABELS), 1, 1).requires_grad_()
    value = per_bag("exact-em", divide_by="none", sharpness=sharpness)(leaf, ALL_LABELS)
    (gradient,) = torch.autograd.grad(value.sum(), leaf)
    expected, expected_gradient = enumerated(logits, sharpness)
    assert_close(value, expected.to(logits), rtol=rel, atol=tiny)
    # A gradient p - q loses digits where p and q are nearly equal.
    assert_close(gradient, expected_gradient.to(logits), rtol=100 * rel, atol=tiny)


# One bag for each label set, each with at least as many positions as classes.
BAGS = torch.stack([bag(seed) for seed in range(len(ALL_LABELS))])
SIZES = torch.tensor([4, 3, 3, 4, 3, 4, 4, 3])
MASK = torch.arange(K) < SIZES.unsqueeze(1)


@pytest.mark.parametrize("divide_by", ["batch", "bag", "none"])
def test_the_gradient_equals_the_gradient_of_the_exact_likelihood(divide_by: str) -> None:
    """This is Fisher's identity, on bags of several sizes.

    The gradient of log Prb(L) is the mean, over the posterior of label maps, of the gradient of a
    label map's log-probability. EM holds the posterior fixed, so this is its gradient.
    """
    logits = BAGS.clone().requires_grad_()
    value = per_bag("exact-em", divide_by=divide_by)(logits, ALL_LABELS, MASK)
    exact = per_bag("exact", divide_by=divide_by)(logits, ALL_LABELS, MASK)
    (gradient,) = torch.autograd.grad(value.sum(), logits)
    (expected,) = torch.autograd.grad(exact.sum(), logits)
    assert_close(gradient, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("divide_by", ["batch", "bag", "none"])
def test_the_value_exceeds_the_exact_loss_by_an_entropy(divide_by: str) -> None:
    # The mean of -log p over the posterior is the negative log-likelihood plus the entropy of the
    # posterior. This entropy is 0 for the empty label set, which has a single label map.
    value = per_bag("exact-em", divide_by=divide_by)(BAGS, ALL_LABELS, MASK)
    exact = per_bag("exact", divide_by=divide_by)(BAGS, ALL_LABELS, MASK)
    assert not ALL_LABELS[0].any()
    assert_close(value[0], exact[0])
    assert (value[1:] > exact[1:] + 1e-6).all()


def test_second_derivatives_hold_the_posterior_fixed() -> None:
    labels = torch.tensor([[True, False, True]])
    logits = bag(0).unsqueeze(0).requires_grad_()
    value = per_bag("exact-em", divide_by="none")(logits, labels)
    (gradient,) = torch.autograd.grad(value.sum(), logits, create_graph=True)
    direction = random_logits(1, C + 1, K, seed=7)
    (second,) = torch.autograd.grad((gradient * direction).sum(), logits)
    # At every position, the Hessian of a softmax cross-entropy with fixed targets is
    # diag(p) - p p^T.
    p = logits.detach().softmax(dim=1)
    assert_close(second, p * direction - p * (p * direction).sum(dim=1, keepdim=True))


def test_backward_of_forward_mode_is_backward_twice() -> None:
    labels = torch.tensor([[True, False, True]])
    loss = per_bag("exact-em", divide_by="none")
    logits = bag(0).unsqueeze(0).requires_grad_()
    direction = random_logits(1, C + 1, K, seed=7)
    (gradient,) = torch.autograd.grad(loss(logits, labels).sum(), logits, create_graph=True)
    (expected,) = torch.autograd.grad((gradient * direction).sum(), logits)
    with forward_ad.dual_level():
        value = loss(forward_ad.make_dual(logits, direction), labels).sum()
        derivative = forward_ad.unpack_dual(value).tangent
        (found,) = torch.autograd.grad(derivative, logits)
    assert_close(found, expected)


def test_sharpness_leads_to_the_best_assignment() -> None:
    sharp = per_bag("exact-em", sharpness=1000.0)(BAGS, ALL_LABELS)
    hard = per_bag("hard-em")(BAGS, ALL_LABELS)
    assert_close(sharp, hard, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("blunt", "sharp"), [(0.01, 1.0), (1.0, 10.0), (10.0, 1000.0)])
def test_a_sharper_posterior_costs_no_more(blunt: float, sharp: float) -> None:
    blunt_cost = per_bag("exact-em", sharpness=blunt)(BAGS, ALL_LABELS)
    sharp_cost = per_bag("exact-em", sharpness=sharp)(BAGS, ALL_LABELS)
    assert (sharp_cost <= blunt_cost + 1e-12).all()
