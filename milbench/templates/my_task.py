"""The task my-task: which kinds of points are in a bag."""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, ClassVar

import torch
from pydantic import Field

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
    Truth,
    evaluate_bags,
    generator,
    label_matrix,
)

CLASSES = 3  # C, the background not counted
FEATURES = 2  # D, of an instance
SIZE = 4  # instances of a typical bag
SHARE = 6  # a sixth of all bags to validate on, another to test on, the rest to train on


def load() -> Bags:
    """Return all bags, with zeros where one has fewer than K instances.

    Replace it with your data, and the numbers above. These are 600 bags of two to six points, each around one of three
    centres or, being background, around 0. Leave out `truth` where the label sets alone are known: no loss learns from
    it but those with more supervision, and evaluations with it also tell which instances are found.
    """
    rng = generator("my-task")
    classes = torch.randint(CLASSES + 1, (600, 6), generator=rng)  # by position; C is background
    mask = torch.arange(6) < torch.randint(2, 7, (600, 1), generator=rng)
    centres = torch.tensor([[3.0, 0.0], [-3.0, 3.0], [-3.0, -3.0], [0.0, 0.0]])
    points = (centres[classes] + torch.randn(600, 6, FEATURES, generator=rng)) * mask.unsqueeze(2)
    # The true instances alone; -1 is none.
    things = classes.masked_fill(~mask | (classes == CLASSES), -1)
    truth = Truth(things, position_classes=classes)
    return Bags(points, label_matrix(things, CLASSES), mask, truth)


class MyTask(Task):
    """Find which of three kinds of points are in a bag of two to six.

    Args:
        batch_bags: the number of bags of a training step.
    """

    name = "my-task"
    num_classes = CLASSES
    inputs = FEATURES
    typical_size = (SIZE,)
    # The networks that suit, the first by default.
    networks: ClassVar[Mapping[str, NetworkMaker]] = {"mlp": InstanceMLP}
    # Losses are ranked by it. It needs label sets alone; "posterior_error" needs the truth too.
    primary = "set_error"

    def __init__(self, batch_bags: Annotated[int, Field(ge=1)] = 32) -> None:
        self.batch_bags = batch_bags

    def check_data(self, data_dir: Path | None) -> str:  # noqa: ARG002
        # Raise UsageError where a file is missing or damaged. If you read a data set of
        # `milbench data list`, name it in a method `datasets` too: missing ones are then fetched.
        everything = load()
        # With other data, cells are other cells.
        content = everything.instances.numpy().tobytes() + everything.labels.numpy().tobytes()
        return f"{len(everything)} bags, sha256 {hashlib.sha256(content).hexdigest()[:16]}"

    def overlap(self, data_dir: Path | None) -> float:  # noqa: ARG002
        # Test bags for each bag to train on. Seeds split the same bags, which widens intervals.
        return 1 / (SHARE - 2)

    def prepare(self, data_dir: Path | None, device: torch.device) -> None:  # noqa: ARG002
        everything = load().to(device)
        order = torch.randperm(len(everything), generator=generator(self.name, "split", self.seed))
        n = len(everything) // SHARE
        validation, test, train = (
            everything.selected(part.to(device)) for part in order.tensor_split([n, 2 * n])
        )
        self.train = train
        bags: dict[Split, Bags] = {"validation": validation, "test": test}
        self.splits = {
            split: EvalSplit(single_instance=(), bags=[part]) for split, part in bags.items()
        }
        self.max_labels = int(train.labels.sum(dim=1).max())

    @property
    def steps_per_epoch(self) -> int:
        return -(-len(self.train) // self.batch_bags)

    def train_batches(self, epoch: int, rng: torch.Generator) -> Iterator[Bags]:  # noqa: ARG002
        # All chance comes from rng, so that every loss gets the same bags.
        order = torch.randperm(len(self.train), generator=rng)
        for batch in order.split(self.batch_bags):
            yield self.train.selected(batch.to(self.train.labels.device))

    def recipe(self) -> Recipe:
        return Recipe(lr=1e-2, epochs=20, evaluate_every=5)

    def evaluate(self, score: ScoreFunction) -> Evaluation:
        # Training labels choose the best constant answer, the no-skill line.
        labels, limit = self.train.labels, self.evaluation_limit
        return evaluate_bags(score, self.splits, limit=limit, training_labels=labels)

    def gallery(self) -> Bags:
        return self.splits["test"].bags[0].parts(8)[0]
