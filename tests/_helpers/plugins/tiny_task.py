"""A plug-in with a task that trains in a blink.

Instances are points in the plane, around three corners or in the middle. The classes of a bag are
the corners that occur.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
import torch
from pydantic import Field

from milbench import (
    BagFormat,
    Bags,
    EvalSplit,
    Evaluation,
    InstanceMLP,
    Network,
    NetworkMaker,
    Problem,
    Recipe,
    ScoreFunction,
    Split,
    Task,
    Truth,
    UsageError,
    label_matrix,
)
from milbench.contracts.predictions import Predictions, Ratio, SplitPredictions

CPU = torch.device("cpu")
CORNERS = torch.tensor([[3.0, 0.0], [-3.0, 3.0], [-3.0, -3.0], [0.0, 0.0]])
"""The means of three classes, and last of the background."""
BACKGROUND = 3


def mlp(
    inputs: int, num_classes: int, seed: int, hidden: Annotated[int, Field(ge=1)] = 8
) -> Network:
    """Make a perceptron of one hidden layer."""
    return InstanceMLP(inputs, num_classes, seed, hidden)


def linear(inputs: int, num_classes: int, seed: int) -> Network:
    """Make a linear map of every instance."""
    return InstanceMLP(inputs, num_classes, seed, layers=0)


class TinyFormat(BagFormat):
    """A format with a memory: data that are stored with a trained network."""

    def memory(self) -> dict[str, int]:
        return {"corners": 3}


class TinyTask(Task):
    """Five points a bag, each at a corner or, as background, in the middle.

    Args:
        batches: the steps of an epoch.
        fault: what goes wrong. "bug": the check of the data raises an error. In every training
            batch, "labels": the label sets lack a class; "poison": the instances are NaN;
            "crowded": each label set has all classes.
        size: the instances of a bag.
        gate: the path of a file. Before its third epoch a cell makes GATE.reached, and waits until
            GATE exists.
    """

    name = "tiny"
    format = TinyFormat(2, ("0", "1", "2"))
    networks: ClassVar[Mapping[str, NetworkMaker]] = {"mlp": mlp, "linear": linear}
    primary = "instance_error"
    # What a problem says of its bags. Tests set it to values that may be wrong.
    typical_size: ClassVar[int] = 5
    max_labels: ClassVar[int | None] = None

    def __init__(
        self,
        batches: Annotated[int, Field(ge=1)] = 4,
        fault: str = "",
        size: Annotated[int, Field(ge=1)] = 5,
        gate: str = "",
    ) -> None:
        self.batches = batches
        self.fault = fault
        self.size = size
        self.gate = gate

    def recipe(self) -> Recipe:
        return Recipe(epochs=2, lr=0.05, precision="float32")

    def check_data(self, data_dir: Path | None) -> str:
        if data_dir is not None and not data_dir.is_dir():
            raise UsageError(f"tiny: no folder {data_dir}")
        if self.fault == "bug":
            int("not a number")
        return f"tiny of {self.size}"

    def load(
        self,
        data_dir: Path | None = None,
        seed: int = 0,
        device: torch.device = CPU,
        limit: int | None = None,
    ) -> Problem:
        # Validation and test bags are the same for all seeds.
        validation = _bags_of_seed(1, 64, self.size)
        test = _bags_of_seed(2, 64, self.size)
        splits: dict[Split, EvalSplit] = {
            "validation": EvalSplit((), [validation]),
            "test": EvalSplit((), [test]),
        }
        return TinyProblem(
            task_name=self.name,
            seed=seed,
            format=self.format,
            typical_shape=(self.typical_size, 2),
            batch_bags=32,
            splits=splits,
            max_labels=self.max_labels,
            task=self,
        )


@dataclass(kw_only=True, eq=False, repr=False)
class TinyProblem(Problem):
    """Bags of random points, which differ from epoch to epoch."""

    task: TinyTask

    @property
    def steps_per_epoch(self) -> int:
        return self.task.batches

    def train_batches(self, epoch: int, rng: torch.Generator) -> Iterator[Bags]:
        gate = self.task.gate
        if gate and epoch > 1:
            Path(f"{gate}.reached").touch()
            while not Path(gate).exists():
                time.sleep(0.02)
        for _ in range(self.task.batches):
            yield self._spoiled(_random_bags(rng, 8, self.task.size))

    def evaluate(self, score: ScoreFunction) -> Evaluation:
        metrics = {}
        # The lowest score differs between networks: it makes their decoders differ.
        lowest = 0.0
        splits: dict[str, SplitPredictions] = {}
        for split, evaluated in self.splits.items():
            (bags,) = evaluated.bags
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
                digest=f"64 bags of {self.task.size}",
                ratios={"instance_error": Ratio(wrong.sum(dim=1).float().numpy(), classes)},
            )
        decoder = {"format": "tiny/1", "decoder": "corners", "lowest": lowest}
        return Evaluation(metrics, decoder, Predictions(splits))

    def gallery(self) -> Bags:
        return _bags_of_seed(3, 2, self.task.size)

    def _spoiled(self, bags: Bags) -> Bags:
        """Return a batch with the fault of the task, if it has one."""
        match self.task.fault:
            case "labels":
                return Bags(bags.instances, bags.labels[:, :2])
            case "poison":
                return Bags(torch.full_like(bags.instances, torch.nan), bags.labels)
            case "crowded":
                return Bags(bags.instances, torch.ones_like(bags.labels))
        return bags


def _bags_of_seed(seed: int, count: int, size: int) -> Bags:
    """Return `count` bags of `size` points, always the same for a seed."""
    return _random_bags(torch.Generator().manual_seed(seed), count, size)


def _random_bags(rng: torch.Generator, bags: int, size: int) -> Bags:
    """Return bags of `size` points that a generator gives."""
    classes = torch.randint(4, (bags, size), generator=rng)
    points = CORNERS[classes] + torch.randn(bags, size, 2, generator=rng)
    things = classes.masked_fill(classes == BACKGROUND, -1)
    truth = Truth(things, position_classes=classes)
    return Bags(points, label_matrix(things, BACKGROUND), truth=truth)
