"""The exact likelihood with second derivatives, half precision, autocast, torch.compile, torch.func and CUDA."""

import math
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial

import pytest
import torch
from likelihood import operators
from torch import Tensor

from milbench.likelihood import bag_log_prob, bag_log_prob_from_logits, instance_posterior
from tests._helpers.likelihood_reference import accelerator
from tests._helpers.losses import per_bag, random_logits

LABELS = torch.tensor([[0, 0, 0], [1, 0, 0], [0, 1, 1], [1, 1, 1]]).bool()
MASK = torch.tensor([[True] * 4, [False, True, True, True]] * 2)


def logits(*positions: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return random_logits(4, 4, *positions, seed=seed, scale=1.0).to(dtype)


def of_softmax(z: Tensor, labels: Tensor, mask: Tensor | None = None) -> Tensor:
    return bag_log_prob(z.log_softmax(1), labels, mask)


BOTH = pytest.mark.parametrize(
    "function", [bag_log_prob_from_logits, of_softmax], ids=["logits", "softmax"]
)
Function = Callable[..., Tensor]


@BOTH
@pytest.mark.parametrize("mask", [None, MASK], ids=["all", "masked"])
@pytest.mark.parametrize("path", [nullcontext, accelerator])
def test_first_and_second_derivatives(
    path: Callable[[], nullcontext[None]], mask: Tensor | None, function: Function
) -> None:
    z = logits(4).requires_grad_()
    tied = torch.zeros(4, 4, 4, dtype=torch.float64, requires_grad=True)
    with path():
        assert torch.autograd.gradcheck(lambda z: function(z, LABELS, mask), (z,))
        assert torch.autograd.gradgradcheck(
            lambda z: function(z, LABELS, mask), (z,), fast_mode=True
        )
        assert torch.autograd.gradgradcheck(
            lambda z: function(z, LABELS, mask), (tied,), fast_mode=True
        )


def test_second_derivatives_hold_for_empty_bags_and_rare_classes() -> None:
    flat = random_logits(3, 4, scale=1.0).requires_grad_()
    labels = torch.tensor([[True, False, False], [False] * 3, [False, False, True]])
    assert torch.autograd.gradgradcheck(lambda z: bag_log_prob_from_logits(z, labels), (flat,))
    rare = logits(4)
    rare[3, :3] -= 400.0  # so rare that the sums are taken in logarithms
    assert torch.autograd.gradgradcheck(
        lambda z: bag_log_prob_from_logits(z, LABELS), (rare.requires_grad_(),)
    )


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


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_gives_no_probability_above_one(dtype: torch.dtype) -> None:
    low = (
        torch.tensor([-9.0, 0.0]).view(1, 2, 1).expand(1, 2, 800).to(dtype)
    )  # bfloat16 has 1 for the background
    assert bag_log_prob(low, torch.tensor([[False]])).item() == pytest.approx(
        -800 * math.log1p(math.exp(-9)), rel=1e-2
    )
    masked = low.clone()
    masked[..., 1:] = torch.nan
    mask = torch.arange(800).view(1, -1) < 1
    assert torch.isfinite(bag_log_prob(masked, torch.tensor([[True]]), mask)).all()


@pytest.mark.parametrize("function", [bag_log_prob_from_logits, of_softmax, per_bag("exact")])
def test_autocast_does_not_lower_the_precision(function: Function) -> None:
    def both() -> tuple[Tensor, Tensor]:
        z = logits(50, dtype=torch.float32).requires_grad_()
        value = function(z, LABELS)
        return value, torch.autograd.grad(value.sum(), z)[0]

    plain = both()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = both()
    assert all(torch.equal(a, b) for a, b in zip(plain, cast, strict=True))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_value_and_gradient(backend: str) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda z: bag_log_prob(z.log_softmax(1), LABELS, max_labels=3),
        backend=backend,
        fullgraph=True,
    )
    z = logits(5).requires_grad_()
    expected, value = of_softmax(z, LABELS), compiled(z)
    torch.testing.assert_close(value, expected, rtol=1e-13, atol=0)
    for a, b in zip(
        torch.autograd.grad(value.sum(), z), torch.autograd.grad(expected.sum(), z), strict=True
    ):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-14)


def test_function_transforms() -> None:
    log_probs = logits(5).log_softmax(1)
    expected, posterior = bag_log_prob(log_probs, LABELS), instance_posterior(log_probs, LABELS)

    def one(p: Tensor, y: Tensor) -> Tensor:
        return bag_log_prob(p[None], y[None])[0]

    close = partial(torch.testing.assert_close, rtol=1e-12, atol=1e-13)
    close(torch.func.vmap(one)(log_probs, LABELS), expected)
    every_set = torch.func.vmap(one, in_dims=(None, 0))(log_probs[0], LABELS)
    close(every_set, bag_log_prob(log_probs[:1].expand_as(log_probs), LABELS))
    close(torch.func.grad(lambda p: bag_log_prob(p, LABELS).sum())(log_probs), posterior)
    close(torch.func.vmap(torch.func.grad(one))(log_probs, LABELS), posterior)
    mapped = torch.func.vmap(lambda p, y: instance_posterior(p[None], y[None])[0])(
        log_probs, LABELS
    )
    close(mapped, posterior)
    along = logits(5, seed=1)
    close(
        torch.func.jvp(lambda p: bag_log_prob(p, LABELS), (log_probs,), (along,))[1],
        (posterior * along).sum((1, 2)),
    )
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(log_probs, along)
        tangent = torch.autograd.forward_ad.unpack_dual(bag_log_prob(dual, LABELS)).tangent
    close(tangent, (posterior * along).sum((1, 2)))
    hessian = torch.func.hessian(lambda p: bag_log_prob(p, LABELS[3:])[0])(log_probs[3:])
    direction = torch.randn(
        1, 4, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    _, product = torch.autograd.functional.hvp(
        lambda p: bag_log_prob(p, LABELS[3:])[0], log_probs[3:], direction
    )
    close(torch.tensordot(hessian, direction, dims=3), product)


def test_more_classes_than_max_labels_give_nan_if_unchecked() -> None:
    log_probs = logits(5).log_softmax(1)
    with accelerator():
        short = bag_log_prob(log_probs, LABELS, max_labels=2)
    assert torch.isnan(short).tolist() == [False, False, False, True]
    torch.testing.assert_close(short[:3], bag_log_prob(log_probs, LABELS)[:3], rtol=1e-13, atol=0)


def test_accelerators_do_not_look_at_values() -> None:
    """Fake tensors have no values: reading one raises."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with accelerator():
        with FakeTensorMode():
            z = torch.empty(4, 4, 5, requires_grad=True)
            labels, mask = torch.empty(4, 3, dtype=torch.bool), torch.empty(4, 5, dtype=torch.bool)
            value = bag_log_prob_from_logits(z, labels, mask)
            assert torch.autograd.grad(value.sum(), z)[0].shape == z.shape
        # What was made of fake tensors must not be kept for real ones.
        assert torch.isfinite(of_softmax(logits(5), LABELS)).all()


@pytest.mark.parametrize("size", [0, 1, 4, 6])
def test_an_accelerator_runs_few_operators_for_any_label_set(size: int) -> None:
    for masked in (False, True):
        assert operators("exact", size, masked=masked) <= 300
        assert operators("exact", size, masked=masked, second=True) <= 1300


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
