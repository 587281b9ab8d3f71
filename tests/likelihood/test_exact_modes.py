"""The exact likelihood in torch's modes: derivatives, half precision, compilation, torch.func."""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import pytest
import torch

# `likelihood` is the script benchmarks/likelihood.py. Its function `operators` counts the operators
# that run.
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


BOTH_FUNCTIONS = pytest.mark.parametrize(
    "function", [bag_log_prob_from_logits, of_softmax], ids=["logits", "softmax"]
)
Function = Callable[..., Tensor]
MASKS = pytest.mark.parametrize("mask", [None, MASK], ids=["all", "masked"])
PATHS = pytest.mark.parametrize("path", [nullcontext, accelerator], ids=["cpu", "accelerator"])
Path = Callable[[], AbstractContextManager[None]]


@BOTH_FUNCTIONS
@MASKS
@PATHS
def test_first_derivatives_agree_with_differences(
    path: Path, mask: Tensor | None, function: Function
) -> None:
    with path():
        assert torch.autograd.gradcheck(
            lambda z: function(z, LABELS, mask), (logits(4).requires_grad_(),)
        )


@BOTH_FUNCTIONS
@MASKS
@PATHS
@pytest.mark.parametrize(
    "values",
    [
        pytest.param(logits(4), id="random"),
        pytest.param(torch.zeros(4, 4, 4, dtype=torch.float64), id="tied"),
    ],
)
def test_second_derivatives_agree_with_differences(
    values: Tensor, path: Path, mask: Tensor | None, function: Function
) -> None:
    leaf = values.clone().requires_grad_()
    with path():
        assert torch.autograd.gradgradcheck(
            lambda z: function(z, LABELS, mask), (leaf,), fast_mode=True
        )


def test_second_derivatives_hold_without_position_dimensions() -> None:
    single = random_logits(3, 4, scale=1.0).requires_grad_()
    labels = torch.tensor([[True, False, False], [False, False, False], [False, False, True]])
    assert torch.autograd.gradgradcheck(lambda z: bag_log_prob_from_logits(z, labels), (single,))


def test_second_derivatives_hold_for_rare_classes() -> None:
    rare = logits(4)
    # So rare that the sums are taken in logarithms.
    rare[3, :3] -= 400.0
    rare.requires_grad_()
    assert torch.autograd.gradgradcheck(lambda z: bag_log_prob_from_logits(z, LABELS), (rare,))


HALVES = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)


@HALVES
def test_half_precision_is_computed_in_float32(dtype: torch.dtype) -> None:
    halves = logits(50, dtype=dtype).log_softmax(1)
    value = bag_log_prob(halves, LABELS)
    assert value.dtype == torch.float32
    # The rounded probabilities of a position do not sum to 1, so they are normalised.
    expected = bag_log_prob(halves.double().log_softmax(1), LABELS)
    assert (value - expected).abs().max() < 1e-5


@HALVES
def test_the_gradient_of_halves_is_in_half_precision(dtype: torch.dtype) -> None:
    halves = logits(50, dtype=dtype).log_softmax(1).requires_grad_()
    bag_log_prob(halves, LABELS).sum().backward()
    assert halves.grad is not None
    assert halves.grad.dtype == dtype


@HALVES
def test_the_posterior_of_halves_is_in_float32(dtype: torch.dtype) -> None:
    halves = logits(50, dtype=dtype).log_softmax(1)
    assert instance_posterior(halves, LABELS).dtype == torch.float32


def rare_class(positions: int, dtype: torch.dtype) -> Tensor:
    """Return log-probabilities (1, 2, K) of a class that has odds of exp(-9) everywhere.

    The background's probability is 1 - 1.2e-4, which bfloat16 rounds to 1.
    """
    return torch.tensor([-9.0, 0.0]).view(1, 2, 1).expand(1, 2, positions).to(dtype)


@HALVES
def test_half_precision_gives_no_probability_above_one(dtype: torch.dtype) -> None:
    value = bag_log_prob(rare_class(800, dtype), torch.tensor([[False]]))
    # Background at all positions, each with the probability 1 / (1 + exp(-9)).
    expected = -800 * math.log1p(math.exp(-9))
    assert value.item() == pytest.approx(expected, rel=1e-2)


@HALVES
def test_masked_positions_in_half_precision_may_be_nan(dtype: torch.dtype) -> None:
    log_probs = rare_class(5, dtype).clone()
    log_probs[..., 1:] = torch.nan
    mask = torch.tensor([[True, False, False, False, False]])
    assert torch.isfinite(bag_log_prob(log_probs, torch.tensor([[True]]), mask)).all()


