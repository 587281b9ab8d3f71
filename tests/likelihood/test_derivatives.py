"""First and second derivatives of the exact likelihood in every mode of torch, against enumerated label maps."""

import itertools
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import mpmath
import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.testing import assert_close

from milbench.likelihood import (
    bag_log_prob,
    bag_log_prob_bounds,
    bag_log_prob_from_logits,
    instance_posterior,
    presence_log_odds,
    presence_log_prob,
)
from milbench.losses import Exact
from tests._helpers.likelihood_reference import every_label_set
from tests._helpers.losses import random_logits

C, K = 2, 3
LABEL_SETS = every_label_set(C)
SCALES = (1.0, 10.0, 100.0)
DIRECTION = random_logits(C + 1, K, seed=9, scale=1.0)

exactly = mpmath.MPContext()
exactly.dps = 300

Function = Callable[[Tensor], Tensor]


class Truth(NamedTuple):
    """Derivatives of log Prb by the logits of one bag."""

    gradient: Tensor  # (C+1, K)
    second: Tensor  # (C+1, K, C+1, K)

    def along_direction(self) -> Tensor:
        """Return the derivative of the log-probability along DIRECTION."""
        return (self.gradient * DIRECTION).sum()

    def second_times_direction(self) -> Tensor:
        """Return the derivative of the gradient along DIRECTION, (C+1, K)."""
        product: Tensor = torch.tensordot(self.second, DIRECTION, dims=2)
        return product


@cache
def enumerated(scale: float, label_set: tuple[bool, ...]) -> Truth:
    """Return both derivatives from the probabilities of all label maps that show exactly this label set.

    By the log-probabilities, the gradient is the posterior of one position and channel, and the second derivative the
    covariance of two. The normalisation of the softmax subtracts its own mean and covariance at every position.
    """
    logits = one_bag(scale)
    odds = [[exactly.exp(exactly.mpf(value)) for value in row] for row in logits.tolist()]
    sums = [sum(odds[c][k] for c in range(C + 1)) for k in range(K)]
    places = [*itertools.product(range(C + 1), range(K))]
    probs = {(c, k): odds[c][k] / sums[k] for c, k in places}
    wanted = {c for c in range(C) if label_set[c]}
    total = exactly.mpf(0)
    single = dict.fromkeys(places, exactly.mpf(0))
    pairs = dict.fromkeys(itertools.product(places, places), exactly.mpf(0))
    for label_map in itertools.product(range(C + 1), repeat=K):
        if set(label_map) - {C} != wanted:
            continue
        shown = [(c, k) for k, c in enumerate(label_map)]
        prob = exactly.fprod(probs[place] for place in shown)
        total += prob
        for place in shown:
            single[place] += prob
            for other in shown:
                pairs[place, other] += prob
    gradient = torch.zeros(C + 1, K, dtype=torch.float64)
    second = torch.zeros(C + 1, K, C + 1, K, dtype=torch.float64)
    for place in places:
        posterior = single[place] / total
        gradient[place] = float(posterior - probs[place])
        for other in places:
            covariance = pairs[place, other] / total - posterior * single[other] / total
            if place[1] == other[1]:
                of_softmax = -probs[place] * probs[other]
                if place == other:
                    of_softmax += probs[place]
                covariance -= of_softmax
            second[(*place, *other)] = float(covariance)
    return Truth(gradient, second)


def one_bag(scale: float) -> Tensor:
    return random_logits(C + 1, K, seed=3, scale=scale)


def from_logits(label_set: Tensor) -> Function:
    return lambda logits: bag_log_prob_from_logits(logits[None], label_set[None])[0]


def of_the_loss(label_set: Tensor) -> Function:
    loss = Exact()
    return lambda logits: -loss(logits[None], label_set[None])


def by_forward_mode(function: Function, logits: Tensor) -> Tensor:
    with forward_ad.dual_level():
        value = function(forward_ad.make_dual(logits, DIRECTION))
        tangent: Tensor = forward_ad.unpack_dual(value).tangent
        return tangent


def backward_of_forward_mode(function: Function, logits: Tensor) -> Tensor:
    leaf = logits.clone().requires_grad_()
    (product,) = torch.autograd.grad(by_forward_mode(function, leaf), leaf)
    return product


