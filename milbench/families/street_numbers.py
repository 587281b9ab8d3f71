"""Tasks of house numbers, on SVHN or on pictures in the format of SVHN.

They follow the protocol of X.-L. Li, arXiv:1811.12346, Section 5.4.
"""

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from milbench._utils.devices import to_device
from milbench._utils.seeding import generator
from milbench.contracts.bags import Bags, Origin, Truth, label_matrix
from milbench.contracts.network import NetworkMaker
from milbench.contracts.problem import BagFormat, EvalSplit, Evaluation, ScoreFunction, Split
from milbench.contracts.recipe import Recipe
from milbench.contracts.task import CPU
from milbench.data import catalog, crops, digit_struct
from milbench.data.crops import CROP_SIDE, Crops, CropVariant, Protocol
from milbench.data.labelled_images import LabelledImages
from milbench.errors import UsageError, as_usage
from milbench.evaluation.evaluate import evaluate_bags
from milbench.evaluation.reading.reading_hook import ReadingHook
from milbench.families.augmentation import SIZES, augment
from milbench.families.fixed_bags import EvaluatedBags, Lazy
from milbench.families.image_task import DIGIT_NAMES, DIGITS, ImageTask
from milbench.networks.convolutional import HOUSE_NUMBERS
from milbench.networks.standardise import StandardiseImages

CROPS_PER_EVAL_BATCH = 250
CALIBRATION_CROPS = 1000
"""How many training crops choose threshold and decoder where there are none for validation."""
Parts = Literal["train", "train+extra"]
"""The parts of the data to train on. Besides `train`, SVHN has a part `extra`."""
PixelContrast = Literal["standard", "raw"]
"""Whether the pixels of each crop are standardised or left as they are."""


def number_bags(
    images: LabelledImages, rng: torch.Generator | None = None, protocol: Protocol = "ours"
) -> Bags:
    """Return N crops as bags with instances (N, 3, h, w) in [0, 1).

    The crops are augmented at random if `rng` is given. Where augmentation cuts a digit away, the
    label set still contains its class, as in the paper. Where crops are numbered, the origin of a
    bag is the number of its crop.
    """
    pixels = images.scaled()
    boxes = images.boxes
    if rng is not None and boxes is not None:
        pixels, boxes = augment(pixels, boxes, rng, protocol)
    labels = label_matrix(images.classes, DIGITS)
    truth = Truth(images.classes, boxes)
    origin = None if images.numbers is None else Origin(images.numbers)
    return Bags(pixels, labels, truth=truth, origin=origin)


