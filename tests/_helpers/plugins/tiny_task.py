"""A task that trains in a blink: two-dimensional instances around three corners, labelled by which corners occur."""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
import torch
from pydantic import Field

from milbench import (
    Bags,
    Evaluation,
    InstanceMLP,
    Network,
    NetworkMaker,
    Recipe,
    ScoreFunction,
    Task,
    Truth,
    UsageError,
    label_matrix,
)
from milbench.api.predictions import Predictions, Ratio, SplitPredictions

CORNERS = torch.tensor([[3.0, 0.0], [-3.0, 3.0], [-3.0, -3.0], [0.0, 0.0]])


def mlp(
    inputs: int, num_classes: int, seed: int, hidden: Annotated[int, Field(ge=1)] = 8
) -> Network:
    """Make a perceptron of one hidden layer."""
    return InstanceMLP(inputs, num_classes, seed, hidden)


def linear(inputs: int, num_classes: int, seed: int) -> Network:
    """Make a linear map of every instance."""
    return InstanceMLP(inputs, num_classes, seed, layers=0)


class TinyTask(Task):
    """Five instances a bag, each at a corner or, being background, in the middle."""

    name = "tiny"
    num_classes = 3
    inputs = 2
    typical_size = (5,)
    networks: ClassVar[Mapping[str, NetworkMaker]] = {"mlp": mlp, "linear": linear}
    primary = "instance_error"

    def __init__(
        self,
        batches: Annotated[int, Field(ge=1)] = 4,
        fault: str = "",
        size: Annotated[int, Field(ge=1)] = 5,
        gate: str = "",
    ) -> None:
        self.batches, self.fault, self.size = batches, fault, size
        self.gate = gate  # a file; the third epoch begins when it exists

    def check_data(self, data_dir: Path | None) -> str:
        if data_dir is not None and not data_dir.is_dir():
            raise UsageError(f"tiny: no folder {data_dir}")
        if self.fault == "bug":
            int("not a number")
        return f"tiny of {self.size}"

    def prepare(self, data_dir: Path | None, device: torch.device) -> None:
        self.device = device

    @property
    def steps_per_epoch(self) -> int:
        return self.batches

    def train_batches(self, epoch: int, rng: torch.Generator) -> Iterator[Bags]:
        if self.gate and epoch > 1:
            Path(f"{self.gate}.reached").touch()
            while not Path(self.gate).exists():
                time.sleep(0.02)
        for _ in range(self.batches):
            yield self._spoiled(self._draw(rng))

    def recipe(self) -> Recipe:
        return Recipe(epochs=2, lr=0.05, precision="float32")

    def memory(self) -> dict[str, int]:
        return {"corners": 3}

    def evaluate(self, score: ScoreFunction) -> Evaluation:
        metrics = {}
        lowest = 0.0
        splits = {}
        for split, seed in (("validation", 1), ("test", 2)):
            bags = self._draw(torch.Generator().manual_seed(seed), bags=64)
            presence = score(bags).presence
            lowest = min(lowest, float(presence.min()))
            wrong = (presence > 0) != bags.labels
            metrics[f"{split}/instance_error"] = float(wrong.double().mean())
            classes = np.full(len(wrong), wrong.shape[1], np.float32)
            splits[split] = SplitPredictions(
                labels=bags.labels.numpy(),
                presence=presence.numpy(),
                classes=presence.numpy(),
                bag=np.arange(len(wrong)),
                digest=f"64 bags of {self.size}",
                ratios={"instance_error": Ratio(wrong.sum(dim=1).float().numpy(), classes)},
            )
        decoder = {"format": "tiny/1", "decoder": "corners", "lowest": lowest}
        return Evaluation(metrics, decoder, Predictions(splits))

    def gallery(self) -> Bags:
        return self._draw(torch.Generator().manual_seed(3), bags=2)

    def _draw(self, rng: torch.Generator, bags: int = 8) -> Bags:
        classes = torch.randint(4, (bags, self.size), generator=rng)
        points = CORNERS[classes] + torch.randn(bags, self.size, 2, generator=rng)
        known = classes.masked_fill(classes == 3, -1)
        return Bags(points, label_matrix(known, 3), truth=Truth(known, position_classes=classes))

    def _spoiled(self, bags: Bags) -> Bags:
        faults = {"labels": (1, bags.labels[:, :2]), "poison": (float("nan"), bags.labels),
                  "crowded": (1, torch.ones_like(bags.labels))}  # fmt: skip
        if self.fault not in faults:
            return bags
        factor, labels = faults[self.fault]
        return Bags(bags.instances * factor, labels)
