"""The mean loss of a batch as a function of the weights, computed in parts where memory does not hold the batch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from milbench.api.bags import Bags
from milbench.api.loss import Loss
from milbench.api.recipe import Recipe
from milbench.api.targets import make_target
from milbench.api.task import Network
from milbench.engine.checkpoints import Generators
from milbench.engine.precision import tf32, tf32_behind
from milbench.engine.psgd import KroneckerPSGD


@dataclass
class Objective:
    """The mean loss of a batch.

    Args:
        network: on `device`.
        loss: on `device`.
        recipe: for the precision of the network and of the loss.
        device: of the training.
    """

    network: Network
    loss: Loss
    recipe: Recipe
    device: torch.device

    def divisible(self, optimizer: torch.optim.Optimizer, bags: Bags) -> bool:
        """Return whether an optimiser gets from parts of these bags what it gets from all of them."""
        # The Hessian-vector products of a loss that couples bags have terms that couple the parts.
        coupled = self.loss.couples(bags.mask) and isinstance(optimizer, KroneckerPSGD)
        return not coupled and not self.network.couples_bags

    def terms(self, bags: Bags, size: int, epoch: int, step: int) -> Iterator[Tensor]:
        """Yield terms whose sum has the value of the mean loss, and whose gradients sum to its gradient.

        Args:
            bags: the batch.
            size: how many bags may be in memory with their graph. A loss that couples bags gets the logits of all.
            epoch: from 1, for messages.
            step: of the epoch, from 1, for messages.

        Yields:
            (): to be differentiated, by `backward` in a block of `tf32`, before the next one is asked for.

        Raises:
            FloatingPointError: logits or losses are not finite. On a GPU, where that would have to be waited for, they
                are not checked.
        """
        if size >= len(bags):
            yield self._losses(bags, self.logits(bags), epoch, step).mean()
        elif not self.loss.couples(bags.mask):
            for part in bags.parts(size):
                yield self._losses(part, self.logits(part), epoch, step).sum() / len(bags)
        else:
            yield from self._coupled_terms(bags, size, epoch, step)

    def _coupled_terms(self, bags: Bags, size: int, epoch: int, step: int) -> Iterator[Tensor]:
        """Yield the loss of all bags as a function of their logits, then for every part its way to the weights."""
        parts, drawn, logits = bags.parts(size), [], []
        for part in parts:
            drawn.append(Generators.now(self.device))
            with torch.no_grad():
                logits.append(self.logits(part))
        known = torch.cat(logits).requires_grad_()
        loss = self._losses(bags, known, epoch, step).mean()
        (slopes,) = torch.autograd.grad(loss, known, retain_graph=True)
        yield loss  # for weights that the loss has of its own
        for part, generators, slope in zip(parts, drawn, slopes.split(size), strict=True):
            now = Generators.now(self.device)
            generators.restore(self.device)  # a network that draws has to draw the same again
            again = self.logits(part)
            now.restore(self.device)
            yield ((again - again.detach()) * slope).sum()  # of value 0

    def logits(self, bags: Bags) -> Tensor:
        """Return the logits (B, C+1, *positions) of training, in the precision of the loss."""
        in_tf32 = self.recipe.precision == "tf32"
        with tf32(in_tf32):
            logits = network_logits(self.network, bags, self.device, half=self.recipe.precision == "bfloat16")
        if in_tf32:
            tf32_behind(logits, allowed=True)
        return logits.double() if self.recipe.loss_precision == "float64" else logits

    def _losses(self, bags: Bags, logits: Tensor, epoch: int, step: int) -> Tensor:
        self._check_finite("logits", logits, epoch, step)
        target = make_target(self.loss.target_kind, bags, logits, self.network)
        with tf32(False):
            losses: Tensor = self.loss(logits, bags.labels, bags.mask, target)
        if self.recipe.precision == "tf32":
            tf32_behind(losses, allowed=False)
        self._check_finite("loss", losses, epoch, step)
        return losses

    def _check_finite(self, what: str, values: Tensor, epoch: int, step: int) -> None:
        if self.device.type == "cpu" and not bool(torch.isfinite(values).all()):
            raise FloatingPointError(f"the {what} in training: not finite at epoch {epoch}, step {step}")


def network_logits(network: Network, bags: Bags, device: torch.device, *, half: bool = False) -> Tensor:
    """Return the logits (B, C+1, *positions) float32 of bags, computed in bfloat16 where `half`.

    Args:
        network: on the device.
        bags: B bags.
        device: of the network.
        half: whether the network computes in bfloat16.
    """
    instances = network.as_input(bags.instances)
    with torch.autocast(device.type, torch.bfloat16) if half else nullcontext():
        logits: Tensor = network(instances)
    return logits.float()
