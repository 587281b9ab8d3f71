"""PSGD-Newton with Kronecker factors.

It is the optimiser of the paper whose experiments milbench reproduces.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from milbench._utils.devices import all_to_device
from milbench._utils.seeding import generator

TINY = torch.finfo(torch.float32).tiny
"""Added to divisors, so that they are not 0."""


class KroneckerPSGD(torch.optim.Optimizer):
    """Stochastic gradient descent, preconditioned by an estimate of |Hessian|^-1.

    |Hessian| has the same eigenvectors as the Hessian, and the absolute values of its eigenvalues.

    The weights of a layer and its biases are one (fan_in + 1, fan_out) matrix W. Its preconditioner
    turns the gradient G of W into L^T L G R^T R, with upper triangular factors L and R. As a matrix
    P on the entries of G, it is a Kronecker product.

    Every step samples a direction v ~ N(0, I) over all parameters together, and computes the exact
    Hessian-vector product h of the batch's loss along v. Then it moves L and R against the relative
    gradient of the cost E[h^T P h + v^T P^-1 v]. The relative gradient by L is the derivative by D
    when L becomes L + D L, and the relative gradient by R is defined likewise.

    Of all matrices P, the one that minimises the cost has P E[h h^T] P = E[v v^T]. If the Hessian
    is fixed, this P is |Hessian|^-1, even if the Hessian is indefinite. The optimiser only uses
    matrices P that are Kronecker products.

    The factors start at the identity. They move by `factor_step`, divided by the largest entry of
    the relative gradient. `clip_rms` limits the root mean square of the preconditioned gradient
    over all parameters: a longer one is shortened.

    The directions depend only on `seed` and the number of the step. So two losses get the same
    directions, and a resumed run continues with the next one. The call `optimizer.backward(loss)`
    replaces `loss.backward()`, which torch's other optimisers need.

    X.-L. Li, "Preconditioned Stochastic Gradient Descent", arXiv:1512.04202, 2015; settings as in
    X.-L. Li, arXiv:1811.12346, 2018.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        lr: float,
        factor_step: float = 0.01,
        clip_rms: float | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(_layers(model), {"lr": lr})
        self.factor_step = factor_step
        self.clip_rms = clip_rms
        self.seed = seed
        self.clipped = torch.zeros((), dtype=torch.bool)
        """Whether the last step had to be shortened."""
        self._curvature: dict[Tensor, tuple[Tensor, Tensor]] = {}
        """Parameter -> its direction in the last `backward`, and the Hessian-vector product."""
        for group in self.param_groups:
            parameters = group["params"]
            rows, columns = _as_matrix(parameters).shape
            weight = parameters[0]
            state = self.state[weight]
            # All layers count the same steps, but each layer has a counter of its own. A single
            # counter in this object would be lost, since torch saves and loads only the states of
            # parameters.
            state["step"] = torch.zeros((), dtype=torch.int64)
            state["left"] = torch.eye(rows, device=weight.device, dtype=weight.dtype)
            state["right"] = torch.eye(columns, device=weight.device, dtype=weight.dtype)

    def backward(self, loss: Tensor) -> None:
        """Compute the gradients of a loss (), and the Hessian-vector products for `step`."""
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        directions = self._directions(parameters)
        gradients = torch.autograd.grad(
            loss, parameters, create_graph=True, allow_unused=True, materialize_grads=True
        )
        products = _hessian_products(parameters, gradients, directions)
        self._curvature = {}
        for parameter, gradient, direction, product in zip(
            parameters, gradients, directions, products, strict=True
        ):
            parameter.grad = gradient.detach()
            self._curvature[parameter] = direction, product

    def _directions(self, parameters: list[Tensor]) -> list[Tensor]:
        """Return a random direction of each parameter for the next step."""
        # All layers have counted the same steps.
        step = int(self.state[parameters[0]]["step"])
        rng = generator("curvature probe", self.seed, step)
        # Sampled on the CPU, so that a GPU gets the same directions.
        noise = [torch.randn(parameter.shape, generator=rng) for parameter in parameters]
        noise = all_to_device(noise, parameters[0].device)
        return [values.to(parameter) for values, parameter in zip(noise, parameters, strict=True)]

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """Update the factors from the last `backward`, then the parameters."""
        updates: dict[Tensor, Tensor] = {}
        for group in self.param_groups:
            parameters = group["params"]
            self._update_factors_of(parameters)
            gradients = [parameter.grad for parameter in parameters]
            changes = self._preconditioned(parameters, gradients)
            updates.update(zip(parameters, changes, strict=True))

        norm = torch.stack([update.square().sum() for update in updates.values()]).sum().sqrt()
        limit = math.inf
        if self.clip_rms is not None:
            count = sum(update.numel() for update in updates.values())
            limit = self.clip_rms * math.sqrt(count)
        self.clipped = norm > limit
        scale = torch.clamp(limit / (norm + TINY), max=1.0)
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.sub_(group["lr"] * scale * updates[parameter])

    def _update_factors_of(self, parameters: list[Tensor]) -> None:
        """Update the factors of one layer from the last `backward`."""
        state = self.state[parameters[0]]
        curvature = [self._curvature[parameter] for parameter in parameters]
        direction = _as_matrix([direction for direction, _ in curvature])
        product = _as_matrix([product for _, product in curvature])
        state["left"], state["right"] = update_factors(
            state["left"], state["right"], direction, product, self.factor_step
        )
        state["step"] += 1

    def _preconditioned(self, parameters: list[Tensor], gradients: list[Tensor]) -> list[Tensor]:
        """Return the preconditioned gradient of each parameter of one layer, in its shape."""
        state = self.state[parameters[0]]
        left = state["left"]
        right = state["right"]
        gradient = _as_matrix(gradients)
        change = left.T @ (left @ gradient @ right.T) @ right
        if len(parameters) == 1:
            return [change.T.reshape(parameters[0].shape)]
        # The last row belongs to the biases.
        return [change[:-1].T.reshape(parameters[0].shape), change[-1]]


