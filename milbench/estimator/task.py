"""The bags that a classifier is trained on, as a task of the engine."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from milbench._utils.seeding import generator
from milbench.api.bags import Bags, pad_bags
from milbench.api.network import NetworkMaker
from milbench.api.recipe import Recipe
from milbench.families.fixed_bags import FixedBags
from milbench.networks.instance import InstanceMLP


@dataclass(frozen=True)
class Examples:
    """Bags with what is known of them.

    Args:
        bags: B times (K_i, D), the standardised instances.
        labels: (B, C) bool, the label sets.
        weights: (B,), above 0, how much each bag counts; None: all alike.
    """

    bags: list[Tensor]
    labels: NDArray[np.bool_]
    weights: NDArray[np.float64] | None

    def selected(self, numbers: NDArray[np.intp]) -> "Examples":
        """Return the bags of some numbers (n,)."""
        return Examples(
            [self.bags[number] for number in numbers],
            self.labels[numbers],
            None if self.weights is None else self.weights[numbers],
        )


class TrainingBags(FixedBags):
    """The training bags of a classifier; batches and networks are those of the task feature-bags.

    Args:
        examples: the bags.
        batch_bags: how many there are in a batch.
        recipe: how a network is trained on them.
        seed: of the order of bags.
        epochs_before: how many epochs earlier fits have trained; the orders of bags go on there.
        device: where batches are needed.
    """

    name = "feature-bags"
    networks: ClassVar[Mapping[str, NetworkMaker]] = {"mlp": InstanceMLP}
    batch_weights: Tensor | None = None
    """The weights (B,) of the bags of the last batch that was made; None: all count alike."""

    def __init__(
        self,
        examples: Examples,
        batch_bags: int,
        recipe: Recipe,
        *,
        seed: int,
        epochs_before: int,
        device: torch.device,
    ) -> None:
        self.bags = examples.bags
        self.labels = torch.from_numpy(examples.labels)
        self.weights = None if examples.weights is None else torch.from_numpy(examples.weights)
        self.batch_bags = batch_bags
        self.seed = seed
        self.device = device
        self._recipe = recipe
        self._epochs_before = epochs_before
        self.inputs = self.bags[0].shape[1]
        self.training_count, self.num_classes = self.labels.shape
        self.max_labels = int(self.labels.sum(dim=1).max())
        mean_size = sum(len(bag) for bag in self.bags) / len(self.bags)
        self.typical_size = (max(1, round(mean_size)),)

    def train_batches(self, epoch: int, rng: torch.Generator) -> Iterator[Bags]:
        """Yield the batches of an epoch, in an order of its own among the epochs of all fits."""
        # Without earlier fits this is the generator that the engine has given.
        rng = generator("bags", self.name, self.seed, self._epochs_before + epoch)
        return super().train_batches(epoch, rng)

    def training_batch(self, numbers: Tensor, rng: torch.Generator) -> Bags:  # noqa: ARG002
        """Return the bags of some numbers (B,), and note their weights."""
        instances, mask = pad_bags([self.bags[number] for number in numbers.tolist()])
        if self.weights is not None:
            self.batch_weights = self.weights[numbers].to(self.device)
        is_padded = not bool(mask.all())
        return Bags(instances, self.labels[numbers], mask if is_padded else None).to(self.device)

    def recipe(self) -> Recipe:
        """Return the recipe that was given."""
        return self._recipe

    def check_data(self, data_dir: Path | None) -> str:  # noqa: ARG002
        """Return no digest: there are no files."""
        return ""

    def prepare(self, data_dir: Path | None, device: torch.device) -> None:
        """Do nothing: the bags are there."""
