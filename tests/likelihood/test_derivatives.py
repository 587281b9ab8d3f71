"""Derivatives of the exact likelihood in every mode of torch, against enumerated label maps."""

import itertools
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.testing import assert_close

from milbench.likelihood import (
    Bounds,
    bag_log_prob,
    bag_log_prob_bounds,
    bag_log_prob_from_logits,
    instance_posterior,
    presence_log_odds,
    presence_log_prob,
)
from milbench.losses import Exact
from tests._helpers.label_maps import exactly, softmax
from tests._helpers.likelihood_reference import every_label_set
from tests._helpers.losses import random_logits

C = 2
K = 3
BACKGROUND = C
LABEL_SETS = every_label_set(C)
SCALES = (1.0, 10.0, 100.0)
DIRECTION = random_logits(C + 1, K, seed=9, scale=1.0)

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


Entry = tuple[int, int]
"""A channel and a position."""
ENTRIES: list[Entry] = list(itertools.product(range(C + 1), range(K)))


def one_bag(scale: float) -> Tensor:
    return random_logits(C + 1, K, seed=3, scale=scale)


def truth(scale: float, label_set: Tensor) -> Truth:
    # A tensor cannot be the key of a cache.
    return enumerated(scale, tuple(label_set.tolist()))


@cache
def enumerated(scale: float, label_set: tuple[bool, ...]) -> Truth:
    """Return both derivatives from the label maps that show exactly this label set.

    An entry is a channel at a position. By the log-probabilities, the gradient is the posterior of
    each entry, and the second derivative is the covariance of two entries. By the logits, the mean
    and the covariance of the softmax at each position are subtracted.
    """
    p = softmax(one_bag(scale))
    # Sums of probabilities: of all label maps, of the label maps that have an entry, and of the
    # label maps that have two entries.
    total = exactly.mpf(0)
    of_entry = dict.fromkeys(ENTRIES, exactly.mpf(0))
    of_two = dict.fromkeys(itertools.product(ENTRIES, ENTRIES), exactly.mpf(0))
    for label_map in label_maps(label_set):
        prob = exactly.fprod(p[c][k] for c, k in label_map)
        total += prob
        for entry in label_map:
            of_entry[entry] += prob
            for other in label_map:
                of_two[entry, other] += prob

    posterior = {entry: prob / total for entry, prob in of_entry.items()}
    gradient = torch.zeros(C + 1, K, dtype=torch.float64)
    second = torch.zeros(C + 1, K, C + 1, K, dtype=torch.float64)
    for entry in ENTRIES:
        c, k = entry
        gradient[c, k] = float(posterior[entry] - p[c][k])
        for other in ENTRIES:
            d, m = other
            covariance = of_two[entry, other] / total - posterior[entry] * posterior[other]
            second[c, k, d, m] = float(covariance - covariance_of_softmax(p, entry, other))
    return Truth(gradient, second)


def label_maps(label_set: tuple[bool, ...]) -> Iterator[list[Entry]]:
    """Yield the entries of each label map that shows exactly these classes.

    It may show background, too.
    """
    wanted = {c for c in range(C) if label_set[c]}
    for channels in itertools.product(range(C + 1), repeat=K):
        if set(channels) - {BACKGROUND} == wanted:
            yield [(c, k) for k, c in enumerate(channels)]


def covariance_of_softmax(p: list[list[Any]], first: Entry, second: Entry) -> Any:
    """Return the covariance of two entries where positions are independent of each other."""
    c, k = first
    d, m = second
    if k != m:
        return 0
    if c != d:
        return -p[c][k] * p[d][k]
    return p[c][k] * (1 - p[c][k])


def from_logits(label_set: Tensor) -> Function:
    return lambda logits: bag_log_prob_from_logits(logits[None], label_set[None])[0]


def of_the_loss(label_set: Tensor) -> Function:
    loss = Exact()
    return lambda logits: -loss(logits[None], label_set[None])


