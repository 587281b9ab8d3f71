"""Tasks of digits nested on a canvas, for digits of any size.

They follow the protocol of X.-L. Li, arXiv:1811.12346, Section 5.2.
"""

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from milbench._utils.devices import all_to_device
from milbench._utils.seeding import generator
from milbench.contracts.bags import Bags, Origin, Truth, label_matrix
from milbench.contracts.problem import BagFormat, EvalSplit, Split
from milbench.contracts.task import CPU
from milbench.data.labelled_images import ImageSplits, LabelledImages
from milbench.errors import UsageError
from milbench.families.fixed_bags import EvaluatedBags, Lazy, draw_in_rounds, limited
from milbench.families.image_task import (
    DIGIT_NAMES,
    DIGITS,
    ImageTask,
    single_instance_bags,
)


def nest_digits(
    digits: LabelledImages, index: Tensor, tops: Tensor, lefts: Tensor, height: int, width: int
) -> Bags:
    """Return B canvases with M digits each as bags (B, 1, height, width).

    The pixels of overlapping digits are added up, to 1 at most.

    Args:
        digits: the images of digits.
        index: (B, M), which digits each canvas has.
        tops: (B, M), the first row of each digit on its canvas.
        lefts: (B, M), the first column of each digit on its canvas.
        height: of all canvases, in pixels.
        width: of all canvases, in pixels.
    """
    device = digits.pixels.device
    h, w = digits.pixels.shape[-2:]
    index, tops, lefts = all_to_device([index, tops, lefts], device)
    chosen = digits[index]
    rows = tops.unsqueeze(-1) + torch.arange(h, device=device)
    columns = lefts.unsqueeze(-1) + torch.arange(w, device=device)
    # (B, M, h, w): the pixel of the canvas for each pixel of a digit, counted row by row.
    canvas_pixels = (rows * width).unsqueeze(-1) + columns.unsqueeze(-2)
    patches = chosen.scaled()
    canvases = patches.new_zeros(len(index), height * width)
    # One digit of every canvas at a time: within a step no pixel is written twice, so that sums are
    # added in the same order on any device.
    for m in range(index.shape[1]):
        canvases.scatter_add_(1, canvas_pixels[:, m].flatten(1), patches[:, m].flatten(1))
    instances = canvases.clamp_(max=1).view(-1, 1, height, width)
    boxes = torch.stack([lefts, tops, lefts + w, tops + h], dim=-1).float()
    labels = label_matrix(chosen.classes, DIGITS)
    return Bags(instances, labels, truth=Truth(chosen.classes, boxes))


def draw_canvases(
    digits: LabelledImages, index: Tensor, side_range: tuple[int, int], rng: torch.Generator
) -> Bags:
    """Return canvases with digits at random positions, as bags.

    All canvases have one size. Its height and width are uniform on `side_range`, from the smallest
    to the largest side in pixels. `index` (B, M) says which digits each canvas has.
    """
    smallest, largest = side_range
    h, w = digits.pixels.shape[-2:]
    height, width = torch.randint(smallest, largest + 1, (2,), generator=rng).tolist()
    tops = torch.randint(height - h + 1, index.shape, generator=rng)
    lefts = torch.randint(width - w + 1, index.shape, generator=rng)
    return nest_digits(digits, index, tops, lefts, height, width)


def single_digits(digits: LabelledImages) -> Bags:
    """Return every digit as a bag of one instance.

    Where digits are numbered, the number is the item of the bag, as canvases show the digit too.
    """
    bags = single_instance_bags(digits, DIGITS)
    if digits.numbers is None:
        return bags
    return replace(bags, origin=Origin(digits.numbers, items=digits.numbers.unsqueeze(1)))


