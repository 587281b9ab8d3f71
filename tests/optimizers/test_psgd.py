"""The optimiser PSGD: its preconditioner, its Hessian-vector products and the length of a step.

The preconditioner is a matrix by which gradients are multiplied. It estimates the inverse of
|Hessian|, the Hessian with the absolute values of its eigenvalues. It is the Kronecker product of
two matrices, each made of one triangular factor.
"""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from milbench import load_loss
from milbench.optimizers.psgd import KroneckerPSGD, update_factors

ROWS = 4
COLUMNS = 3
"""The shape of the matrix of weights whose preconditioner is tested."""


def symmetric_matrix(eigenvalues: list[float], seed: int) -> Tensor:
    """Return a symmetric matrix with these eigenvalues and random axes."""
    rng = torch.Generator().manual_seed(seed)
    size = len(eigenvalues)
    axes, _ = torch.linalg.qr(torch.randn(size, size, generator=rng, dtype=torch.float64))
    turned: Tensor = axes @ torch.diag(torch.tensor(eigenvalues, dtype=torch.float64)) @ axes.T
    return turned


def converged(rows: Tensor, columns: Tensor, steps: int = 3000) -> tuple[Tensor, Tensor]:
    """Return the two factors of the preconditioner after many updates on one quadratic.

    The quadratic is tr(W^T A W B) / 2 of a matrix W, where A is `rows` and B is `columns`. Its
    Hessian-vector product with a direction V is A V B. For each update V is random.
    """
    rng = torch.Generator().manual_seed(1)
    left = torch.eye(ROWS).double()
    right = torch.eye(COLUMNS).double()
    for step in range(steps):
        direction = torch.randn(ROWS, COLUMNS, generator=rng, dtype=torch.float64)
        rate = 0.1
        if step >= steps // 2:
            # Over the second half the rate falls to a hundredth, so that the factors settle: the
            # exponent goes from 0 to 1.
            rate *= 0.01 ** (2 * step / steps - 1)
        product = rows @ direction @ columns
        left, right = update_factors(left, right, direction, product, rate)
    return left, right


@pytest.mark.parametrize("sign", [1, -1], ids=["definite", "indefinite"])
def test_the_preconditioner_converges_to_the_inverse_of_the_absolute_hessian(sign: int) -> None:
    # Any eigenvalues that differ by large factors. With the sign -1 some are negative.
    rows = symmetric_matrix([0.1, 1.0, sign * 3.0, 20.0], seed=0)
    columns = symmetric_matrix([0.5, sign * 2.0, 8.0], seed=1)
    left, right = converged(rows, columns)
    preconditioner = torch.kron(left.T @ left, right.T @ right)
    hessian = torch.kron(rows, columns)
    # With the inverse of the absolute Hessian, every eigenvalue of the product is 1 or -1.
    preconditioned = torch.linalg.eigvals(preconditioner @ hessian).real.sort().values
    eigenvalues, axes = torch.linalg.eigh(hessian)
    expected = eigenvalues.sign().sort().values
    torch.testing.assert_close(preconditioned, expected, atol=0.1, rtol=0)
    inverse = axes @ torch.diag(1 / eigenvalues.abs()) @ axes.T
    assert torch.linalg.norm(preconditioner - inverse) / torch.linalg.norm(inverse) < 0.1


def network() -> nn.Sequential:
    """Return a small network with four channels at each position: three classes and background."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 3, 3), nn.LeakyReLU(0.1), nn.Conv2d(3, 4, 3)).double()


def bag_loss(model: Callable[[Tensor], Tensor]) -> Tensor:
    """Return the loss of a model on five random images, the same in each call."""
    rng = torch.Generator().manual_seed(3)
    images = torch.rand(5, 1, 8, 8, generator=rng).double()
    labels = torch.rand(5, 3, generator=rng) < 0.5
    value: Tensor = load_loss("exact")(model(images), labels).mean()
    return value


def take_step(optimizer: KroneckerPSGD, loss: Tensor) -> None:
    optimizer.zero_grad()
    optimizer.backward(loss)
    optimizer.step()


def test_the_products_agree_with_the_whole_hessian() -> None:
    model = network()
    optimizer = KroneckerPSGD(model, lr=0.1, seed=7)
    optimizer.backward(bag_loss(model))
    names = [name for name, _ in model.named_parameters()]
    parameters = tuple(model.parameters())

    def loss_of(*values: Tensor) -> Tensor:
        named = dict(zip(names, values, strict=True))
        return bag_loss(lambda images: torch.func.functional_call(model, named, (images,)))

    # `backward` has kept, for each parameter, a random direction and the Hessian-vector product.
    directions, products = zip(*optimizer._curvature.values(), strict=True)
    _, expected = torch.autograd.functional.hvp(loss_of, parameters, directions)
    torch.testing.assert_close(products, expected)


def test_backward_leaves_the_gradients_of_the_loss() -> None:
    model = network()
    parameters = list(model.parameters())
    KroneckerPSGD(model, lr=0.1).backward(bag_loss(model))
    gradients = [parameter.grad for parameter in parameters]
    expected = torch.autograd.grad(bag_loss(model), parameters)
    torch.testing.assert_close(gradients, list(expected))


def step_and_its_size(clip_rms: float) -> tuple[KroneckerPSGD, float]:
    """Return an optimiser after one step with lr 0.5, and the root mean square of the step."""
    model = network()
    before = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer = KroneckerPSGD(model, lr=0.5, clip_rms=clip_rms)
    take_step(optimizer, bag_loss(model))
    changes = [
        (parameter.detach() - old).flatten()
        for parameter, old in zip(model.parameters(), before, strict=True)
    ]
    return optimizer, float(torch.cat(changes).square().mean().sqrt())


def test_a_long_step_is_shortened_to_its_bound() -> None:
    optimizer, rms = step_and_its_size(clip_rms=1e-4)
    assert bool(optimizer.clipped)
    # The bound is for the preconditioned gradient, which is then multiplied by the learning rate.
    assert rms == pytest.approx(0.5 * 1e-4)


def test_a_short_step_is_not_shortened() -> None:
    optimizer, rms = step_and_its_size(clip_rms=1e4)
    assert not bool(optimizer.clipped)
    assert 0 < rms < 0.5 * 1e4


def test_a_newton_step_ends_at_the_minimum_of_a_quadratic() -> None:
    """With the converged preconditioner and a learning rate of 1, a step is a Newton step.

    The quadratic is that of `converged`, so its minimum is 0 at W = 0.
    """
    # PSGD takes weights and biases of a layer as one matrix, in which the biases are another row.
    layer = nn.Linear(ROWS - 1, COLUMNS).double()
    rows = symmetric_matrix([0.1, 1.0, 3.0, 20.0], seed=0)
    columns = symmetric_matrix([0.5, 2.0, 8.0], seed=1)
    # A `factor_step` of 0 leaves the factors as they are set here.
    optimizer = KroneckerPSGD(layer, lr=1.0, factor_step=0.0)
    state = optimizer.state[layer.weight]
    state["left"], state["right"] = converged(rows, columns)

    def loss() -> Tensor:
        matrix = torch.cat([layer.weight.T, layer.bias.unsqueeze(0)])
        return 0.5 * (matrix * (rows @ matrix @ columns)).sum()

    before = float(loss().detach())
    take_step(optimizer, loss())
    # The loss is not exactly 0, as the preconditioner has only almost converged.
    assert float(loss().detach()) < 0.02 * before