def by_jvp(function: Function, logits: Tensor) -> Tensor:
    tangent: Tensor = jvp(function, (logits,), (DIRECTION,))[1]
    return tangent


def by_forward_mode(function: Function, logits: Tensor) -> Tensor:
    with forward_ad.dual_level():
        value = function(forward_ad.make_dual(logits, DIRECTION))
        tangent: Tensor = forward_ad.unpack_dual(value).tangent
        return tangent


def vjp_of_grad(function: Function, logits: Tensor) -> Tensor:
    product_with = vjp(grad(function), logits)[1]
    product: Tensor = product_with(DIRECTION)[0]
    return product


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


def mapped(derivative: Function, logits: Tensor) -> Tensor:
    """Return a derivative of one bag by vmap over a batch of this bag."""
    found: Tensor = vmap(derivative)(logits[None])[0]
    return found


Mode = Callable[[Function, Tensor], Tensor]
"""A way to compute a derivative of a function at these logits."""

GRADIENTS: dict[str, Mode] = {
    "autograd": torch.autograd.functional.jacobian,
    "grad": lambda f, z: grad(f)(z),
    "jacrev": lambda f, z: jacrev(f)(z),
    "jacfwd": lambda f, z: jacfwd(f)(z),
    "vmap of grad": lambda f, z: mapped(grad(f), z),
}
GRADIENTS_ALONG_DIRECTION: dict[str, Mode] = {
    "jvp": by_jvp,
    "forward mode": by_forward_mode,
    "vmap of jvp": lambda f, z: mapped(partial(by_jvp, f), z),
}
SECOND: dict[str, Mode] = {
    "autograd": torch.autograd.functional.hessian,
    "hessian": lambda f, z: hessian(f)(z),
    "jacrev of jacrev": lambda f, z: jacrev(jacrev(f))(z),
    "jacfwd of jacfwd": lambda f, z: jacfwd(jacfwd(f))(z),
    "jacrev of jacfwd": lambda f, z: jacrev(jacfwd(f))(z),
    "vmap of hessian": lambda f, z: mapped(hessian(f), z),
}
SECOND_ALONG_DIRECTION: dict[str, Mode] = {
    "jvp of grad": lambda f, z: by_jvp(grad(f), z),
    "vjp of grad": vjp_of_grad,
    "grad of jvp": lambda f, z: grad(partial(by_jvp, f))(z),
    "backward of forward mode": backward_of_forward_mode,
    "forward mode of backward": forward_mode_of_backward,
}

of_every_set = pytest.mark.parametrize(
    "label_set", LABEL_SETS, ids=lambda label_set: str(label_set.int().tolist())
)
at_every_scale = pytest.mark.parametrize("scale", SCALES)
close = partial(assert_close, rtol=1e-10, atol=1e-12)


@at_every_scale
@of_every_set
@pytest.mark.parametrize("mode", GRADIENTS)
def test_the_gradient_is_right_in_every_mode(scale: float, label_set: Tensor, mode: str) -> None:
    found = GRADIENTS[mode](from_logits(label_set), one_bag(scale))
    close(found, truth(scale, label_set).gradient)


@at_every_scale
@of_every_set
@pytest.mark.parametrize("mode", GRADIENTS_ALONG_DIRECTION)
def test_the_directional_derivative_is_right_in_every_mode(
    scale: float, label_set: Tensor, mode: str
) -> None:
    found = GRADIENTS_ALONG_DIRECTION[mode](from_logits(label_set), one_bag(scale))
    close(found, truth(scale, label_set).along_direction())


@at_every_scale
@of_every_set
@pytest.mark.parametrize("mode", SECOND)
def test_the_second_derivative_is_right_in_every_mode(
    scale: float, label_set: Tensor, mode: str
) -> None:
    found = SECOND[mode](from_logits(label_set), one_bag(scale))
    close(found, truth(scale, label_set).second)


