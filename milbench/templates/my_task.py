"""The task my-task: which kinds of points are in a bag."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar

import torch
from pydantic import Field

from milbench import (
    BagFormat,
    Bags,
    FixedBags,
    InstanceMLP,
    NetworkMaker,
    Recipe,
    Task,
    Truth,
    generator,
    label_matrix,
)

CPU = torch.device("cpu")


def draw_bags() -> Bags:
    """Return 600 bags of two to six points. A point of a class is near a corner, background near 0.

    Replace these bags with yours. Without `truth`, losses are compared by label sets alone.
    """
    rng = generator("my-task")
    # The class of each point, from 0 to 2, or 3 for background.
    classes = torch.randint(4, (600, 6), generator=rng)
    corners = torch.tensor([[3.0, 0.0], [-3.0, 3.0], [-3.0, -3.0], [0.0, 0.0]])
    sizes = torch.randint(2, 7, (600, 1), generator=rng)
    # A bag of fewer than six points is padded: the mask is False there.
    mask = torch.arange(6) < sizes
    noise = torch.randn(600, 6, 2, generator=rng)
    points = (corners[classes] + noise) * mask.unsqueeze(2)
    # The classes that occur: -1 stands for background and for padding.
    is_background = classes == 3
    things = classes.masked_fill(~mask | is_background, -1)
    truth = Truth(things, position_classes=classes)
    return Bags(points, label_matrix(things, 3), mask, truth)


class MyTask(Task):
    """Find which of three kinds of points are in a bag of two to six.

    Args:
        batch_bags: the number of bags of a training step.
    """

    name = "my-task"
    format = BagFormat(inputs=2, class_names=("right", "above", "below"))
    # The networks that suit the task; the first is the default.
    networks: ClassVar[Mapping[str, NetworkMaker]] = {"mlp": InstanceMLP}

    def __init__(self, batch_bags: Annotated[int, Field(ge=1)] = 32) -> None:
        self.batch_bags = batch_bags

    def recipe(self) -> Recipe:
        return Recipe(lr=1e-2, epochs=20, evaluate_every=5)

    def check_data(self, data_dir: Path | None) -> str:  # noqa: ARG002
        # By the digest, results on different data are told apart. If your task reads files, raise
        # UsageError when one is missing.
        bags = draw_bags()
        content = bags.instances.numpy().tobytes() + bags.labels.numpy().tobytes()
        digest = hashlib.sha256(content).hexdigest()[:16]
        return f"{len(bags)} bags, sha256 {digest}"

    def overlap(self, data_dir: Path | None) -> float:  # noqa: ARG002
        # Every seed splits the same bags, with 100 test bags for 400 training bags. So results of
        # different seeds depend on each other, and intervals are widened by this ratio.
        return 100 / 400

    def load(
        self,
        data_dir: Path | None = None,  # noqa: ARG002
        seed: int = 0,
        device: torch.device = CPU,
        limit: int | None = None,
    ) -> FixedBags:
        bags = draw_bags()
        order = torch.randperm(len(bags), generator=generator(self.name, "split", seed))
        # 100 bags to test on, 100 to validate on, and the other 400 to train on.
        test, validation, train = order.tensor_split([100, 200])
        numbers = {"train": train, "validation": validation, "test": test}
        parts = {part: bags.selected(some).to(device) for part, some in numbers.items()}
        return FixedBags.in_memory(self, parts, seed=seed, batch_bags=self.batch_bags, limit=limit)