class StreetNumbers(ImageTask):
    """Base class of tasks whose bags are crops of 64x64 pixels around house numbers.

    A subclass says in which folder the pictures are. The task `svhn` describes the parameters.
    """

    instances_are_ordered = True
    revision = 3
    networks: ClassVar[Mapping[str, NetworkMaker]] = HOUSE_NUMBERS
    format: BagFormat
    # Pixels from 0 to 255 are divided by it, so that they are in [0, 1).
    white = 256
    primary = "transcription_error"
    folder: ClassVar[str]
    """The folder below the data directory that holds the folders train, test and extra."""
    how_to_get: ClassVar[str]
    """How to get the data. Error messages about missing data end with it."""

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
        standardise = StandardiseImages if contrast == "standard" else None
        self.format = BagFormat(3, DIGIT_NAMES, standardise=standardise)

    @property
    def channels(self) -> int:
        return 3

    def title(self, counts: Mapping[str, int]) -> str:  # noqa: ARG002
        """Return the name of the data in reports; `counts` are the numbers of pictures by part."""
        return self.name

    def recipe(self) -> Recipe:
        # Reading all test crops takes as long as an epoch, so that they are not read after each.
        return Recipe(lr=5e-4, epochs=20, evaluate_every=10)

    def check_data(self, data_dir: Path | None) -> str:
        """Return a line with the name, the numbers and the digest of the pictures.

        Pictures that are not cropped yet are cropped first.
        """
        crops_by_part = self._crops(data_dir)
        counts = {part: len(crops) for part, crops in crops_by_part.items()}
        described = " / ".join(f"{count:,} {part}" for part, count in counts.items())
        digests = "".join(f"{part} {crops.digest}\n" for part, crops in crops_by_part.items())
        digest = hashlib.sha256(digests.encode()).hexdigest()[:16]
        return f"{self.title(counts)}, {described}, sha256 {digest}"

    def load(
        self,
        data_dir: Path | None = None,
        seed: int = 0,
        device: torch.device = CPU,
        limit: int | None = None,
    ) -> "StreetNumbersProblem":
        crops_by_part = self._crops(data_dir)
        images_by_part = {
            part: self._images(crops, device) for part, crops in crops_by_part.items()
        }
        train = images_by_part["train"]
        count = len(train)
        # Test pictures are numbered on from the training pictures, so that all numbers differ.
        test = images_by_part["test"].numbered(count)
        trained, validated = self._split(count)
        pools = self._pools(train, trained, images_by_part.get("extra"), seed)

        def batches_of(images: LabelledImages) -> Lazy[Bags]:
            return Lazy.of(images[:limit], CROPS_PER_EVAL_BATCH, number_bags)

        splits: dict[Split, EvalSplit] = {}
        calibration = None
        if self.validation:
            crops_to_validate = replace(train[validated], numbers=to_device(validated, device))
            splits["validation"] = EvalSplit((), batches_of(crops_to_validate))
        else:
            calibration = batches_of(train[trained[:CALIBRATION_CROPS]])
        splits["test"] = EvalSplit((), batches_of(test))
        side = sum(SIZES) // 2 if self.augmentation else CROP_SIDE
        return StreetNumbersProblem(
            task_name=self.name,
            seed=seed,
            format=self.format,
            typical_shape=(3, side, side),
            batch_bags=self.batch_bags,
            splits=splits,
            max_labels=max(_most_classes(crops) for crops in crops_by_part.values()),
            calibration=calibration,
            limit=limit,
            pools=pools,
            augmentation=self.augmentation,
            protocol=self.protocol,
        )

    def _images(self, crops: Crops, device: torch.device) -> LabelledImages:
        """Return crops as images on a device.

        On the CPU the pixels stay in the file until they are used.
        """
        pixels = torch.from_numpy(crops.crops).to(device)
        classes = torch.from_numpy(crops.classes).long()
        boxes = torch.from_numpy(crops.boxes)
        # The channels of a crop come last in the file, and first in an image.
        return LabelledImages(
            pixels.permute(0, 3, 1, 2), classes.to(device), self.white, boxes.to(device)
        )

    def _pools(
        self, train: LabelledImages, trained: Tensor, extra: LabelledImages | None, seed: int
    ) -> list[tuple[LabelledImages, Tensor]]:
        """Return the pools of crops to train on, each with the indices of the crops in it.

        `trained` are the indices of the pictures of `train` that are not kept to validate.
        """
        pools = [(train, trained)]
        if extra is not None:
            indices = torch.arange(len(extra))
            halves = indices[0::2], indices[1::2]
            # If there is only one extra crop, the second half is empty.
            pools += [(extra, half) for half in halves if len(half)]
        if self.protocol == "ours":
            return pools
        # By the paper's protocol a pool has one random order for all epochs of a cell.
        ordered = []
        for number, (images, index) in enumerate(pools):
            rng = generator("street numbers", "order", number, seed)
            ordered.append((images, _shuffle(index, rng)))
        return ordered

    def _split(self, count: int) -> tuple[Tensor, Tensor]:
        """Return the indices of the pictures to train on and of those to validate on.

        All seeds get the same split.
        """
        if self.validation >= count:
            raise UsageError(
                f"{self.name}: validation = {self.validation} leaves none of {count} "
                "training pictures"
            )
        rng = generator("street numbers", "validation", count)
        shuffled = torch.randperm(count, generator=rng)
        validated, trained = shuffled.tensor_split([self.validation])
        return trained.sort().values, validated.sort().values

    @as_usage()
    def _crops(self, data_dir: Path | None) -> dict[str, Crops]:
        """Return the crops of each part. Raises UsageError where a part is missing."""
        folder = catalog.data_dir(data_dir) / self.folder
        parts = ["train", "test"]
        if self.parts == "train+extra":
            parts.append("extra")
        for part in parts:
            file = folder / part / digit_struct.FILE
            if not file.exists():
                raise UsageError(f"{self.name} not found: no {file}; {self.how_to_get}")
        return {part: crops.load(folder / part, self.crop, self.protocol) for part in parts}


