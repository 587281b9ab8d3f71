"""The task my-task-without-truth: which kinds of points are in a bag; no more than the label set of a bag is known."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

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
    evaluate_bags,
    generator,
)

CLASSES = 3  # C, the background not counted
FEATURES = 2  # D, of an instance
POSITIONS = 4  # instances of a typical bag
SHARE = 6  # a sixth of all bags to validate on, another to test on, the rest to train on


def load() -> tuple[Tensor, Tensor, Tensor]:
    """Return all bags: instances (B, K, D), zeros where a bag has fewer than K; labels (B, C) bool; mask (B, K) bool.

    Replace it with your data, and the numbers above. These are 600 bags of two to six points, each around one of three
    centres or around 0.
    """
    rng = generator("my-task-without-truth")
    kinds = torch.randint(4, (600, 6), generator=rng)
    mask = torch.arange(6) < torch.randint(2, 7, (600, 1), generator=rng)
    centres = torch.tensor([[3.0, 0.0], [-3.0, 3.0], [-3.0, -3.0], [0.0, 0.0]])
    points = centres[kinds] + torch.randn(600, 6, 2, generator=rng)
    labels = torch.stack([((kinds == c) & mask).any(dim=1) for c in range(3)], dim=1)
    return points * mask.unsqueeze(2), labels, mask


class MyTaskWithoutTruth(Task):
    """Find which of three kinds of points are in a bag of two to six; losses are ranked by the error of label sets."""

    name = "my-task-without-truth"
    num_classes = CLASSES
    positions = POSITIONS

    def check_data(self, data_dir: Path | None) -> str:  # noqa: ARG002
        everything = load()  # raise UsageError where a file is missing or damaged
        digest = hashlib.sha256(b"".join(part.numpy().tobytes() for part in everything)).hexdigest()
        return f"{len(everything[0])} bags, sha256 {digest[:16]}"  # other data are another cell

    def overlap(self, data_dir: Path | None) -> float:  # noqa: ARG002
        return 1 / (SHARE - 2)  # test bags for each to train on: seeds split the same bags, which widens intervals

    def prepare(self, data_dir: Path | None, device: torch.device) -> None:  # noqa: ARG002
        everything = Bags(*load()).to(device)
        order = torch.randperm(len(everything), generator=generator(self.name, "split", self.seed))
        few = len(everything) // SHARE
        validation, test, train = (everything.selected(some.to(device)) for some in order.tensor_split([few, 2 * few]))
        self.train = train
        bags: dict[Split, Bags] = {"validation": validation, "test": test}
        self.splits = {split: EvalSplit(single_instance=(), bags=[some]) for split, some in bags.items()}
        self.max_labels = int(train.labels.sum(dim=1).max())

    @property
    def steps_per_epoch(self) -> int:
        return -(-len(self.train) // 32)

    def train_batches(self, epoch: int, rng: torch.Generator) -> Iterator[Bags]:  # noqa: ARG002
        for some in torch.randperm(len(self.train), generator=rng).split(32):  # all chance comes from rng
            yield self.train.selected(some.to(self.train.labels.device))

    def network(self, seed: int) -> Network:
        return InstanceMLP((FEATURES, 32, CLASSES + 1), seed)

    def recipe(self) -> Recipe:
        return Recipe(lr=1e-2, epochs=20, evaluate_every=5)

    def evaluate(self, score: ScoreFunction) -> Evaluation:
        return evaluate_bags(score, self.splits, limit=self.evaluation_limit)

    def gallery(self) -> Bags:
        return self.splits["test"].bags[0].part(0, 8)