class NestedDigits(ImageTask):
    """Base class of tasks whose bags are canvases with a few digits at random positions.

    The label set of a canvas is the classes of its digits. Networks are evaluated on fixed canvases
    and on single digits. A subclass adds the digits, the canvas sizes and the networks; the task
    `extended-digits` describes the parameters.
    """

    side_range: tuple[int, int]
    """The smallest and the largest side of a canvas, in pixels."""
    digit_side: ClassVar[int] = 1
    """The side of a digit in pixels, by which the constructor checks how many fit on a canvas."""
    eval_bags: ClassVar[dict[Split, int]]
    """How many fixed canvases each split has."""
    single_at_once: ClassVar[int]
    """How many single digits are scored at once."""
    bags_at_once: ClassVar[int]
    """How many canvases are scored at once."""
    format: BagFormat = BagFormat(inputs=1, class_names=DIGIT_NAMES)
    primary = "instance_error"
    chance = 1 - 1 / DIGITS

    def __init__(
        self, digits_per_bag: int, batch_bags: int = 32, bags_per_epoch: int | None = None
    ) -> None:
        _, side = self.side_range
        digit = self.digit_side
        digits_in_a_row = side // digit
        most = digits_in_a_row**2
        if digits_per_bag > most:
            reason = (
                f"at most {most} digits of {digit} pixels fit side by side on a canvas of "
                f"{side} pixels"
            )
            raise UsageError(f"digits_per_bag = {digits_per_bag} is too large: {reason}")
        self.digits_per_bag = digits_per_bag
        self.batch_bags = batch_bags
        self.bags_per_epoch = bags_per_epoch

    @property
    def channels(self) -> int:
        return 1

    @abstractmethod
    def digits(self, data_dir: Path | None, seed: int) -> ImageSplits:
        """Return the digits to train and to evaluate on for a seed, on the CPU."""

    def canvas_key(self, seed: int) -> tuple[object, ...]:  # noqa: ARG002
        """Return what the fixed canvases of a split depend on, such as the seed.

        They always depend on the task, the split and the number of digits a canvas.
        """
        return ()

    def load(
        self,
        data_dir: Path | None = None,
        seed: int = 0,
        device: torch.device = CPU,
        limit: int | None = None,
    ) -> "NestedDigitsProblem":
        digits = self.digits(data_dir, seed).to(device)
        splits = {}
        for split, evaluated in digits.evaluated.items():
            single = Lazy.of(evaluated[:limit], self.single_at_once, single_digits)
            splits[split] = EvalSplit(single, self._canvases(split, evaluated, seed, limit))
        calibration = None
        if digits.validation is None:
            # Thresholds are then chosen on canvases of training digits. No metric of these
            # canvases is reported.
            calibration = self._canvases("validation", digits.train, seed, limit)
        # By default an epoch uses every training digit once.
        bags_per_epoch = self.bags_per_epoch or len(digits.train) // self.digits_per_bag
        mean_side = sum(self.side_range) // 2
        return NestedDigitsProblem(
            task_name=self.name,
            seed=seed,
            format=self.format,
            typical_shape=(1, mean_side, mean_side),
            batch_bags=self.batch_bags,
            splits=splits,
            max_labels=min(DIGITS, self.digits_per_bag),
            calibration=calibration,
            limit=limit,
            digits=digits.train,
            side_range=self.side_range,
            digits_per_bag=self.digits_per_bag,
            bags_per_epoch=bags_per_epoch,
        )

    def _canvases(
        self, split: Split, digits: LabelledImages, seed: int, limit: int | None
    ) -> list[Bags]:
        """Return the fixed canvases of a split.

        They use every digit once, in random order, before any digit is used again.
        """
        key = self.canvas_key(seed)
        rng = generator(self.name, self.revision, *key, split, self.digits_per_bag)
        bags = limited(self.eval_bags[split], limit)
        order = draw_in_rounds(len(digits), bags * self.digits_per_bag, rng)
        digits_of_bags = order.view(bags, self.digits_per_bag)
        batches = []
        for numbers in torch.arange(bags).split(self.bags_at_once):
            index = digits_of_bags[numbers]
            canvases = draw_canvases(digits, index, self.side_range, rng)
            batches.append(replace(canvases, origin=_origin(digits, numbers, index)))
        return batches


@dataclass(kw_only=True, eq=False, repr=False)
class NestedDigitsProblem(EvaluatedBags):
    """Canvases of digits: every epoch trains on new canvases, the evaluated ones stay the same."""

    digits: LabelledImages
    """The digits to train on."""
    side_range: tuple[int, int]
    """The smallest and the largest side of a canvas, in pixels."""
    digits_per_bag: int
    """How many digits a canvas has."""
    bags_per_epoch: int
    """How many canvases an epoch trains on."""

    @property
    def steps_per_epoch(self) -> int:
        return math.ceil(self.bags_per_epoch / self.batch_bags)

    def train_batches(self, epoch: int, rng: torch.Generator) -> Iterator[Bags]:  # noqa: ARG002
        """Yield the canvases of an epoch in batches.

        They use every training digit once before any digit is used again. Where the task has no
        `bags_per_epoch`, an epoch uses each digit once. A few digits may be left that are too few
        for a canvas; they differ from epoch to epoch.
        """
        bags = self.bags_per_epoch
        order = draw_in_rounds(len(self.digits), bags * self.digits_per_bag, rng)
        for index in order.view(bags, self.digits_per_bag).split(self.batch_bags):
            yield draw_canvases(self.digits, index, self.side_range, rng)


def _origin(digits: LabelledImages, bags: Tensor, index: Tensor) -> Origin | None:
    """Return the origin of canvases; None where digits are not numbered.

    `bags` (B,) are the numbers of the canvases, and `index` (B, M) says which digits they have.
    """
    if digits.numbers is None:
        return None
    bags, index = all_to_device([bags, index], digits.numbers.device)
    return Origin(bags, items=digits.numbers[index])
