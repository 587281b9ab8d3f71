"""The task my-task: which kinds of points are in a bag, with the class of every point known to the evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import torch
from pydantic import Field

from milbench import (
    Bags,
    EvalSplit,
    Evaluation,
    InstanceMLP,
    Network,
    Recipe,
    ScoreFunction,
    Split,
    Task,
    Truth,
    evaluate_bags,
    generator,
    label_matrix,
)

POINTS = 6  # in every bag
CENTRES = torch.tensor([[3.0, 0.0], [-3.0, 3.0], [-3.0, -3.0], [0.0, 0.0]])  # of classes 0, 1 and 2, and of background
EVAL_BAGS: dict[Split, int] = {"validation": 200, "test": 400}


class MyTask(Task):
    """Find which of three kinds of points are in a bag of six.

    Args:
        bags_per_epoch: the number of training bags, which are new in every epoch.
    """

    name = "my-task"
    num_classes = 3  # C, the background not counted
    positions = POINTS
    max_labels = 3
    primary = "posterior_error"  # needs the class of every instance; the default, set_error, needs label sets alone

    def __init__(self, bags_per_epoch: Annotated[int, Field(ge=1)] = 640) -> None:
        self.bags_per_epoch = bags_per_epoch

    def check_data(self, data_dir: Path | None) -> str:  # noqa: ARG002
        return "points, drawn"  # of files: a digest, and UsageError where one is missing or damaged

    def prepare(self, data_dir: Path | None, device: torch.device) -> None:  # noqa: ARG002
        self.device = device
        self.splits = {
            split: EvalSplit(single_instance=(), bags=[self.draw(count, generator(self.name, split))])
            for split, count in EVAL_BAGS.items()
        }

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.bags_per_epoch // 32)

    def train_batches(self, epoch: int, rng: torch.Generator) -> Iterator[Bags]:  # noqa: ARG002
        for start in range(0, self.bags_per_epoch, 32):  # all chance comes from rng: every loss gets the same bags
            yield self.draw(min(32, self.bags_per_epoch - start), rng)

    def network(self, seed: int) -> Network:
        return InstanceMLP((2, 32, self.num_classes + 1), seed)

    def recipe(self) -> Recipe:
        return Recipe(lr=1e-2, epochs=10, evaluate_every=5)

    def evaluate(self, score: ScoreFunction) -> Evaluation:
        return evaluate_bags(score, self.splits, limit=self.evaluation_limit)

    def gallery(self) -> Bags:
        return self.splits["test"].bags[0].part(0, 8)

    def draw(self, count: int, rng: torch.Generator) -> Bags:
        classes = torch.randint(self.num_classes + 1, (count, POINTS), generator=rng)  # by position; C is background
        points = CENTRES[classes] + torch.randn(count, POINTS, 2, generator=rng)
        things = classes.masked_fill(classes == self.num_classes, -1)  # the true instances alone; -1 is none
        truth = Truth(things, position_classes=classes)
        return Bags(points, label_matrix(things, self.num_classes), truth=truth).to(self.device)
