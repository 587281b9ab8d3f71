"""Training a classifier with the steps of a cell, but with weights of bags and an early end."""

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor

from milbench._utils.seeding import generator
from milbench.contracts.criterion import bag_losses
from milbench.contracts.loss import Loss
from milbench.contracts.network import Network
from milbench.contracts.recipe import Recipe
from milbench.errors import UsageError
from milbench.estimator.training_bags import TrainingBags
from milbench.training.checkpoint import Counters
from milbench.training.train import train_epoch
from milbench.training.training_setup import Model, setup_for_problem


class Training:
    """A network and a loss that are trained on bags, epoch by epoch.

    Args:
        bags: the bags.
        recipe: how the network is trained.
        network: a new network on the CPU, or a network that was trained before.
        loss: a loss that was built for the bags.
    """

    def __init__(self, bags: TrainingBags, recipe: Recipe, network: Network, loss: Loss) -> None:
        self._bags = bags
        loss = loss.to(bags.device)
        self._setup = setup_for_problem(recipe, bags.seed, bags, network, loss, bags.device)

    @property
    def epochs(self) -> int:
        """The number of epochs of the recipe."""
        return self._setup.recipe.epochs

    @property
    def model(self) -> Model:
        """The network and the loss as they are now, or averaged over steps, by the recipe."""
        model = self._setup.final_model
        model.network.eval()
        return model

    def train_epoch(self, epoch: int) -> float:
        """Make the steps of an epoch, and return the mean loss of its bags.

        The loss of a bag is taken before the step of its batch. `epoch` counts from 0.
        """
        losses = _WeightedLosses(self._bags)
        train_epoch(self._setup, Counters(epoch), _report_nothing, losses.weigh)
        return losses.mean()


class _WeightedLosses:
    """Weighs the losses of the bags of each batch, and adds them up for the mean of an epoch."""

    def __init__(self, bags: TrainingBags) -> None:
        self._bags = bags
        self._total = torch.zeros((), dtype=torch.float64, device=bags.device)
        self._total_weight = torch.zeros((), dtype=torch.float64, device=bags.device)

    def weigh(self, values: Tensor) -> Tensor:
        """Return the losses (B,) of the bags of a batch, each multiplied by a factor.

        The factor of a bag is its weight, divided by the mean weight of the batch.
        """
        weights = self._bags.batch_weights
        if weights is None:
            self._total += values.detach().double().sum()
            self._total_weight += len(values)
            return values
        self._total += (weights * values.detach().double()).sum()
        self._total_weight += weights.sum()
        # A step takes the mean over the bags of a batch. The factors make it the weighted mean.
        factors = weights / weights.mean()
        return factors.to(values) * values

    def mean(self) -> float:
        """Return the weighted mean loss of all bags so far."""
        return float(self._total / self._total_weight)


class Patience:
    """Counts epochs without improvement, and keeps the best value.

    Args:
        best: the largest value of earlier fits; None: there were no earlier fits.
        tol: an epoch is an improvement if its value is at least `tol` above the best value.
        epochs: training should end after more than this number of epochs in a row without
            improvement; None: never.
    """

    def __init__(self, best: float | None, tol: float, epochs: int | None) -> None:
        self.best = -np.inf if best is None else best
        self._tol = tol
        self._epochs = epochs
        self.without_improvement = 0

    @property
    def is_over(self) -> bool:
        """Whether training should end."""
        return self._epochs is not None and self.without_improvement > self._epochs

    def look_at(self, value: float) -> bool:
        """Count an epoch, and return whether its value is the best so far; larger is better.

        As in scikit-learn, a value that is larger than the best one by less than `tol` becomes the
        best value, but does not count as an improvement.
        """
        if value < self.best + self._tol:
            self.without_improvement += 1
        else:
            self.without_improvement = 0
        is_best = value > self.best
        if is_best:
            self.best = value
        return is_best


def weights_of(model: Model) -> dict[str, Any]:
    """Return a copy of the weights of the network and the loss."""
    return copy.deepcopy(model.state_dict())


def check_weighable(loss: Loss, num_classes: int) -> None:
    """Raise UsageError where the loss of a bag depends on the other bags of its batch.

    The weight of a bag would then change the losses of other bags. To find out, the loss of a
    random bag is computed by itself, and in a batch with another bag of another size.

    Args:
        loss: the loss, built for the classes.
        num_classes: C, the number of classes.
    """
    loss = copy.deepcopy(loss).eval()
    rng = generator("is a bag's loss its own")
    logits = torch.randn(2, num_classes + 1, 3, generator=rng)
    mask = torch.tensor([[True, True, False], [True, True, True]])
    labels = torch.zeros(2, num_classes, dtype=torch.bool)
    labels[:, 0] = True
    with torch.no_grad():
        in_batch = bag_losses(loss, logits, labels, mask, check_values=True)[:1]
        alone = bag_losses(loss, logits[:1], labels[:1], mask[:1], check_values=True)
    if not torch.allclose(in_batch, alone, rtol=1e-3):
        arguments = ", ".join(f"{name}={value}" for name, value in loss.arguments.items())
        raise UsageError(
            f"bags have no weights with {loss.name} ({arguments}): there the loss of a bag "
            "depends on the other bags of its batch"
        )


def _report_nothing(counters: Counters) -> None:
    """Do nothing. A cell reports its progress after each step, a classifier does not."""
