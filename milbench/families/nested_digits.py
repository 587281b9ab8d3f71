"""Digits nested on a canvas: the protocol of the paper's Section 5.2, for digits of any size.

A bag is a canvas with a few digits at random places; its label is the set of their classes. What is learnt is judged
on plain digits, one an image, and on canvases that were drawn once and for all.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from milbench._utils.images import grey
from milbench._utils.seeding import generator
from milbench.api.bags import Bags, Truth, label_matrix
from milbench.api.task import Evaluation, Network, ScoreFunction, Split, Task
from milbench.data.labelled_images import ImageSplits, LabelledImages
from milbench.errors import UsageError
from milbench.evaluation.evaluate import EvalSplit, evaluate, first_bags
from milbench.families.image_bags import LazyBatches, single_instance_bags
from milbench.networks.convolutional import AllConvolutional, Layer, output_size, position_centres

if TYPE_CHECKING:
    from PIL.Image import Image

CLASSES = 10
TRIES = 1000
"""To put digits onto a canvas so that none overlaps another."""
SPLIT_NAMES: tuple[Split, ...] = ("validation", "test")


def nest(patches: Tensor, tops: Tensor, lefts: Tensor, height: int, width: int) -> Tensor:
    """Put patches (B, M, h, w) on canvases (B, 1, height, width) at (B, M) offsets; pixels add, then clamp at 1.

    One patch of every bag at a time: within a step no pixel is written twice, so that the sum has one order on every
    device.
    """
    B, M, h, w = patches.shape
    rows = tops.unsqueeze(-1) + torch.arange(h, device=tops.device)
    columns = lefts.unsqueeze(-1) + torch.arange(w, device=lefts.device)
    pixels = (rows.unsqueeze(-1) * width + columns.unsqueeze(-2)).flatten(2)
    canvas = patches.new_zeros(B, height * width)
    for m in range(M):
        canvas.scatter_add_(1, pixels[:, m], patches[:, m].flatten(1))
    return canvas.clamp_(max=1).view(B, 1, height, width)


def draw_canvases(digits: LabelledImages, index: Tensor, sizes: tuple[int, int], rng: torch.Generator) -> Bags:
    """Nest the digits named by `index` (B, M) on canvases of one size, drawn here, at places drawn here.

    Height and width are independent and uniform on sizes[0]..sizes[1]; an offset is uniform over those that keep the
    digit whole. Draws come from `rng` on the CPU; the bags are made where the digits are.
    """
    (h, w), device = digits.pixels.shape[-2:], digits.pixels.device
    height, width = torch.randint(sizes[0], sizes[1] + 1, (2,), generator=rng).tolist()
    tops = torch.randint(height - h + 1, index.shape, generator=rng).to(device)
    lefts = torch.randint(width - w + 1, index.shape, generator=rng).to(device)
    drawn = digits[index]
    boxes = torch.stack([lefts, tops, lefts + w, tops + h], dim=-1).float()
    canvas = nest(drawn.scaled().squeeze(2), tops, lefts, height, width)
    return Bags(canvas, label_matrix(drawn.classes, CLASSES), truth=Truth(drawn.classes, boxes))


class NestedDigits(Task):
    """A task of this family: a subclass says which digits, which canvas sizes and which layers."""

    sizes: ClassVar[tuple[int, int]]
    """Smallest and largest side of a canvas, in pixels."""
    eval_bags: ClassVar[dict[Split, int]]
    """How many fixed canvases each split has."""
    eval_batches: ClassVar[tuple[int, int]]
    """How many plain digits, and how many canvases, are scored at once."""
    num_classes = CLASSES
    chance = 1 - 1 / CLASSES

    def __init__(self, digits_per_bag: int, batch_bags: int = 32) -> None:
        self.digits_per_bag = digits_per_bag
        self.batch_bags = batch_bags
        middle = output_size(self.layers(), sum(self.sizes) // 2)
        self.positions = middle * middle

    @abstractmethod
    def layers(self) -> tuple[Layer, ...]:
        """Return the layers of the network."""

    @abstractmethod
    def load(self, data_dir: Path | None) -> ImageSplits:
        """Return the digits, on the CPU."""

    def prepare(self, data_dir: Path | None, device: torch.device) -> None:
        """Load the digits onto `device` and draw the fixed bags."""
        splits = self.load(data_dir).to(device)
        if len(splits.train) < self.digits_per_bag:
            raise UsageError(
                f"{self.name}: {len(splits.train)} training digits do not fill one bag of {self.digits_per_bag}"
            )
        self._train = splits.train
        as_bags = partial(single_instance_bags, num_classes=CLASSES)
        # Without a validation split, thresholds are chosen on canvases of training digits, and nothing is reported.
        self._calibration = None if splits.validation else self._canvases("validation", splits.train)
        self._eval_splits: dict[Split, EvalSplit] = {
            split: EvalSplit(LazyBatches(digits, self.eval_batches[0], as_bags), self._canvases(split, digits))
            for split in SPLIT_NAMES
            if (digits := getattr(splits, split)) is not None
        }

    @property
    def steps_per_epoch(self) -> int:
        """Every training digit once, the last batch being smaller."""
        bags = len(self._train) // self.digits_per_bag
        return -(-bags // self.batch_bags)

    def train_batches(self, epoch: int, rng: torch.Generator) -> Iterator[Bags]:  # noqa: ARG002
        """Yield canvases with every training digit once; the few that do not fill a bag, never the same, sit out."""
        bags = len(self._train) // self.digits_per_bag
        order = torch.randperm(len(self._train), generator=rng)[: bags * self.digits_per_bag]
        for index in torch.split(order.view(bags, self.digits_per_bag), self.batch_bags):
            yield draw_canvases(self._train, index, self.sizes, rng)

    def network(self, seed: int) -> Network:
        """Return the all-convolutional network of `layers`."""
        return AllConvolutional(self.layers(), 1, seed)

    def instances_from(self, picture: Image) -> Tensor:
        """Return the picture in grey, (1, H, W) in [0, 1]: digits are light on dark."""
        return torch.from_numpy(grey(picture)) / 255

    def evaluate(self, score: ScoreFunction) -> Evaluation:
        """Return the metrics of plain digits (instance_error) and of the fixed canvases (all others)."""
        return Evaluation(evaluate(score, self._eval_splits, self._calibration, self.centres))

    def centres(self, height: int, width: int) -> tuple[Tensor, Tensor]:
        """Return where in a canvas of this size the positions look."""
        return position_centres(self.layers(), height, width)

    def gallery(self) -> Bags:
        """Return eight test canvases of one size."""
        return first_bags(self._eval_splits["test"].bags[0], 8)

    def test_canvas(self, high: float, wide: float, count: int, rng: torch.Generator) -> Bags:
        """Return one canvas, high and wide in sides of a digit, with test digits drawn by `rng` that do not overlap.

        Where there is no place left for another digit, the canvas has fewer.
        """
        instances = torch.cat([bags.instances for bags in self._eval_splits["test"].single_instance])
        classes = torch.cat([bags.labels for bags in self._eval_splits["test"].single_instance]).int().argmax(dim=1)
        side = instances.shape[-1]
        height, width = round(high * side), round(wide * side)
        places: list[tuple[int, int]] = []
        for _ in range(TRIES):
            top = int(torch.randint(height - side + 1, (), generator=rng))
            left = int(torch.randint(width - side + 1, (), generator=rng))
            if len(places) < count and all(max(abs(top - t), abs(left - x)) >= side for t, x in places):
                places.append((top, left))
        index = torch.randint(len(instances), (1, len(places)), generator=rng)
        tops, lefts = (torch.tensor([v]) for v in zip(*places, strict=True))
        boxes = torch.stack([lefts, tops, lefts + side, tops + side], dim=-1).float()
        canvas = nest(instances[index.to(instances.device), 0].cpu(), tops, lefts, height, width)
        drawn = classes[index.to(classes.device)].cpu()
        return Bags(canvas, label_matrix(drawn, CLASSES), truth=Truth(drawn, boxes))

    def _canvases(self, split: Split, digits: LabelledImages) -> list[Bags]:
        """Draw the fixed canvases of a split: digits in random order, again from the start when all were used."""
        rng = generator(self.name, self.revision, split, self.digits_per_bag)
        count = self.eval_bags[split] * self.digits_per_bag
        rounds = -(-count // len(digits))
        order = torch.cat([torch.randperm(len(digits), generator=rng) for _ in range(rounds)])[:count]
        batches = torch.split(order.view(-1, self.digits_per_bag), self.eval_batches[1])
        return [draw_canvases(digits, index, self.sizes, rng) for index in batches]