@dataclass(kw_only=True, eq=False, repr=False)
class StreetNumbersProblem(EvaluatedBags):
    """Crops of house numbers. The crops to train on are in one pool, or with extra in three."""

    pools: list[tuple[LabelledImages, Tensor]]
    """For each pool, images and the indices (n,) of those that belong to the pool."""
    augmentation: bool
    """Whether training crops are augmented."""
    protocol: Protocol
    """How batches are made: see `train_batches`."""

    @property
    def steps_per_epoch(self) -> int:
        """How many batches together have about as many crops as all pools."""
        count = sum(len(index) for _, index in self.pools)
        if self.protocol == "ours" and len(self.pools) == 1:
            # All crops are used, so that the last batch may be smaller than the others.
            return math.ceil(count / self.batch_bags)
        # All batches are full. For SVHN with extra there are 7,367, as in the paper.
        return max(count // self.batch_bags, 1)

    def train_batches(self, epoch: int, rng: torch.Generator) -> Iterator[Bags]:  # noqa: ARG002
        """Yield the batches of an epoch.

        Without extra, an epoch has all training crops in random order. With extra, every batch
        comes from one of three pools, each with probability 1/3: train, the extra crops of even
        index, and the extra crops of odd index. Every pool has a random order of its own, and gets
        a new one whenever it is used up.

        By the protocol `paper` a pool has one random order for all epochs. A batch is a block of
        neighbours anywhere in this order, so that in an epoch some crops occur several times and
        others not at all.
        """
        rng_of_augmentation = rng if self.augmentation else None
        batches = self._blocks(rng) if self.protocol == "paper" else self._shuffled(rng)
        for images, index in batches:
            yield number_bags(images[index], rng_of_augmentation, self.protocol)

    def _shuffled(self, rng: torch.Generator) -> Iterator[tuple[LabelledImages, Tensor]]:
        """Yield for each batch the images of its pool, and the indices (B,) of its crops.

        The crops of a pool come in random order.
        """
        if len(self.pools) == 1:
            images, index = self.pools[0]
            for batch in _shuffle(index, rng).split(self.batch_bags):
                yield images, batch
            return
        orders = [_endless(index, rng) for _, index in self.pools]
        for _ in range(self.steps_per_epoch):
            pool = int(torch.randint(len(self.pools), (), generator=rng))
            images, _ = self.pools[pool]
            batch = list(islice(orders[pool], self.batch_bags))
            yield images, torch.tensor(batch)

    def _blocks(self, rng: torch.Generator) -> Iterator[tuple[LabelledImages, Tensor]]:
        """Yield for each batch the images of its pool, and the indices (B,) of its crops.

        The crops are neighbours in the order of the pool, from a random start on.
        """
        for _ in range(self.steps_per_epoch):
            pool = int(torch.randint(len(self.pools), (), generator=rng))
            images, order = self.pools[pool]
            starts = max(len(order) - self.batch_bags, 0) + 1
            start = int(torch.randint(starts, (), generator=rng))
            yield images, order[start : start + self.batch_bags]

    def evaluate(self, score: ScoreFunction) -> Evaluation:
        """Return the metrics, with metrics of strings that are read; no crop is augmented."""
        reading = ReadingHook()
        evaluation = evaluate_bags(
            score,
            self.splits,
            self.calibration,
            reading,
            self.limit,
            self.labels_for_no_skill,
        )
        return reading.complete(evaluation)


def _most_classes(crops: Crops) -> int:
    """Return the largest number of different digits in a house number."""
    most = 0
    for row in crops.classes.tolist():
        digits = set(row) - {-1}
        most = max(most, len(digits))
    return most


def _shuffle(index: Tensor, rng: torch.Generator) -> Tensor:
    """Return the same indices in random order."""
    return index[torch.randperm(len(index), generator=rng)]


def _endless(index: Tensor, rng: torch.Generator) -> Iterator[int]:
    """Yield all indices in random order, then all again in a new random order, without end."""
    while True:
        yield from _shuffle(index, rng).tolist()