@at_every_scale
@of_every_set
@pytest.mark.parametrize("mode", SECOND_ALONG_DIRECTION)
def test_products_with_the_second_derivative_are_right(
    scale: float, label_set: Tensor, mode: str
) -> None:
    found = SECOND_ALONG_DIRECTION[mode](from_logits(label_set), one_bag(scale))
    expected = truth(scale, label_set).second_times_direction()
    close(found, expected)


@at_every_scale
@of_every_set
def test_the_loss_exact_has_the_hessian_of_the_likelihood(scale: float, label_set: Tensor) -> None:
    found = hessian(of_the_loss(label_set))(one_bag(scale))
    close(found, truth(scale, label_set).second)


@at_every_scale
@of_every_set
def test_log_probs_of_a_softmax_have_the_same_hessian(scale: float, label_set: Tensor) -> None:
    def log_prob(logits: Tensor) -> Tensor:
        return bag_log_prob(logits.log_softmax(dim=0)[None], label_set[None])[0]

    found = hessian(log_prob)(one_bag(scale))
    close(found, truth(scale, label_set).second)


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
    close(found, truth(scale, label_set).second)


@at_every_scale
def test_label_sets_of_all_sizes_may_be_mapped_together(scale: float) -> None:
    def log_prob(logits: Tensor, label_set: Tensor) -> Tensor:
        return bag_log_prob_from_logits(logits[None], label_set[None])[0]

    found = vmap(hessian(log_prob), in_dims=(None, 0))(one_bag(scale), LABEL_SETS)
    for second, label_set in zip(found, LABEL_SETS, strict=True):
        close(second, truth(scale, label_set).second)


@pytest.mark.parametrize("mode", SECOND)
def test_a_label_set_that_cannot_occur_has_derivatives_of_zero(mode: str) -> None:
    both_classes = torch.tensor([True, True])
    one_position = one_bag(1.0)[:, :1]
    found = SECOND[mode](from_logits(both_classes), one_position)
    assert (found == 0).all()


# Two bags, of 40 positions and of 25.
LONG = random_logits(2, 4, 40, seed=5, scale=70.0)
LONG_LABELS = torch.tensor([[True, False, True], [False, True, False]])
LONG_MASK = torch.arange(40) < torch.tensor([[40], [25]])
LONG_DIRECTION = random_logits(2, 4, 40, seed=6, scale=1.0)


def bounds_of_long_bags(logits: Tensor) -> Bounds:
    log_probs = logits.log_softmax(dim=1)
    return bag_log_prob_bounds(log_probs, LONG_LABELS, LONG_MASK, exact_labels=1)


SUMS: dict[str, Function] = {
    "log prob": lambda z: bag_log_prob_from_logits(z, LONG_LABELS, LONG_MASK).sum(),
    "presence": lambda z: presence_log_prob(z.log_softmax(dim=1), LONG_MASK).sum(),
    "presence odds": lambda z: presence_log_odds(z.log_softmax(dim=1), LONG_MASK).sum(),
    "lower bound": lambda z: bounds_of_long_bags(z).lower.sum(),
    "upper bound": lambda z: bounds_of_long_bags(z).upper.sum(),
}
"""Functions of the likelihood, summed over the two long bags."""


@pytest.mark.parametrize("name", SUMS)
def test_forward_derivatives_of_long_bags_agree_with_backward(name: str) -> None:
    leaf = LONG.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(SUMS[name](leaf), leaf)
    found = jvp(SUMS[name], (LONG,), (LONG_DIRECTION,))[1]
    assert_close(found, (gradient * LONG_DIRECTION).sum(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", SUMS)
def test_second_derivatives_of_long_bags_agree_with_backward(name: str) -> None:
    leaf = LONG.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(SUMS[name](leaf), leaf, create_graph=True)
    (expected,) = torch.autograd.grad((gradient * LONG_DIRECTION).sum(), leaf)
    found = jvp(grad(SUMS[name]), (LONG,), (LONG_DIRECTION,))[1]
    assert_close(found, expected, rtol=1e-9, atol=1e-12)
