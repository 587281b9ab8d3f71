"""A plain training loop, to compare with: bags drawn one by one, float32, AdamW, and nothing that makes it faster."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from milbench.api.bags import Bags
from milbench.api.loss import Loss
from milbench.api.recipe import Recipe
from milbench.api.task import Network, Task
from milbench.families.nested_digits import NestedDigits

Draw = Callable[[Bags, torch.Generator], Bags]
"""From a batch and a generator to a new batch of as many bags of the same shape."""


@runtime_checkable
class DrawsBags(Protocol):
    """A task that can draw any number of bags."""

    def draw(self, count: int, rng: torch.Generator) -> Bags:
        """Return `count` new bags."""


class PlainLoop:
    """Trains a network as a researcher would write it down at first.

    Args:
        task: prepared.
        loss: whose values are averaged over the batch; it is given label sets alone.
        network: new, on the CPU.
        recipe: for the learning rate.
        device: of the training.
        data_dir: the folder of the task's data.

    Attributes:
        draw: None where the task alone can draw its bags: whoever measures the loop then adds the time that takes.
    """

    def __init__(
        self, task: Task, loss: Loss, network: Network, recipe: Recipe, device: torch.device, data_dir: Path | None
    ) -> None:
        self.loss, self.network, self.device = loss, network.to(device), device
        self.optimizer = torch.optim.AdamW(self.network.parameters(), lr=recipe.lr)
        self.draw = one_by_one(task, data_dir)

    def step(self, like: Bags, rng: torch.Generator) -> None:
        """Make a step on a new batch of as many bags of the same shape; without `draw`, on this one."""
        bags = (self.draw(like, rng) if self.draw else like).to(self.device)
        self.network.train()
        self.optimizer.zero_grad()
        loss = self.loss(self.network(bags.instances), bags.labels, bags.mask).mean()
        loss.backward()
        self.optimizer.step()


def one_by_one(task: Task, data_dir: Path | None) -> Draw | None:
    """Return how a plain loop draws the bags of a task one by one; None where that is not known."""
    if isinstance(task, NestedDigits):
        return _pasting(task, data_dir)
    if isinstance(task, DrawsBags):
        drawing = task

        def draw(like: Bags, rng: torch.Generator) -> Bags:
            return _stacked([drawing.draw(1, rng) for _ in range(len(like))])

        return draw
    return None


def _pasting(task: NestedDigits, data_dir: Path | None) -> Draw:
    digits = task.load(data_dir).train
    side = digits.pixels.shape[-1]

    def draw_one(height: int, width: int, rng: torch.Generator) -> Bags:
        canvas, labels = torch.zeros(1, 1, height, width), torch.zeros(1, task.num_classes, dtype=torch.bool)
        for number in torch.randint(len(digits), (task.digits_per_bag,), generator=rng).tolist():
            top = int(torch.randint(height - side + 1, (), generator=rng))
            left = int(torch.randint(width - side + 1, (), generator=rng))
            canvas[0, :, top : top + side, left : left + side] += digits.pixels[number] / digits.white
            labels[0, digits.classes[number]] = True
        return Bags(canvas.clamp(max=1), labels)

    def draw(like: Bags, rng: torch.Generator) -> Bags:
        height, width = like.instances.shape[-2:]
        return _stacked([draw_one(height, width, rng) for _ in range(len(like))])

    return draw


def _stacked(bags: list[Bags]) -> Bags:
    masks: list[Tensor] = [one.mask for one in bags if one.mask is not None]
    return Bags(
        torch.cat([one.instances for one in bags]),
        torch.cat([one.labels for one in bags]),
        torch.cat(masks) if masks else None,
    )