@pytest.mark.parametrize("function", [bag_log_prob_from_logits, of_softmax, per_bag("exact")])
def test_autocast_does_not_lower_the_precision(function: Function) -> None:
    def value_and_gradient() -> tuple[Tensor, Tensor]:
        z = logits(50, dtype=torch.float32).requires_grad_()
        value = function(z, LABELS)
        (gradient,) = torch.autograd.grad(value.sum(), z)
        return value, gradient

    expected_value, expected_gradient = value_and_gradient()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value, gradient = value_and_gradient()
    assert torch.equal(value, expected_value)
    assert torch.equal(gradient, expected_gradient)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_value_and_gradient_agree_with_eager_mode(backend: str) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda z: bag_log_prob(z.log_softmax(1), LABELS, max_labels=3),
        backend=backend,
        fullgraph=True,
    )
    z = logits(5).requires_grad_()
    expected = of_softmax(z, LABELS)
    value = compiled(z)
    torch.testing.assert_close(value, expected, rtol=1e-13, atol=0)
    (expected_gradient,) = torch.autograd.grad(expected.sum(), z)
    (gradient,) = torch.autograd.grad(value.sum(), z)
    torch.testing.assert_close(gradient, expected_gradient, rtol=0, atol=1e-14)


LOG_PROBS = logits(5).log_softmax(1)
close = partial(torch.testing.assert_close, rtol=1e-12, atol=1e-13)


def of_one_bag(log_probs: Tensor, labels: Tensor) -> Tensor:
    return bag_log_prob(log_probs[None], labels[None])[0]


def test_vmap_over_bags_is_the_batch() -> None:
    mapped = torch.func.vmap(of_one_bag)(LOG_PROBS, LABELS)
    close(mapped, bag_log_prob(LOG_PROBS, LABELS))


def test_vmap_over_label_sets_of_one_bag() -> None:
    mapped = torch.func.vmap(of_one_bag, in_dims=(None, 0))(LOG_PROBS[0], LABELS)
    close(mapped, bag_log_prob(LOG_PROBS[:1].expand_as(LOG_PROBS), LABELS))


def test_vmap_of_the_posterior_is_the_batch() -> None:
    def posterior_of_one(log_probs: Tensor, labels: Tensor) -> Tensor:
        return instance_posterior(log_probs[None], labels[None])[0]

    mapped = torch.func.vmap(posterior_of_one)(LOG_PROBS, LABELS)
    close(mapped, instance_posterior(LOG_PROBS, LABELS))


def test_the_functional_gradient_is_the_posterior() -> None:
    gradient = torch.func.grad(lambda p: bag_log_prob(p, LABELS).sum())(LOG_PROBS)
    close(gradient, instance_posterior(LOG_PROBS, LABELS))


def test_vmap_of_the_gradient_is_the_posterior() -> None:
    gradients = torch.func.vmap(torch.func.grad(of_one_bag))(LOG_PROBS, LABELS)
    close(gradients, instance_posterior(LOG_PROBS, LABELS))


def test_jvp_is_the_posterior_along_the_direction() -> None:
    direction = logits(5, seed=1)
    tangent = torch.func.jvp(lambda p: bag_log_prob(p, LABELS), (LOG_PROBS,), (direction,))[1]
    close(tangent, (instance_posterior(LOG_PROBS, LABELS) * direction).sum((1, 2)))


def test_forward_mode_is_the_posterior_along_the_direction() -> None:
    direction = logits(5, seed=1)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(LOG_PROBS, direction)
        tangent = torch.autograd.forward_ad.unpack_dual(bag_log_prob(dual, LABELS)).tangent
    close(tangent, (instance_posterior(LOG_PROBS, LABELS) * direction).sum((1, 2)))


def test_the_functional_hessian_has_the_products_of_autograd() -> None:
    bag = LOG_PROBS[3:]

    def value(log_probs: Tensor) -> Tensor:
        return bag_log_prob(log_probs, LABELS[3:])[0]

    direction = random_logits(1, 4, 5, scale=1.0)
    hessian = torch.func.hessian(value)(bag)
    _, product = torch.autograd.functional.hvp(value, bag, direction)
    close(torch.tensordot(hessian, direction, dims=3), product)


def test_more_classes_than_max_labels_give_nan_if_unchecked() -> None:
    log_probs = logits(5).log_softmax(1)
    with accelerator():
        short = bag_log_prob(log_probs, LABELS, max_labels=2)
    assert torch.isnan(short).tolist() == [False, False, False, True]
    torch.testing.assert_close(short[:3], bag_log_prob(log_probs, LABELS)[:3], rtol=1e-13, atol=0)


def test_the_path_of_accelerators_does_not_read_values() -> None:
    """Reading a value of a fake tensor raises an error, since it has none."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with accelerator():
        with FakeTensorMode():
            z = torch.empty(4, 4, 5, requires_grad=True)
            labels = torch.empty(4, 3, dtype=torch.bool)
            mask = torch.empty(4, 5, dtype=torch.bool)
            value = bag_log_prob_from_logits(z, labels, mask)
            (gradient,) = torch.autograd.grad(value.sum(), z)
            assert gradient.shape == z.shape
        # Tables that were made as fake tensors must not be kept and used with real ones.
        assert torch.isfinite(of_softmax(logits(5), LABELS)).all()


@pytest.mark.parametrize("masked", [False, True], ids=["all", "masked"])
@pytest.mark.parametrize("size", [0, 1, 4, 6])
def test_an_accelerator_runs_few_operators_for_any_label_set(size: int, masked: bool) -> None:
    # The bounds are the same for label sets of all sizes.
    assert operators("exact", size, masked=masked) <= 300
    assert operators("exact", size, masked=masked, hessian_product=True) <= 1300


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_cuda_graph_replays_the_likelihood() -> None:
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
