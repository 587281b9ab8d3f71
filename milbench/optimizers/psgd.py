"""PSGD-Newton with Kronecker factors: the optimiser of the paper whose experiments milbench reproduces."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from milbench._utils.devices import all_to_device
from milbench._utils.seeding import generator

TINY = torch.finfo(torch.float32).tiny


class KroneckerPSGD(torch.optim.Optimizer):
    """Stochastic gradient descent, preconditioned by an estimate of the inverse of the absolute Hessian.

    The weights of a layer and its biases are one (fan_in + 1, fan_out) matrix W. Its preconditioner is a Kronecker
    product, G -> L^T L G R^T R with upper triangular L and R. Every step draws a direction v ~ N(0, I) over all
    parameters together, computes the exact Hessian-vector product h of the batch's loss along it, and moves L and R
    against the relative gradient of E[h^T P h + v^T P^-1 v]. Without the constraint, the minimum over P satisfies P E[h
    h^T] P = E[v v^T]: for a fixed Hessian, also an indefinite one, P is |Hessian|^-1. The step of the factors is
    `factor_step`, normalised by the largest entry of that gradient; the factors start at the identity. `clip_rms` is
    the root mean square, over all parameters, to which a longer preconditioned gradient is shortened.

    The directions depend on `seed` and the number of the step alone: two losses get the same ones, and a resumed run
    continues with the next. Other than with torch's optimisers, `backward(loss)` replaces `loss.backward()`.

    X.-L. Li, "Preconditioned Stochastic Gradient Descent", arXiv:1512.04202, 2015; settings as in X.-L. Li,
    arXiv:1811.12346, 2018.
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
        self.factor_step, self.clip_rms, self.seed = factor_step, clip_rms, seed
        self.clipped = torch.zeros(
            (), dtype=torch.bool
        )  # whether the last step had to be shortened
        self._curvature: dict[Tensor, tuple[Tensor, Tensor]] = {}
        """The direction of each parameter in the last `backward`, and the Hessian-vector product along it."""
        for group in self.param_groups:
            weight, (rows, columns) = group["params"][0], _as_matrix(group["params"]).shape
            self.state[weight]["step"] = torch.zeros((), dtype=torch.int64)
            self.state[weight]["left"] = torch.eye(rows, device=weight.device, dtype=weight.dtype)
            self.state[weight]["right"] = torch.eye(
                columns, device=weight.device, dtype=weight.dtype
            )

    def backward(self, loss: Tensor) -> None:
        """Compute the gradients of all parameters, and the Hessian-vector products for `step`, of a loss ()."""
        parameters = [p for group in self.param_groups for p in group["params"]]
        rng = generator("curvature probe", self.seed, int(self.state[parameters[0]]["step"]))
        noise = [
            torch.randn(p.shape, generator=rng) for p in parameters
        ]  # on the CPU: the same on a GPU
        noise = all_to_device(noise, parameters[0].device)
        directions = [v.to(p) for v, p in zip(noise, parameters, strict=True)]
        gradients = torch.autograd.grad(
            loss, parameters, create_graph=True, allow_unused=True, materialize_grads=True
        )
        # A gradient that does not depend on any weight has no curvature: its products are zeros.
        curved = [(g, v) for g, v in zip(gradients, directions, strict=True) if g.requires_grad]
        products = tuple(torch.zeros_like(p) for p in parameters)
        if curved:
            slopes, along = zip(*curved, strict=True)
            products = torch.autograd.grad(
                slopes, parameters, along, allow_unused=True, materialize_grads=True
            )
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient.detach()
        self._curvature = dict(zip(parameters, zip(directions, products, strict=True), strict=True))

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """Update the factors from the last `backward`, then the parameters."""
        updates: dict[Tensor, Tensor] = {}
        for group in self.param_groups:
            parameters, state = group["params"], self.state[group["params"][0]]
            direction, product = (
                _as_matrix([self._curvature[p][i] for p in parameters]) for i in (0, 1)
            )
            left, right = update_factors(
                state["left"], state["right"], direction, product, self.factor_step
            )
            state["left"], state["right"] = left, right
            state["step"] += 1
            gradient = _as_matrix([p.grad for p in parameters])
            change = left.T @ (left @ gradient @ right.T) @ right
            rows = (
                len(change) - len(parameters) + 1
            )  # the last one is that of the biases, if there are two
            changes = change[:rows].T.reshape(parameters[0].shape), *change[rows:]
            updates |= zip(parameters, changes, strict=True)
        norm = torch.stack([u.square().sum() for u in updates.values()]).sum().sqrt()
        count = sum(u.numel() for u in updates.values())
        limit = math.inf if self.clip_rms is None else self.clip_rms * math.sqrt(count)
        self.clipped = norm > limit
        scale = torch.clamp(limit / (norm + TINY), max=1.0)
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.sub_(group["lr"] * scale * updates[parameter])


def update_factors(
    left: Tensor, right: Tensor, direction: Tensor, product: Tensor, factor_step: float
) -> tuple[Tensor, Tensor]:
    """Return the factors L and R of a layer after a step along V with the Hessian-vector product H, (rows, columns)."""
    # With A = L H R^T and B = L^-T V R^-1 the relative gradients are A A^T - B B^T and A^T A - B^T B.
    a = left @ product @ right.T
    b = torch.linalg.solve_triangular(left.T, direction, upper=False)
    b = torch.linalg.solve_triangular(right, b, upper=True, left=False)
    left, right = (
        factor - factor_step / (gradient.abs().max() + TINY) * gradient @ factor
        for factor, gradient in (
            (left, (a @ a.T - b @ b.T).triu()),
            (right, (a.T @ a - b.T @ b).triu()),
        )
    )
    # Only the product of the factors is determined: without this, one could overflow while the other one vanishes.
    balance = (left.diagonal().abs().max() / right.diagonal().abs().max()).sqrt()
    return left / balance, right * balance


def _layers(model: nn.Module) -> list[dict[str, Any]]:
    """Group the trainable parameters by layer: weights first, biases after them where the layer has both."""
    groups = []
    for module in model.modules():
        parameters = {k: p for k, p in module.named_parameters(recurse=False) if p.requires_grad}
        if "weight" in parameters and "bias" in parameters and parameters["weight"].ndim > 1:
            groups.append({"params": [parameters.pop("weight"), parameters.pop("bias")]})
        groups += [{"params": [p]} for p in parameters.values()]
    return groups


def _as_matrix(parts: list[Tensor]) -> Tensor:
    """Return the (fan_in + 1, fan_out) matrix of a layer's weights and biases, or of a single parameter."""
    if len(parts) == 2:
        return torch.cat([parts[0].flatten(1).T, parts[1].unsqueeze(0)])
    return parts[0].flatten(1).T if parts[0].ndim > 1 else parts[0].reshape(1, -1)
