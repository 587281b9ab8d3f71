"""The exact likelihood with second derivatives, half precision, autocast, torch.compile, torch.func and CUDA."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from milbench import load_loss
from milbench.likelihood import (
    bag_log_prob,
    bag_log_prob_from_logits,
    instance_posterior,
)
from milbench.likelihood.exact import _by_levels, _traceable
from tests._helpers.random_logits import random_logits

LABELS = torch.tensor([[0, 0, 0], [1, 0, 0], [0, 1, 1], [1, 1, 1]]).bool()


def logits(*positions: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return random_logits(4, 4, *positions, seed=seed, scale=1.0).to(dtype)


MASK = torch.tensor([[True] * 4, [False, True, True, True]] * 2)


@pytest.mark.parametrize("mask", [None, MASK], ids=["all", "masked"])
def test_first_and_second_derivatives(mask: Tensor | None) -> None:
    def value(z: Tensor) -> Tensor:
        return bag_log_prob(z.log_softmax(1), LABELS, mask)

    z = logits(4).requires_grad_()
    assert torch.autograd.gradcheck(value, (z,))
    assert torch.autograd.gradgradcheck(value, (z,))


def test_second_derivatives_where_classes_tie() -> None:
    z = torch.zeros(4, 4, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda z: bag_log_prob(z.log_softmax(1), LABELS), (z,))


def test_gradient_of_logits_is_posterior_minus_probability() -> None:
    z = logits(6).requires_grad_()
    (gradient,) = torch.autograd.grad(bag_log_prob(z.log_softmax(1), LABELS).sum(), z)
    assert torch.allclose(gradient, instance_posterior(z.log_softmax(1), LABELS) - z.softmax(1), atol=1e-14)


def test_posterior_is_differentiable() -> None:
    z = logits(3).requires_grad_()
    assert torch.autograd.gradcheck(lambda z: instance_posterior(z.log_softmax(1), LABELS), (z,))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype) -> None:
    low = logits(50, dtype=dtype).log_softmax(1).requires_grad_()
    value = bag_log_prob(low, LABELS)
    assert value.dtype == torch.float32
    # Rounded, the probabilities of a position no longer sum to 1: the likelihood is that of their shares.
    expected = bag_log_prob(low.detach().double().log_softmax(1), LABELS)
    assert (value - expected).abs().max() < 1e-5
    value.sum().backward()
    assert low.grad is not None
    assert low.grad.dtype == dtype
    assert instance_posterior(low.detach(), LABELS).dtype == torch.float32


@pytest.mark.parametrize(
    "function", [bag_log_prob_from_logits, lambda z, y: bag_log_prob(z.log_softmax(1), y), load_loss("exact")]
)
def test_autocast_does_not_lower_the_precision(function) -> None:  # type: ignore[no-untyped-def]
    def both() -> tuple[Tensor, Tensor]:
        z = logits(50, dtype=torch.float32).requires_grad_()
        value = function(z, LABELS)
        return value, torch.autograd.grad(value.sum(), z)[0]

    plain = both()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = both()
    assert all(torch.equal(a, b) for a, b in zip(plain, cast, strict=True))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_gives_no_probability_above_one(dtype: torch.dtype) -> None:
    low = torch.tensor([-9.0, 0.0]).view(1, 2, 1).expand(1, 2, 800).to(dtype)  # bfloat16 has 1 for the background
    assert bag_log_prob(low, torch.tensor([[False]])).item() == pytest.approx(-800 * math.log1p(math.exp(-9)), rel=1e-2)
    masked = low.clone()
    masked[..., 1:] = torch.nan
    mask = torch.arange(800).view(1, -1) < 1
    assert torch.isfinite(bag_log_prob(masked, torch.tensor([[True]]), mask)).all()


@pytest.mark.parametrize("function", [bag_log_prob_from_logits, lambda z, y: bag_log_prob(z.log_softmax(1), y)])
def test_forward_mode_derivative(function) -> None:  # type: ignore[no-untyped-def]
    """The derivative along a direction, against the difference quotient."""
    z, along = logits(4), logits(4, seed=1)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(z, along)
        tangent = torch.autograd.forward_ad.unpack_dual(function(dual, LABELS)).tangent
    quotient = (function(z + 1e-6 * along, LABELS) - function(z - 1e-6 * along, LABELS)) / 2e-6
    assert torch.allclose(tangent, quotient, rtol=1e-7)
    mapped = torch.func.jvp(lambda z: function(z, LABELS), (z,), (along,))[1]
    assert torch.allclose(mapped, quotient, rtol=1e-7)


@pytest.mark.parametrize("function", [bag_log_prob_from_logits, lambda z, y: bag_log_prob(z.log_softmax(1), y)])
def test_forward_over_reverse(function) -> None:  # type: ignore[no-untyped-def]
    """The derivative of the gradient along a direction, against the difference quotient."""
    z, along = logits(4).requires_grad_(), logits(4, seed=1)

    def gradient(z: Tensor) -> Tensor:
        return torch.autograd.grad(function(z, LABELS).sum(), z)[0]

    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(z, along)
        tangent = torch.autograd.forward_ad.unpack_dual(gradient(dual)).tangent
    before, after = ((z.detach() + step * along).requires_grad_() for step in (-1e-6, 1e-6))
    assert torch.allclose(tangent, (gradient(after) - gradient(before)) / 2e-6, atol=1e-7)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_value_and_gradient(backend: str) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda z: bag_log_prob(z.log_softmax(1), LABELS, max_labels=3), backend=backend, fullgraph=True
    )
    z = logits(5).requires_grad_()
    expected = bag_log_prob(z.log_softmax(1), LABELS)
    value = compiled(z)
    assert torch.allclose(value, expected, rtol=1e-13)
    (a,) = torch.autograd.grad(value.sum(), z)
    (b,) = torch.autograd.grad(expected.sum(), z)
    assert torch.allclose(a, b, atol=1e-14)


def test_vmap_and_functional_gradients() -> None:
    log_probs = logits(5).log_softmax(1)
    expected = bag_log_prob(log_probs, LABELS)
    one = torch.func.vmap(lambda p, y: bag_log_prob(p[None], y[None])[0])
    assert torch.allclose(one(log_probs, LABELS), expected, rtol=1e-13)
    gradient = torch.func.grad(lambda p: bag_log_prob(p, LABELS).sum())(log_probs)
    posterior = instance_posterior(log_probs, LABELS)
    assert torch.allclose(gradient, posterior, atol=1e-14)
    mapped = torch.func.vmap(lambda p, y: instance_posterior(p[None], y[None])[0])(log_probs, LABELS)
    assert torch.allclose(mapped, posterior, atol=1e-14)


def test_more_classes_than_max_labels_give_nan() -> None:
    log_probs = logits(5).log_softmax(1)
    expected = bag_log_prob(log_probs, LABELS)
    assert torch.allclose(_traceable(log_probs, LABELS, None, 3), expected, rtol=1e-13)
    short = _traceable(log_probs, LABELS, None, 2)
    assert torch.isnan(short).tolist() == [False, False, False, True]
    assert torch.allclose(short[:3], expected[:3], rtol=1e-13)


@pytest.mark.parametrize("path", [_traceable, lambda *args: _by_levels(*args, posterior=True)[0]])
def test_the_paths_of_accelerators_do_not_look_at_values(path) -> None:  # type: ignore[no-untyped-def]
    """Fake tensors have no values: reading one raises."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        log_probs = torch.empty(4, 4, 5)
        labels, mask = torch.empty(4, 3, dtype=torch.bool), torch.empty(4, 5, dtype=torch.bool)
        assert path(log_probs, labels, mask, 3).shape == (4,)
    # What was made of fake tensors must not be kept for real ones.
    assert torch.isfinite(path(logits(5).log_softmax(1), LABELS, None, 3)).all()