def _hessian_products(
    parameters: list[Tensor], gradients: Sequence[Tensor], directions: list[Tensor]
) -> Sequence[Tensor]:
    """Return the products of the Hessian and the directions, one for each parameter."""
    # A gradient that does not depend on any parameter has no second derivatives.
    curved = [
        (gradient, direction)
        for gradient, direction in zip(gradients, directions, strict=True)
        if gradient.requires_grad
    ]
    if not curved:
        return [torch.zeros_like(parameter) for parameter in parameters]
    slopes, along = zip(*curved, strict=True)
    return torch.autograd.grad(slopes, parameters, along, allow_unused=True, materialize_grads=True)


def update_factors(
    left: Tensor, right: Tensor, direction: Tensor, product: Tensor, factor_step: float
) -> tuple[Tensor, Tensor]:
    """Return the factors L and R of a layer after one step.

    The `direction` V and the Hessian-vector `product` H along it are (rows, columns), as the
    weights of the layer.
    """
    # With A = L H R^T and B = L^-T V R^-1, the relative gradients are:
    # A A^T - B B^T by L, and A^T A - B^T B by R.
    a = left @ product @ right.T
    b = torch.linalg.solve_triangular(left.T, direction, upper=False)
    b = torch.linalg.solve_triangular(right, b, upper=True, left=False)
    left = _moved_factor(left, (a @ a.T - b @ b.T).triu(), factor_step)
    right = _moved_factor(right, (a.T @ a - b.T @ b).triu(), factor_step)
    # Only the product of the factors is determined. Without this step one factor could overflow
    # while the other one vanishes.
    balance = (left.diagonal().abs().max() / right.diagonal().abs().max()).sqrt()
    return left / balance, right * balance


def _moved_factor(factor: Tensor, gradient: Tensor, factor_step: float) -> Tensor:
    """Return a factor after a step against its relative gradient.

    The gradient is divided by its largest entry.
    """
    largest = gradient.abs().max() + TINY
    return factor - ((factor_step / largest) * gradient) @ factor


def _layers(model: nn.Module) -> list[dict[str, Any]]:
    """Group the trainable parameters by layer.

    Where a layer has both weights and biases, they are a group, with the weights first. Any other
    parameter is a group of its own.
    """
    groups = []
    for module in model.modules():
        parameters = {
            name: parameter
            for name, parameter in module.named_parameters(recurse=False)
            if parameter.requires_grad
        }
        has_both = "weight" in parameters and "bias" in parameters
        # A normalising layer such as BatchNorm has weights too, but they are no matrix.
        if has_both and parameters["weight"].ndim > 1:
            groups.append({"params": [parameters.pop("weight"), parameters.pop("bias")]})
        groups += [{"params": [parameter]} for parameter in parameters.values()]
    return groups


def _as_matrix(parts: list[Tensor]) -> Tensor:
    """Return the matrix (fan_in + 1, fan_out) of a layer's weights and biases.

    A single parameter becomes a matrix too: (fan_in, fan_out), or (1, size) for a vector.
    """
    if len(parts) == 2:
        weights, biases = parts
        return torch.cat([weights.flatten(1).T, biases.unsqueeze(0)])
    (single,) = parts
    if single.ndim > 1:
        return single.flatten(1).T
    return single.reshape(1, -1)
