"""The preconditioner against Hessians that are known, the products against torch's own, the step against its text."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from milbench import load_loss
from milbench.engine.psgd import KroneckerPSGD, update_factors

ROWS, COLUMNS = 4, 3


def hessian(size: int, eigenvalues: list[float], seed: int) -> Tensor:
    """A symmetric matrix with these eigenvalues and random axes."""
    rng = torch.Generator().manual_seed(seed)
    axes, _ = torch.linalg.qr(torch.randn(size, size, generator=rng, dtype=torch.float64))
    diagonal = torch.diag(torch.tensor(eigenvalues, dtype=torch.float64))
    turned: Tensor = axes @ diagonal @ axes.T
    return turned


def converged(rows: Tensor, columns: Tensor, steps: int = 3000) -> tuple[Tensor, Tensor]:
    """The factors after watching the quadratic tr(W^T A W B) / 2, whose Hessian-vector product is A V B."""
    rng = torch.Generator().manual_seed(1)
    left, right = torch.eye(ROWS).double(), torch.eye(COLUMNS).double()
    for step in range(steps):
        direction = torch.randn(ROWS, COLUMNS, generator=rng, dtype=torch.float64)
        rate = 0.1 if step < steps // 2 else 0.1 * 0.01 ** (2 * step / steps - 1)
        left, right = update_factors(left, right, direction, rows @ direction @ columns, rate)
    return left, right


@pytest.mark.parametrize("signs", [1, -1], ids=["definite", "indefinite"])
def test_the_preconditioner_converges_to_the_inverse_of_the_absolute_hessian(signs: int) -> None:
    rows, columns = hessian(ROWS, [0.1, 1.0, signs * 3.0, 20.0], 0), hessian(COLUMNS, [0.5, signs * 2.0, 8.0], 1)
    left, right = converged(rows, columns)
    preconditioner = torch.kron(left.T @ left, right.T @ right)
    whole = torch.kron(rows, columns)
    eigenvalues = torch.linalg.eigvals(preconditioner @ whole).real.sort().values
    expected = torch.linalg.eigvalsh(whole).sign().sort().values
    torch.testing.assert_close(eigenvalues, expected, atol=0.1, rtol=0)
    magnitude, axes = torch.linalg.eigh(whole)
    inverse = axes @ torch.diag(1 / magnitude.abs()) @ axes.T
    assert torch.linalg.norm(preconditioner - inverse) / torch.linalg.norm(inverse) < 0.1


def test_factors_stay_triangular_and_balanced() -> None:
    left, right = converged(1e6 * hessian(ROWS, [1.0, 2.0, 3.0, 4.0], 2), hessian(COLUMNS, [1.0, 1.0, 1.0], 3), 500)
    assert torch.equal(left, left.triu())
    assert torch.equal(right, right.triu())
    assert float(left.diagonal().abs().max()) == pytest.approx(float(right.diagonal().abs().max()))


def test_the_path_does_not_depend_on_the_coordinates() -> None:
    """Published property: for W = S W' and factors that start at L S^-T, P is the same operator all the way."""
    rows, columns = hessian(ROWS, [0.1, 1.0, 3.0, 20.0], 0), hessian(COLUMNS, [0.5, 2.0, 8.0], 1)
    rng = torch.Generator().manual_seed(5)
    change = (
        torch.randn(ROWS, ROWS, generator=rng).double().tril(-1) + torch.diag(torch.tensor([0.5, 1, 2, 3])).double()
    )
    left, right = torch.eye(ROWS).double(), torch.eye(COLUMNS).double()
    other_left, other_right = torch.linalg.inv(change).T.contiguous(), right
    for _ in range(50):
        direction = torch.randn(ROWS, COLUMNS, generator=rng, dtype=torch.float64)
        product = rows @ direction @ columns
        left, right = update_factors(left, right, direction, product, 0.1)
        other_left, other_right = update_factors(
            other_left, other_right, torch.linalg.solve(change, direction), change.T @ product, 0.1
        )
    here = torch.kron(left.T @ left, right.T @ right)
    there = torch.kron(change @ other_left.T @ other_left @ change.T, other_right.T @ other_right)
    torch.testing.assert_close(there, here)
    assert (here - torch.eye(ROWS * COLUMNS)).abs().max() > 1


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 3, 3), nn.LeakyReLU(0.1), nn.Conv2d(3, 4, 3)).double()


def bag_loss(model: nn.Module) -> Tensor:
    rng = torch.Generator().manual_seed(3)
    images = torch.rand(5, 1, 8, 8, generator=rng).double()
    labels = torch.rand(5, 3, generator=rng) < 0.5
    value: Tensor = load_loss("exact")(model(images), labels).mean()
    return value