def forward_mode_of_backward(function: Function, logits: Tensor) -> Tensor:
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(logits.clone().requires_grad_(), DIRECTION)
        (gradient,) = torch.autograd.grad(function(dual), dual, create_graph=True)
        tangent: Tensor = forward_ad.unpack_dual(gradient).tangent
        return tangent


Mode = Callable[[Function, Tensor], Tensor]

GRADIENTS: dict[str, Mode] = {
    "autograd": torch.autograd.functional.jacobian,
    "grad": lambda f, z: grad(f)(z),
    "jacrev": lambda f, z: jacrev(f)(z),
    "jacfwd": lambda f, z: jacfwd(f)(z),
    "vmap of grad": lambda f, z: vmap(grad(f))(z[None])[0],
}
ALONG: dict[str, Mode] = {
    "jvp": lambda f, z: jvp(f, (z,), (DIRECTION,))[1],
    "forward mode": by_forward_mode,
    "vmap of jvp": lambda f, z: vmap(lambda v: jvp(f, (v,), (DIRECTION,))[1])(z[None])[0],
}
SECOND: dict[str, Mode] = {
    "autograd": torch.autograd.functional.hessian,
    "hessian": lambda f, z: hessian(f)(z),
    "jacrev of jacrev": lambda f, z: jacrev(jacrev(f))(z),
    "jacfwd of jacfwd": lambda f, z: jacfwd(jacfwd(f))(z),
    "jacrev of jacfwd": lambda f, z: jacrev(jacfwd(f))(z),
    "vmap of hessian": lambda f, z: vmap(hessian(f))(z[None])[0],
}
SECOND_ALONG: dict[str, Mode] = {
    "jvp of grad": lambda f, z: jvp(grad(f), (z,), (DIRECTION,))[1],
    "vjp of grad": lambda f, z: vjp(grad(f), z)[1](DIRECTION)[0],
    "grad of jvp": lambda f, z: grad(lambda v: jvp(f, (v,), (DIRECTION,))[1])(z),
    "backward of forward mode": backward_of_forward_mode,
    "forward mode of backward": forward_mode_of_backward,
}

of_every_set = pytest.mark.parametrize("label_set", LABEL_SETS, ids=lambda s: str(s.int().tolist()))
at_every_scale = pytest.mark.parametrize("scale", SCALES)
RTOL, ATOL = 1e-10, 1e-12


@at_every_scale
@of_every_set
@pytest.mark.parametrize("mode", GRADIENTS)
def test_the_gradient_is_right_in_every_mode(scale: float, label_set: Tensor, mode: str) -> None:
    found = GRADIENTS[mode](from_logits(label_set), one_bag(scale))
    assert_close(found, enumerated(scale, (*label_set.tolist(),)).gradient, rtol=RTOL, atol=ATOL)


@at_every_scale
@of_every_set
@pytest.mark.parametrize("mode", ALONG)
def test_the_directional_derivative_is_right_in_every_mode(
    scale: float, label_set: Tensor, mode: str
) -> None:
    found = ALONG[mode](from_logits(label_set), one_bag(scale))
    assert_close(
        found, enumerated(scale, (*label_set.tolist(),)).along_direction(), rtol=RTOL, atol=ATOL
    )


@at_every_scale
@of_every_set
@pytest.mark.parametrize("mode", SECOND)
def test_the_second_derivative_is_right_in_every_mode(
    scale: float, label_set: Tensor, mode: str
) -> None:
    found = SECOND[mode](from_logits(label_set), one_bag(scale))
    assert_close(found, enumerated(scale, (*label_set.tolist(),)).second, rtol=RTOL, atol=ATOL)


@at_every_scale
@of_every_set
@pytest.mark.parametrize("mode", SECOND_ALONG)
def test_products_with_the_second_derivative_are_right(
    scale: float, label_set: Tensor, mode: str
) -> None:
    found = SECOND_ALONG[mode](from_logits(label_set), one_bag(scale))
    expected = enumerated(scale, (*label_set.tolist(),)).second_times_direction()
    assert_close(found, expected, rtol=RTOL, atol=ATOL)


@at_every_scale
@of_every_set
def test_the_loss_exact_has_the_hessian_of_the_likelihood(scale: float, label_set: Tensor) -> None:
    found = hessian(of_the_loss(label_set))(one_bag(scale))
    assert_close(found, enumerated(scale, (*label_set.tolist(),)).second, rtol=RTOL, atol=ATOL)


