"""House numbers: the protocol of X.-L. Li, arXiv:1811.12346, Section 5.4, on SVHN or on pictures in its format.

A bag is a crop of 64x64 pixels around one house number, and its label set holds the digits in it. Their order, their
number and their places are used in evaluation alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from milbench._utils.seeding import generator
from milbench.api.bags import Bags, Truth, label_matrix
from milbench.api.network import NetworkMaker
from milbench.api.recipe import Recipe
from milbench.api.task import Evaluation, ScoreFunction
from milbench.data import catalog, crops, digit_struct
from milbench.data.crops import CROP_SIDE, Crops, CropVariant, Protocol
from milbench.data.labelled_images import LabelledImages
from milbench.errors import UsageError, as_usage
from milbench.evaluation.evaluate import EvalSplit, evaluate_bags
from milbench.evaluation.reading.metrics import ReadingMetrics
from milbench.families.augmentation import SIZES, augment
from milbench.families.fixed_bags import Lazy
from milbench.families.image_bags import DIGITS, ImageTask
from milbench.networks.house_numbers import HOUSE_NUMBERS
from milbench.networks.standardise import StandardiseImages

FIGURE_1 = 8
"""How many crops Figure 1 shows."""
CROPS_PER_EVAL_BATCH = 250
CALIBRATION_CROPS = 1000
"""How many training crops the threshold is chosen on, and the decoder learnt from, without a validation split."""
Parts = Literal["train", "train+extra"]
PixelContrast = Literal["standard", "raw"]


def number_images(crops: Crops, device: torch.device) -> LabelledImages:
    """Return crops on a device as images (N, 3, 64, 64); on the CPU the pixels stay in the file until they are used."""
    return LabelledImages(
        torch.from_numpy(crops.crops).to(device).permute(0, 3, 1, 2),
        torch.from_numpy(crops.classes).long().to(device),
        StreetNumbers.white,
        torch.from_numpy(crops.boxes).to(device),
    )


def number_bags(images: LabelledImages, rng: torch.Generator | None = None, protocol: Protocol = "ours") -> Bags:
    """Return crops with boxes as bags (N, 3, h, w) in [0, 1), augmented by draws from `rng` if it is given.

    The label set stays that of the whole number where augmentation cuts a digit away, as in the paper.
    """
    pixels, boxes = images.scaled(), images.boxes
    if boxes is None:
        raise ValueError("crops of house numbers need the boxes of their digits")
    if rng is not None:
        pixels, boxes = augment(pixels, boxes, rng, protocol)
    return Bags(pixels, label_matrix(images.classes, DIGITS), truth=Truth(images.classes, boxes))


class StreetNumbers(ImageTask):
    """Base class of tasks with house numbers; a subclass names the folder of the pictures."""

    instances_are_ordered = True
    revision = 3
    num_classes = DIGITS
    networks: ClassVar[Mapping[str, NetworkMaker]] = HOUSE_NUMBERS
    inputs = 3
    white = 256  # so that pixels are in [0, 1)
    primary = "transcription_error"
    figures = ("1", "4")
    """Of arXiv:1811.12346, see `milbench.inference.paper_figures.PaperTask`."""
    folder: ClassVar[str]
    """Folder of train, test and extra below the data directory."""
    instead: ClassVar[str]
    """How to get the data, for the error message where they are missing."""

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
        """Return one-cycle AdamW in half precision; to read all test crops takes as long as an epoch."""
        return Recipe(lr=5e-4, epochs=20, evaluate_every=10)

    def check_data(self, data_dir: Path | None) -> str:
        """Return the name, numbers and digest of the pictures; they are cropped now if they were not before."""
        crops = self._crops(data_dir)
        counts = {part: len(cropped) for part, cropped in crops.items()}
        digests = "".join(f"{part} {cropped.digest}\n" for part, cropped in crops.items())
        parts = " / ".join(f"{count:,} {part}" for part, count in counts.items())
        return f"{self.title(counts)}, {parts}, sha256 {hashlib.sha256(digests.encode()).hexdigest()[:16]}"

    def prepare(self, data_dir: Path | None, device: torch.device) -> None:
        """Put the crops onto `device` and split off house numbers for validation: always the same ones."""
        parts = self._crops(data_dir)
        numbers = {part: number_images(crops, device) for part, crops in parts.items()}
        train, self._test = numbers["train"], numbers["test"]
        self.max_labels = max(crops.most_classes() for crops in parts.values())
        if self.validation >= len(train):
            raise UsageError(
                f"{self.name}: validation = {self.validation} leaves none of {len(train)} training pictures"
            )
        shuffled = torch.randperm(len(train), generator=generator("street numbers", "validation", len(train)))
        held, trained = (part.sort().values for part in shuffled.tensor_split([self.validation]))
        self._pools = [(train, trained)]
        if extra := numbers.get("extra"):
            self._pools += [(extra, torch.arange(start, len(extra), 2)) for start in (0, 1) if start < len(extra)]
        if self.protocol == "paper":
            for n, (images, index) in enumerate(self._pools):
                rng = generator("street numbers", "order", n, self.seed)
                self._pools[n] = images, index[torch.randperm(len(index), generator=rng)]
        self.calibration = None if self.validation else self._batches(train, trained[:CALIBRATION_CROPS])
        self.eval_splits = {"validation": EvalSplit((), self._batches(train, held))} if self.validation else {}
        self.eval_splits["test"] = EvalSplit((), self._batches(self._test))

    @property
    def steps_per_epoch(self) -> int:
        """Batches with every training crop once; with extra, or by `paper`, as many full ones as there are.

        That is the paper's 7,367 for SVHN with no validation split.
        """
        count = sum(len(index) for _, index in self._pools)
        whole = self.protocol == "ours" and len(self._pools) == 1
        return -(-count // self.batch_bags) if whole else max(count // self.batch_bags, 1)

    def train_batches(self, epoch: int, rng: torch.Generator) -> Iterator[Bags]:  # noqa: ARG002
        """Yield the batches of an epoch.

        Without extra, the training crops come in random order. With extra, every batch comes from one of three pools,
        each with probability 1/3: train, the extra crops of even index, and those of odd index. Every pool has a random
        order of its own, which is drawn again whenever the pool is used up.

        By the protocol `paper` a batch is a block of neighbours in the order of its pool, which is drawn once a cell,
        and begins anywhere: in an epoch some crops come several times and others not at all.
        """
        chance = rng if self.augmentation else None
        for images, index in self._blocks(rng) if self.protocol == "paper" else self._shuffled(rng):
            yield number_bags(images[index], chance, self.protocol)

    def _shuffled(self, rng: torch.Generator) -> Iterator[tuple[LabelledImages, Tensor]]:
        if len(self._pools) == 1:
            images, index = self._pools[0]
            for batch in index[torch.randperm(len(index), generator=rng)].split(self.batch_bags):
                yield images, batch
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
        read = ReadingMetrics()
        evaluated = evaluate_bags(
            score, self.eval_splits, self.calibration, read, self.evaluation_limit, self.training_labels
        )
        reading = read.evaluation()
        outcomes = {**(evaluated.outcomes or {}), **(reading.outcomes or {})}
        return replace(
            reading, metrics=evaluated.metrics | reading.metrics, outcomes=outcomes, reliability=evaluated.reliability
        )

    def figure_bags(self, rng: torch.Generator) -> list[Bags]:
        """Return the test crops of Figure 1."""
        return [number_bags(self._test[torch.randperm(len(self._test), generator=rng)[:FIGURE_1]])]

    def figure_pictures(self, data_dir: Path | None) -> list[tuple[Path, tuple[int, ...]]]:
        """Return the files of all whole test pictures, with the digits in each; needs no `prepare`."""
        folder = catalog.data_dir(data_dir) / self.folder / "test"
        return [(folder / record.name, record.classes) for record in digit_struct.read(folder / digit_struct.FILE)]

    def _batches(self, images: LabelledImages, which: Tensor | None = None) -> Lazy[Bags]:
        if self.evaluation_limit is not None:
            which = (torch.arange(len(images)) if which is None else which)[: self.evaluation_limit]
        return Lazy.of(images, CROPS_PER_EVAL_BATCH, number_bags, which)

    @as_usage()
    def _crops(self, data_dir: Path | None) -> dict[str, Crops]:
        place = catalog.data_dir(data_dir) / self.folder
        parts = ("train", "test") if self.parts == "train" else ("train", "test", "extra")
        for part in parts:
            if not (place / part / digit_struct.FILE).exists():
                raise UsageError(f"{self.name} not found: no {place / part / digit_struct.FILE}; {self.instead}")
        return {part: crops.load(place / part, self.crop, self.protocol) for part in parts}


def _endless(index: Tensor, rng: torch.Generator) -> Iterator[int]:
    while True:
        yield from index[torch.randperm(len(index), generator=rng)].tolist()
