"""The preconditioner against Hessians that are known, the products against torch's own, the step against its text."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from milbench import load_loss
from milbench.optimizers.psgd import KroneckerPSGD, update_factors

ROWS, COLUMNS = 4, 3


def hessian(size: int, eigenvalues: list[float], seed: int) -> Tensor:
    """A symmetric matrix with these eigenvalues and random axes."""
    rng = torch.Generator().manual_seed(seed)
    axes, _ = torch.linalg.qr(torch.randn(size, size, generator=rng, dtype=torch.float64))
    turned: Tensor = axes @ torch.diag(torch.tensor(eigenvalues, dtype=torch.float64)) @ axes.T
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
    rows, columns = (
        hessian(ROWS, [0.1, 1.0, signs * 3.0, 20.0], 0),
        hessian(COLUMNS, [0.5, signs * 2.0, 8.0], 1),
    )
    left, right = converged(rows, columns)
    preconditioner = torch.kron(left.T @ left, right.T @ right)
    whole = torch.kron(rows, columns)
    eigenvalues = torch.linalg.eigvals(preconditioner @ whole).real.sort().values
    expected = torch.linalg.eigvalsh(whole).sign().sort().values
    torch.testing.assert_close(eigenvalues, expected, atol=0.1, rtol=0)
    magnitude, axes = torch.linalg.eigh(whole)
    inverse = axes @ torch.diag(1 / magnitude.abs()) @ axes.T
    assert torch.linalg.norm(preconditioner - inverse) / torch.linalg.norm(inverse) < 0.1


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 3, 3), nn.LeakyReLU(0.1), nn.Conv2d(3, 4, 3)).double()


def bag_loss(model: Callable[[Tensor], Tensor]) -> Tensor:
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
        return bag_loss(lambda images: torch.func.functional_call(model, named, (images,)))

    directions, products = zip(*optimizer._curvature.values(), strict=True)
    _, expected = torch.autograd.functional.hvp(loss_of, tuple(parameters), directions)
    for product, reference in zip(products, expected, strict=True):
        torch.testing.assert_close(product, reference)
    for parameter, reference in zip(
        parameters, torch.autograd.grad(bag_loss(model), parameters), strict=True
    ):
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, reference)


@pytest.mark.parametrize(("clip_rms", "clipped"), [(1e-4, 1.0), (1e4, 0.0)])
def test_a_long_step_is_shortened_to_its_bound(clip_rms: float, clipped: float) -> None:
    model = network()
    before = [p.detach().clone() for p in model.parameters()]
    optimizer = KroneckerPSGD(model, lr=0.5, clip_rms=clip_rms)
    assert float(take_step(optimizer, bag_loss(model))) == clipped
    moved = torch.cat(
        [(p.detach() - b).flatten() for p, b in zip(model.parameters(), before, strict=True)]
    )
    rms = float(moved.square().mean().sqrt())
    assert rms == pytest.approx(0.5 * clip_rms) if clipped else rms < 0.5 * clip_rms


def test_a_newton_step_ends_at_the_minimum_of_a_quadratic() -> None:
    """With the converged preconditioner and lr 1 one step is Newton's."""
    layer = nn.Linear(ROWS - 1, COLUMNS).double()
    rows, columns = hessian(ROWS, [0.1, 1.0, 3.0, 20.0], 0), hessian(COLUMNS, [0.5, 2.0, 8.0], 1)
    optimizer = KroneckerPSGD(layer, lr=1.0, factor_step=0.0)
    optimizer.state[layer.weight]["left"], optimizer.state[layer.weight]["right"] = converged(
        rows, columns
    )

    def whole() -> Tensor:
        return torch.cat([layer.weight.T, layer.bias.unsqueeze(0)])

    def loss() -> Tensor:
        return 0.5 * (whole() * (rows @ whole() @ columns)).sum()

    before = float(loss().detach())
    take_step(optimizer, loss())
    assert float(loss().detach()) < 0.02 * before