@pytest.mark.parametrize("mask", [None, MASK], ids=["all", "masked"])
def test_value_and_gradient_on_a_device_without_values(mask: Tensor | None) -> None:
    log_probs = logits(4).to("meta").log_softmax(1).requires_grad_()
    value = bag_log_prob(log_probs, LABELS.to("meta"), None if mask is None else mask.to("meta"), max_labels=2)
    (gradient,) = torch.autograd.grad(value.sum(), log_probs, create_graph=True)
    (second,) = torch.autograd.grad(gradient.sum(), log_probs)
    assert value.shape == (4,)
    assert gradient.shape == second.shape == log_probs.shape


class Operators(TorchDispatchMode):
    """Counts the operators that run, views among them."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count: int = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.count += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("masked", [False, True], ids=["all", "masked"])
@pytest.mark.parametrize("size", range(7))
def test_an_accelerator_runs_few_operators_for_any_label_set(size: int, masked: bool) -> None:
    """The whole loss, forward and backward, with every view; on a device where values do not exist."""
    z = torch.empty(32, 11, 28, 28, device="meta", requires_grad=True)
    labels = torch.empty(32, 10, dtype=torch.bool, device="meta")
    mask = torch.empty(32, 28, 28, dtype=torch.bool, device="meta") if masked else None
    loss = load_loss("exact")
    loss.validate, loss.max_labels = False, size

    def step() -> int:
        with Operators() as operators:
            torch.autograd.grad(loss(z, labels, mask).mean(), z)
        return int(operators.count)

    step()  # makes the tables of label sets, once for all steps
    assert step() <= 145 + 15 * size


def test_many_classes_on_the_paths_of_accelerators() -> None:
    log_probs = torch.randn(2, 9, 40, dtype=torch.float64).log_softmax(1)
    labels = torch.arange(8).expand(2, 8) < torch.tensor([[8], [7]])
    expected, posterior = bag_log_prob(log_probs, labels), instance_posterior(log_probs, labels)
    assert torch.allclose(_traceable(log_probs, labels, None, 8), expected, rtol=1e-12)
    value, found = _by_levels(log_probs, labels, None, 8, posterior=True)
    assert torch.allclose(value, expected, rtol=1e-12)
    assert torch.allclose(found, posterior, atol=1e-12)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_graph_capture() -> None:
    log_probs = logits(30, dtype=torch.float32).log_softmax(1).cuda().requires_grad_()
    labels = LABELS.cuda()
    expected = bag_log_prob(log_probs.detach().cpu(), LABELS)
    bag_log_prob(log_probs, labels, max_labels=3, validate=False).sum().backward()
    graph = torch.cuda.CUDAGraph()
    log_probs.grad = None
    with torch.cuda.graph(graph):
        value = bag_log_prob(log_probs, labels, max_labels=3)
        value.sum().backward()
    graph.replay()
    assert torch.allclose(value.cpu(), expected, rtol=1e-5)
