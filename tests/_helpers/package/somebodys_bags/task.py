"""A task."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

import torch

from milbench import (
    Bags,
    EvalSplit,
    Evaluation,
    InstanceMLP,
    NetworkMaker,
    Recipe,
    ScoreFunction,
    Split,
    Task,
    evaluate_bags,
    generator,
)

SPLITS: tuple[Split, ...] = ("validation", "test")


class TwoHeaps(Task):
    """Find out which of two heaps the numbers of a bag come from."""

    name = "two-heaps"
    num_classes = 2
    inputs = 1
    typical_size = (3,)
    networks: ClassVar[Mapping[str, NetworkMaker]] = {"mlp": InstanceMLP}
    steps_per_epoch = 4

    def check_data(self, data_dir: Path | None) -> str:
        return "drawn"

    def prepare(self, data_dir: Path | None, device: torch.device) -> None:
        self.splits = {split: EvalSplit((), [draw(50, generator(self.name, split))]) for split in SPLITS}

    def train_batches(self, epoch: int, rng: torch.Generator) -> Iterator[Bags]:
        for _ in range(self.steps_per_epoch):
            yield draw(8, rng)

    def recipe(self) -> Recipe:
        return Recipe(optimizer="signs", lr=0.01, epochs=2)

    def evaluate(self, score: ScoreFunction) -> Evaluation:
        return evaluate_bags(score, self.splits, limit=self.evaluation_limit)

    def gallery(self) -> Bags:
        return self.splits["test"].bags[0].part(0, 4)


def draw(count: int, rng: torch.Generator) -> Bags:
    heaps = torch.randint(2, (count, 3), generator=rng)
    numbers = 6.0 * heaps - 3 + torch.randn(count, 3, generator=rng)
    return Bags(numbers.unsqueeze(2), torch.stack([(heaps == heap).any(dim=1) for heap in (0, 1)], dim=1))