@at_every_scale
@of_every_set
def test_log_probs_of_a_softmax_have_the_same_hessian(scale: float, label_set: Tensor) -> None:
    def log_prob(logits: Tensor) -> Tensor:
        return bag_log_prob(logits.log_softmax(dim=0)[None], label_set[None])[0]

    found = hessian(log_prob)(one_bag(scale))
    assert_close(found, enumerated(scale, (*label_set.tolist(),)).second, rtol=RTOL, atol=ATOL)


@at_every_scale
@of_every_set
@pytest.mark.parametrize("jacobian", [jacfwd, jacrev], ids=["jacfwd", "jacrev"])
def test_the_jacobian_of_the_posterior_is_right(
    scale: float, label_set: Tensor, jacobian: Callable[..., Function]
) -> None:
    """The gradient by the logits is the posterior minus the softmax."""

    def gradient(logits: Tensor) -> Tensor:
        log_probs = logits.log_softmax(dim=0)
        posterior = instance_posterior(log_probs[None], label_set[None])[0]
        return posterior - log_probs.exp()

    found = jacobian(gradient)(one_bag(scale))
    assert_close(found, enumerated(scale, (*label_set.tolist(),)).second, rtol=RTOL, atol=ATOL)


@at_every_scale
def test_label_sets_of_all_sizes_may_be_mapped_together(scale: float) -> None:
    def log_prob(logits: Tensor, label_set: Tensor) -> Tensor:
        return bag_log_prob_from_logits(logits[None], label_set[None])[0]

    found = vmap(hessian(log_prob), in_dims=(None, 0))(one_bag(scale), LABEL_SETS)
    for second, label_set in zip(found, LABEL_SETS.tolist(), strict=True):
        assert_close(second, enumerated(scale, (*label_set,)).second, rtol=RTOL, atol=ATOL)


@pytest.mark.parametrize("mode", SECOND)
def test_a_label_set_that_cannot_occur_has_derivatives_of_zero(mode: str) -> None:
    both_classes = torch.tensor([True, True])
    one_position = one_bag(1.0)[:, :1]
    found = SECOND[mode](from_logits(both_classes), one_position)
    assert (found == 0).all()


LONG = random_logits(2, 4, 40, seed=5, scale=70.0)
LONG_LABELS = torch.tensor([[True, False, True], [False, True, False]])
LONG_MASK = torch.arange(40) < torch.tensor([[40], [25]])
LONG_DIRECTION = random_logits(2, 4, 40, seed=6, scale=1.0)

SUMS: dict[str, Function] = {
    "log prob": lambda z: bag_log_prob_from_logits(z, LONG_LABELS, LONG_MASK).sum(),
    "presence": lambda z: presence_log_prob(z.log_softmax(dim=1), LONG_MASK).sum(),
    "presence odds": lambda z: presence_log_odds(z.log_softmax(dim=1), LONG_MASK).sum(),
    "lower bound": lambda z: bag_log_prob_bounds(
        z.log_softmax(dim=1), LONG_LABELS, LONG_MASK, exact_labels=1
    ).lower.sum(),
    "upper bound": lambda z: bag_log_prob_bounds(
        z.log_softmax(dim=1), LONG_LABELS, LONG_MASK, exact_labels=1
    ).upper.sum(),
}


@pytest.mark.parametrize("name", SUMS)
def test_forward_derivatives_of_long_bags_are_those_of_backward(name: str) -> None:
    leaf = LONG.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(SUMS[name](leaf), leaf)
    found = jvp(SUMS[name], (LONG,), (LONG_DIRECTION,))[1]
    assert_close(found, (gradient * LONG_DIRECTION).sum(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", SUMS)
def test_second_derivatives_of_long_bags_are_those_of_backward(name: str) -> None:
    leaf = LONG.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(SUMS[name](leaf), leaf, create_graph=True)
    (expected,) = torch.autograd.grad((gradient * LONG_DIRECTION).sum(), leaf)
    found = jvp(grad(SUMS[name]), (LONG,), (LONG_DIRECTION,))[1]
    assert_close(found, expected, rtol=1e-9, atol=1e-12)
