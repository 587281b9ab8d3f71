"""The training bags of a classifier, as a problem on which the steps of a cell can train."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from milbench._utils.seeding import generator
from milbench.contracts.bags import Bags, pad_bags
from milbench.contracts.problem import BagFormat
from milbench.families.fixed_bags import FixedBags

TASK_NAME = "feature-bags"
"""The task from which a classifier takes its networks, its recipe and the random order of bags."""


@dataclass(frozen=True)
class Examples:
    """Bags with their label sets and weights.

    Args:
        bags: B tensors (K_i, D), the standardised instances.
        labels: (B, C) bool, the label sets.
        weights: (B,), above 0, how much each bag counts; None: all count the same.
    """

    bags: list[Tensor]
    labels: NDArray[np.bool_]
    weights: NDArray[np.float64] | None

    def selected(self, numbers: NDArray[np.intp]) -> "Examples":
        """Return the bags with these indices (n,)."""
        return Examples(
            [self.bags[number] for number in numbers],
            self.labels[numbers],
            None if self.weights is None else self.weights[numbers],
        )


class TrainingBags(FixedBags):
    """The training bags of a classifier, as a problem without bags to evaluate on.

    Args:
        examples: the bags.
        batch_bags: the number of bags of a batch.
        seed: the seed of the order of bags.
        epochs_before: how many epochs earlier fits have trained. The order of bags differs from
            epoch to epoch, also across fits.
        device: the device on which batches are needed.
    """

    batch_weights: Tensor | None = None
    """The weights (B,) of the bags of the last batch that was made; None: all count the same."""

    def __init__(
        self,
        examples: Examples,
        batch_bags: int,
        *,
        seed: int,
        epochs_before: int,
        device: torch.device,
    ) -> None:
        self.bags = examples.bags
        self.labels = torch.from_numpy(examples.labels)
        self.weights: Tensor | None = None
        if examples.weights is not None:
            self.weights = torch.from_numpy(examples.weights)
        self.device = device
        self._epochs_before = epochs_before
        count, num_classes = self.labels.shape
        inputs = self.bags[0].shape[1]
        mean_size = sum(len(bag) for bag in self.bags) / count
        super().__init__(
            task_name=TASK_NAME,
            seed=seed,
            format=BagFormat(inputs, tuple(str(c) for c in range(num_classes))),
            typical_shape=(max(1, round(mean_size)), inputs),
            batch_bags=batch_bags,
            splits={},
            max_labels=int(self.labels.sum(dim=1).max()),
            training_count=count,
            make_batch=self._make_batch,
        )

    def train_batches(self, epoch: int, rng: torch.Generator) -> Iterator[Bags]:
        """Yield the batches of an epoch, in an order that no other epoch of any fit has."""
        # Without earlier fits this generator is the same as the argument `rng`.
        rng = generator("bags", TASK_NAME, self.seed, self._epochs_before + epoch)
        return super().train_batches(epoch, rng)

    def _make_batch(self, numbers: Tensor, rng: torch.Generator) -> Bags:  # noqa: ARG002
        """Return the bags with these indices (B,), and set `batch_weights` to their weights."""
        instances, mask = pad_bags([self.bags[number] for number in numbers.tolist()])
        if self.weights is not None:
            self.batch_weights = self.weights[numbers].to(self.device)
        bags = Bags(instances, self.labels[numbers])
        is_padded = not bool(mask.all())
        if is_padded:
            bags = replace(bags, mask=mask)
        return bags.to(self.device)
