"""Digits nested on a canvas: the protocol of X.-L. Li, arXiv:1811.12346, Section 5.2, for digits of any size."""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from milbench._utils.devices import all_to_device
from milbench._utils.seeding import generator
from milbench.api.bags import Bags, Origin, Truth, label_matrix
from milbench.api.task import Split
from milbench.data.labelled_images import ImageSplits, LabelledImages
from milbench.errors import UsageError
from milbench.evaluation.evaluate import EvalSplit
from milbench.families.fixed_bags import Lazy, draw_in_rounds
from milbench.families.image_bags import DIGITS, ImageTask, single_instance_bags


def nest_digits(
    digits: LabelledImages, index: Tensor, tops: Tensor, lefts: Tensor, height: int, width: int
) -> Bags:
    """Return bags (B, 1, height, width) of digits `index` (B, M) at `tops` and `lefts`, added up, to 1 at most."""
    device, (h, w) = digits.pixels.device, digits.pixels.shape[-2:]
    index, tops, lefts = all_to_device([index, tops, lefts], device)
    drawn = digits[index]
    rows = tops.unsqueeze(-1) + torch.arange(h, device=device)
    columns = lefts.unsqueeze(-1) + torch.arange(w, device=device)
    pixels, patches = (rows * width).unsqueeze(-1) + columns.unsqueeze(-2), drawn.scaled()
    canvases = patches.new_zeros(len(index), height * width)
    # One digit of every bag at a time: no pixel is written twice in a step, so a sum has the same order on any device.
    for m in range(index.shape[1]):
        canvases.scatter_add_(1, pixels[:, m].flatten(1), patches[:, m].flatten(1))
    boxes = torch.stack([lefts, tops, lefts + w, tops + h], dim=-1).float()
    labels = label_matrix(drawn.classes, DIGITS)
    return Bags(
        canvases.clamp_(max=1).view(-1, 1, height, width), labels, truth=Truth(drawn.classes, boxes)
    )


def draw_canvases(
    digits: LabelledImages, index: Tensor, sizes: tuple[int, int], rng: torch.Generator
) -> Bags:
    """Return bags of digits `index` (B, M) anywhere on canvases of one size, sides uniform on sizes[0]..sizes[1]."""
    h, w = digits.pixels.shape[-2:]
    height, width = torch.randint(sizes[0], sizes[1] + 1, (2,), generator=rng).tolist()
    tops = torch.randint(height - h + 1, index.shape, generator=rng)
    lefts = torch.randint(width - w + 1, index.shape, generator=rng)
    return nest_digits(digits, index, tops, lefts, height, width)


def single_digits(digits: LabelledImages) -> Bags:
    """Return every digit as a bag by itself; it is an item, as canvases show it as well."""
    bags = single_instance_bags(digits, DIGITS)
    if digits.numbers is None:
        return bags
    return replace(bags, origin=Origin(digits.numbers, items=digits.numbers.unsqueeze(1)))


class NestedDigits(ImageTask):
    """Base class of tasks whose bag is a canvas with a few digits at random places, and its label set their classes.

    A subclass adds the digits, the canvas sizes and the networks, which are evaluated on fixed canvases and on single
    digits; `extended-digits` describes the parameters.
    """

    sizes: tuple[int, int]  # smallest and largest side of a canvas, in pixels
    digit_side: ClassVar[int] = 1  # in pixels, which says how many fit onto a canvas
    eval_bags: ClassVar[dict[Split, int]]  # how many fixed canvases each split has
    eval_batches: ClassVar[
        tuple[int, int]
    ]  # how many single digits, and canvases, are scored at once
    canvas_axes: tuple[
        object, ...
    ] = ()  # what fixed canvases depend on besides task, split and number of digits
    num_classes = DIGITS
    primary = "instance_error"
    chance = 1 - 1 / DIGITS

    def __init__(
        self, digits_per_bag: int, batch_bags: int = 32, bags_per_epoch: int | None = None
    ) -> None:
        side, digit = self.sizes[1], self.digit_side
        if digits_per_bag > (most := (side // digit) ** 2):
            fit = f"at most {most} digits of {digit} pixels fit side by side on a canvas of {side} pixels"
            raise UsageError(f"digits_per_bag = {digits_per_bag} is too large: {fit}")
        self.digits_per_bag = digits_per_bag
        self.batch_bags = batch_bags
        self.bags_per_epoch = bags_per_epoch
        self.max_labels = min(DIGITS, digits_per_bag)
        self.typical_size = (sum(self.sizes) // 2,) * 2

    @abstractmethod
    def load(self, data_dir: Path | None) -> ImageSplits:
        """Return the digits, on the CPU."""

    def prepare(self, data_dir: Path | None, device: torch.device) -> None:
        splits = self.load(data_dir).to(device)
        self._train = splits.train
        self.training_count = len(splits.train) // self.digits_per_bag
        # Without a validation split, thresholds are chosen on canvases of training digits, and nothing is reported.
        self.calibration = None if splits.validation else self._canvases("validation", splits.train)
        self.eval_splits = {}
        for split, digits in splits.evaluated.items():
            single = Lazy.of(digits[: self.evaluation_limit], self.eval_batches[0], single_digits)
            self.eval_splits[split] = EvalSplit(single, self._canvases(split, digits))

    def train_batches(self, epoch: int, rng: torch.Generator) -> Iterator[Bags]:  # noqa: ARG002
        """Yield the canvases of an epoch, which hold every training digit once before any again.

        Without `bags_per_epoch` they hold each once, except for the few, others in each epoch, that fill no bag.
        """
        bags = self.bags_per_epoch or self.training_count
        order = draw_in_rounds(len(self._train), bags * self.digits_per_bag, rng)
        for index in order.view(bags, self.digits_per_bag).split(self.batch_bags):
            yield draw_canvases(self._train, index, self.sizes, rng)

    def _canvases(self, split: Split, digits: LabelledImages) -> list[Bags]:
        """Draw the fixed canvases of a split: every digit once in random order before any digit again."""
        rng = generator(self.name, self.revision, *self.canvas_axes, split, self.digits_per_bag)
        count = self.limited(self.eval_bags[split]) * self.digits_per_bag
        order = draw_in_rounds(len(digits), count, rng).view(-1, self.digits_per_bag)
        batches = []
        for places in torch.arange(len(order)).split(self.eval_batches[1]):
            canvases = draw_canvases(digits, order[places], self.sizes, rng)
            batches.append(replace(canvases, origin=_origin(digits, places, order[places])))
        return batches


def _origin(digits: LabelledImages, bags: Tensor, index: Tensor) -> Origin | None:
    """Return the origin of canvases `bags` (B,) with digits `index` (B, M).

    It is None for digits without numbers.
    """
    if digits.numbers is None:
        return None
    bags, index = all_to_device([bags, index], digits.numbers.device)
    return Origin(bags, items=digits.numbers[index])
