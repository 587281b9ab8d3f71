"""A task that takes next to no time, a file task of `milbench bench runner`: what is left is the runner's own work."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch

from milbench import Bags, Evaluation, InstanceMLP, Network, Recipe, ScoreFunction, Task

CLASSES, INSTANCES, DIMENSION = 2, 3, 2


class NextToNothing(Task):
    """One step an epoch on two bags, and an evaluation on the same two."""

    name = "next-to-nothing"
    num_classes = CLASSES
    positions = INSTANCES
    primary = "instance_error"

    def check_data(self, data_dir: Path | None) -> str:  # noqa: ARG002
        """Return a constant, because no data are read."""
        return "none"

    def prepare(self, data_dir: Path | None, device: torch.device) -> None:  # noqa: ARG002
        """Make the two bags."""
        instances = torch.linspace(-1, 1, 2 * INSTANCES * DIMENSION).view(2, INSTANCES, DIMENSION).to(device)
        self._bags = Bags(instances, torch.tensor([[True, False], [True, True]]).to(device))

    @property
    def steps_per_epoch(self) -> int:
        """Return 1."""
        return 1

    def train_batches(self, epoch: int, rng: torch.Generator) -> Iterator[Bags]:  # noqa: ARG002
        """Yield the two bags."""
        yield self._bags

    def network(self, seed: int) -> Network:
        """Return a perceptron."""
        return InstanceMLP((DIMENSION, 4, CLASSES + 1), seed)

    def recipe(self) -> Recipe:
        """Return one epoch."""
        return Recipe(epochs=1, lr=0.01)

    def evaluate(self, score: ScoreFunction) -> Evaluation:
        """Return the share of wrong label sets among the two bags, twice."""
        wrong = ((score(self._bags).presence > 0) != self._bags.labels).any(dim=1).double().mean()
        return Evaluation({f"{split}/instance_error": float(wrong) for split in ("validation", "test")})

    def gallery(self) -> Bags:
        """Return the two bags."""
        return self._bags