def take_step(optimizer: KroneckerPSGD, loss: Tensor) -> Tensor:
    optimizer.zero_grad()
    optimizer.backward(loss)
    optimizer.step()
    return optimizer.clipped > 0


def test_the_products_are_those_of_the_whole_hessian() -> None:
    model = network()
    optimizer = KroneckerPSGD(model, lr=0.1, seed=7)
    optimizer.backward(bag_loss(model))
    parameters = list(model.parameters())

    def loss_of(*values: Tensor) -> Tensor:
        named = dict(zip((n for n, _ in model.named_parameters()), values, strict=True))
        rng = torch.Generator().manual_seed(3)
        images = torch.rand(5, 1, 8, 8, generator=rng).double()
        labels = torch.rand(5, 3, generator=rng) < 0.5
        value: Tensor = load_loss("exact")(torch.func.functional_call(model, named, (images,)), labels).mean()
        return value

    directions = tuple(v for layer, _ in optimizer._curvature for v in layer)
    products = [h for _, layer in optimizer._curvature for h in layer]
    _, expected = torch.autograd.functional.hvp(loss_of, tuple(parameters), directions)
    for product, reference in zip(products, expected, strict=True):
        torch.testing.assert_close(product, reference)
    for parameter, reference in zip(parameters, torch.autograd.grad(bag_loss(model), parameters), strict=True):
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, reference)


def test_every_parameter_is_in_the_matrix_of_its_layer() -> None:
    model = nn.ModuleDict({"network": network(), "loss": nn.ParameterDict({"margin": nn.Parameter(torch.ones(2))})})
    optimizer = KroneckerPSGD(model, lr=0.1)
    shapes = [tuple(optimizer.state[g["params"][0]]["left"].shape) for g in optimizer.param_groups]
    assert shapes == [(9 + 1, 9 + 1), (27 + 1, 27 + 1), (1, 1)]
    assert sum(len(g["params"]) for g in optimizer.param_groups) == len(list(model.parameters()))


@pytest.mark.parametrize(("clip_rms", "clipped"), [(1e-4, 1.0), (1e4, 0.0)])
def test_a_long_step_is_shortened_to_the_largest_root_mean_square(clip_rms: float, clipped: float) -> None:
    model = network()
    before = [p.detach().clone() for p in model.parameters()]
    optimizer = KroneckerPSGD(model, lr=0.5, clip_rms=clip_rms)
    assert float(take_step(optimizer, bag_loss(model))) == clipped
    moved = torch.cat([(p.detach() - b).flatten() for p, b in zip(model.parameters(), before, strict=True)])
    rms = float(moved.square().mean().sqrt())
    assert rms == pytest.approx(0.5 * clip_rms) if clipped else rms < 0.5 * clip_rms


def test_a_resumed_optimiser_goes_on_bit_for_bit() -> None:
    def steps(model: nn.Module, optimizer: KroneckerPSGD, count: int) -> None:
        for _ in range(count):
            take_step(optimizer, bag_loss(model))

    unbroken = network()
    steps(unbroken, KroneckerPSGD(unbroken, lr=0.1, seed=1), 6)
    broken = network()
    first = KroneckerPSGD(broken, lr=0.1, seed=1)
    steps(broken, first, 3)
    state = copy.deepcopy(first.state_dict())
    second = KroneckerPSGD(broken, lr=0.1, seed=1)
    second.load_state_dict(state)
    steps(broken, second, 3)
    for one, other in zip(unbroken.parameters(), broken.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_newton_step_ends_at_the_minimum_of_a_quadratic() -> None:
    """With the converged preconditioner and lr 1 one step is Newton's."""
    layer = nn.Linear(ROWS - 1, COLUMNS).double()
    rows, columns = hessian(ROWS, [0.1, 1.0, 3.0, 20.0], 0), hessian(COLUMNS, [0.5, 2.0, 8.0], 1)
    optimizer = KroneckerPSGD(layer, lr=1.0, factor_step=0.0)
    state = optimizer.state[layer.weight]
    state["left"], state["right"] = converged(rows, columns)

    def whole() -> Tensor:
        return torch.cat([layer.weight.T, layer.bias.unsqueeze(0)])

    def loss() -> Tensor:
        return 0.5 * (whole() * (rows @ whole() @ columns)).sum()

    before = float(loss().detach())
    take_step(optimizer, loss())
    assert float(loss().detach()) < 0.02 * before


def test_a_loss_without_curvature_is_descended_along_its_gradient() -> None:
    layer = nn.Linear(2, 1, bias=False).double()
    before, slope = layer.weight.detach().clone(), torch.tensor([[3.0, -4.0]]).double()
    take_step(KroneckerPSGD(layer, lr=0.1), (layer.weight * slope).sum())
    moved = before - layer.weight.detach()
    assert (moved * slope > 0).all()
