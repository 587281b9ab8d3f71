"""House numbers: the protocol of X.-L. Li, arXiv:1811.12346, Section 5.4, on SVHN or on pictures in its format."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from milbench._utils.devices import to_device
from milbench._utils.seeding import generator
from milbench.api.bags import Bags, Origin, Truth, label_matrix
from milbench.api.network import NetworkMaker
from milbench.api.recipe import Recipe
from milbench.api.task import Evaluation, ScoreFunction
from milbench.data import catalog, crops, digit_struct
from milbench.data.crops import CROP_SIDE, Crops, CropVariant, Protocol
from milbench.data.labelled_images import LabelledImages
from milbench.errors import UsageError, as_usage
from milbench.evaluation.evaluate import EvalSplit, evaluate_bags
from milbench.evaluation.reading.metrics import ReadingHook
from milbench.families.augmentation import SIZES, augment
from milbench.families.fixed_bags import Lazy
from milbench.families.image_bags import DIGITS, ImageTask
from milbench.networks.convolutional import HOUSE_NUMBERS
from milbench.networks.standardise import StandardiseImages

CROPS_PER_EVAL_BATCH = 250
CALIBRATION_CROPS = (
    1000  # to train on, by which threshold and decoder are chosen without a validation split
)
Parts = Literal["train", "train+extra"]
PixelContrast = Literal["standard", "raw"]


def number_bags(
    images: LabelledImages, rng: torch.Generator | None = None, protocol: Protocol = "ours"
) -> Bags:
    """Return crops with boxes as bags (N, 3, h, w) in [0, 1), augmented by draws from `rng` if it is given.

    The label set stays that of the whole number where augmentation cuts a digit away, as in the paper.
    Bags have the numbers of their crops, where these are numbered.
    """
    pixels, boxes = images.scaled(), images.boxes
    if rng is not None and boxes is not None:
        pixels, boxes = augment(pixels, boxes, rng, protocol)
    labels, truth = label_matrix(images.classes, DIGITS), Truth(images.classes, boxes)
    origin = None if images.numbers is None else Origin(images.numbers)
    return Bags(pixels, labels, truth=truth, origin=origin)


class StreetNumbers(ImageTask):
    """Base class of tasks whose bags are crops of 64x64 pixels around house numbers; a subclass names the folder."""

    instances_are_ordered = True
    revision = 3
    num_classes = DIGITS
    networks: ClassVar[Mapping[str, NetworkMaker]] = HOUSE_NUMBERS
    inputs = 3
    white = 256  # so that pixels are in [0, 1)
    primary = "transcription_error"
    folder: ClassVar[str]  # of train, test and extra, below the data directory
    how_to_get: ClassVar[str]  # the data, for the error message where they are missing

    def __init__(
        self,
        crop: CropVariant = "paper",
        parts: Parts = "train",
        contrast: PixelContrast = "standard",
        validation: Annotated[int, Field(ge=0)] = 1000,
        augmentation: bool = True,
        batch_bags: Annotated[int, Field(ge=1)] = 32,
        protocol: Protocol = "ours",
    ) -> None:
        self.crop: CropVariant = crop
        self.parts: Parts = parts
        self.contrast = contrast
        self.validation = validation
        self.augmentation = augmentation
        self.batch_bags = batch_bags
        self.protocol: Protocol = protocol
        self.typical_size = (sum(SIZES) // 2 if augmentation else CROP_SIDE,) * 2

    def title(self, counts: Mapping[str, int]) -> str:  # noqa: ARG002
        """Return the name of the data in reports, by the number of pictures of each part."""
        return self.name

    def recipe(self) -> Recipe:
        return Recipe(
            lr=5e-4, epochs=20, evaluate_every=10
        )  # to read all test crops takes as long as an epoch

    def check_data(self, data_dir: Path | None) -> str:
        """Return the name, numbers and digest of the pictures, which are cropped now if they were not before."""
        crops = self._crops(data_dir)
        digests = "".join(f"{part} {cropped.digest}\n" for part, cropped in crops.items())
        parts = " / ".join(f"{len(cropped):,} {part}" for part, cropped in crops.items())
        title = self.title({part: len(cropped) for part, cropped in crops.items()})
        return f"{title}, {parts}, sha256 {hashlib.sha256(digests.encode()).hexdigest()[:16]}"

    def prepare(self, data_dir: Path | None, device: torch.device) -> None:
        parts = self._crops(data_dir)
        numbers = {
            part: LabelledImages(  # on the CPU the pixels stay in the file until they are used
                torch.from_numpy(crops.crops).to(device).permute(0, 3, 1, 2),
                torch.from_numpy(crops.classes).long().to(device),
                self.white,
                torch.from_numpy(crops.boxes).to(device),
            )
            for part, crops in parts.items()
        }
        train, count = numbers["train"], len(numbers["train"])
        # The pictures of train count from 0 on, then those of test.
        test = numbers["test"].numbered(count)
        self.max_labels = max(
            len({*row} - {-1}) for crops in parts.values() for row in crops.classes.tolist()
        )
        if self.validation >= count:
            raise UsageError(
                f"{self.name}: validation = {self.validation} leaves none of {count} training pictures"
            )
        shuffled = torch.randperm(
            count, generator=generator("street numbers", "validation", count)
        )  # for all seeds
        validated, trained = (
            part.sort().values for part in shuffled.tensor_split([self.validation])
        )
        self._pools = [(train, trained)]
        if extra := numbers.get("extra"):
            self._pools += [
                (extra, torch.arange(start, len(extra), 2))
                for start in (0, 1)
                if start < len(extra)
            ]
        if self.protocol == "paper":
            rngs = [
                generator("street numbers", "order", n, self.seed) for n in range(len(self._pools))
            ]
            self._pools = [
                (images, _shuffle(ids, rng))
                for (images, ids), rng in zip(self._pools, rngs, strict=True)
            ]
        self.calibration = (
            None if self.validation else self._batches(train[trained[:CALIBRATION_CROPS]])
        )
        self.eval_splits = {}
        if self.validation:
            crops_to_validate = replace(train[validated], numbers=to_device(validated, device))
            self.eval_splits["validation"] = EvalSplit((), self._batches(crops_to_validate))
        self.eval_splits["test"] = EvalSplit((), self._batches(test))

    @property
    def steps_per_epoch(self) -> int:
        """Batches with every training crop once; with extra, or by `paper`, full ones: the paper's 7,367 for SVHN."""
        count = sum(len(index) for _, index in self._pools)
        whole = self.protocol == "ours" and len(self._pools) == 1
        return -(-count // self.batch_bags) if whole else max(count // self.batch_bags, 1)

    def train_batches(self, epoch: int, rng: torch.Generator) -> Iterator[Bags]:  # noqa: ARG002
        """Yield the batches of an epoch.

        Without extra, the training crops come in random order. With extra, every batch comes from one of three pools,
        each with probability 1/3: train, the extra crops of even index, and those of odd index. Every pool has a random
        order of its own, drawn again whenever the pool is used up. By the protocol `paper` a batch is a block of
        neighbours anywhere in the order of its pool, which is drawn once a cell: in an epoch some crops come several
        times and others not at all.
        """
        chance = rng if self.augmentation else None
        for images, index in self._blocks(rng) if self.protocol == "paper" else self._shuffled(rng):
            yield number_bags(images[index], chance, self.protocol)

    def _shuffled(self, rng: torch.Generator) -> Iterator[tuple[LabelledImages, Tensor]]:
        if len(self._pools) == 1:
            images, index = self._pools[0]
            yield from ((images, batch) for batch in _shuffle(index, rng).split(self.batch_bags))
            return
        orders = [_endless(index, rng) for _, index in self._pools]
        for _ in range(self.steps_per_epoch):
            pool = int(torch.randint(len(self._pools), (), generator=rng))
            yield self._pools[pool][0], torch.tensor(list(islice(orders[pool], self.batch_bags)))

    def _blocks(self, rng: torch.Generator) -> Iterator[tuple[LabelledImages, Tensor]]:
        for _ in range(self.steps_per_epoch):
            images, order = self._pools[int(torch.randint(len(self._pools), (), generator=rng))]
            start = int(torch.randint(max(len(order) - self.batch_bags, 0) + 1, (), generator=rng))
            yield images, order[start : start + self.batch_bags]

    def standardise(self) -> StandardiseImages | None:
        return StandardiseImages() if self.contrast == "standard" else None

    def evaluate(self, score: ScoreFunction) -> Evaluation:
        """Return the metrics of the crops as they are, none augmented; the decoder is chosen on validation strings."""
        reading = ReadingHook()
        limit, labels = self.evaluation_limit, self.training_labels
        return reading.complete(
            evaluate_bags(score, self.eval_splits, self.calibration, reading, limit, labels)
        )

    def _batches(self, images: LabelledImages) -> Lazy[Bags]:
        return Lazy.of(images[: self.evaluation_limit], CROPS_PER_EVAL_BATCH, number_bags)

    @as_usage()
    def _crops(self, data_dir: Path | None) -> dict[str, Crops]:
        place = catalog.data_dir(data_dir) / self.folder
        parts = ("train", "test") if self.parts == "train" else ("train", "test", "extra")
        for part in parts:
            if not (place / part / digit_struct.FILE).exists():
                raise UsageError(
                    f"{self.name} not found: no {place / part / digit_struct.FILE}; {self.how_to_get}"
                )
        return {part: crops.load(place / part, self.crop, self.protocol) for part in parts}


def _shuffle(index: Tensor, rng: torch.Generator) -> Tensor:
    return index[torch.randperm(len(index), generator=rng)]


def _endless(index: Tensor, rng: torch.Generator) -> Iterator[int]:
    while True:
        yield from _shuffle(index, rng).tolist()
