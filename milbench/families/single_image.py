"""Pictures that show one thing each: what the tasks share whose bag is a whole image with one label."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from milbench._utils.images import colours, grey
from milbench.api.bags import Bags, Truth, label_matrix
from milbench.api.task import Network, ScoreFunction, Task
from milbench.errors import UsageError
from milbench.evaluation import metrics
from milbench.evaluation.evaluate import THRESHOLD
from milbench.networks.convolutional import AllConvolutional, Classifier, Layer, output_size

if TYPE_CHECKING:
    from PIL.Image import Image

CLASSES = 10
WHITE = 255
EVAL_BATCH = 500
CALIBRATION = 5000
"""Without a validation split, the threshold of the set error is chosen on so many training images."""


@dataclass(frozen=True, slots=True)
class Images:
    """Pictures and what they show: pixels (N, channels, h, w) uint8, classes (N,) int64."""

    pixels: Tensor
    classes: Tensor

    def __len__(self) -> int:
        return len(self.classes)

    def __getitem__(self, index: slice | Tensor) -> Images:
        return Images(self.pixels[index], self.classes[index])

    def to(self, device: torch.device) -> Images:
        """Return the same images on `device`."""
        return Images(self.pixels.to(device), self.classes.to(device))

    def bags(self) -> Bags:
        """Return every image as a bag of one instance that fills it, pixels in [0, 1]."""
        height, width = self.pixels.shape[-2:]
        classes = self.classes.unsqueeze(1)
        boxes = torch.tensor([0.0, 0.0, width, height], device=classes.device).expand(len(self), 1, 4)
        return Bags(self.pixels / WHITE, label_matrix(classes, CLASSES), truth=Truth(classes, boxes))

    def batches(self) -> Iterator[Bags]:
        """Yield all of them in order."""
        for start in range(0, len(self), EVAL_BATCH):
            yield self[start : start + EVAL_BATCH].bags()


class OneInstanceImages(Task):
    """One image a bag, one class an image: what is lost where nobody says that there is one instance and no more.

    X.-L. Li, arXiv:1811.12346, 2018, Section 5.1. A loss of head "class" gets the paper's baseline network, which has
    less padding, one position and no background.
    """

    num_classes = CLASSES
    chance = 1 - 1 / CLASSES
    channels: ClassVar[int]
    side: ClassVar[int]
    """Of an image, in pixels."""
    batch_bags: ClassVar[int]

    def __init__(self, validation: Annotated[int, Field(ge=0)] = 5000, any_data: bool = False) -> None:
        self.validation = validation
        self.any_data = any_data
        self.positions = output_size(self.layers(), self.side) ** 2

    @abstractmethod
    def layers(self) -> tuple[Layer, ...]:
        """Return the layers of the network of the likelihood."""

    @abstractmethod
    def classifier_layers(self) -> tuple[Layer, ...]:
        """Return the layers of the baseline."""

    @abstractmethod
    def load(self, data_dir: Path | None) -> tuple[Images, Images]:
        """Return the images to train on and those to test on, on the CPU."""

    def augmented(self, pixels: Tensor, rng: torch.Generator) -> Tensor:  # noqa: ARG002
        """Return pixels (B, channels, h, w) as a training batch shows them."""
        return pixels

    def prepare(self, data_dir: Path | None, device: torch.device) -> None:
        """Load the images onto `device` and keep the last training images for validation."""
        train, test = (images.to(device) for images in self.load(data_dir))
        kept = len(train) - self.validation
        if kept < 1:
            raise UsageError(f"{self.name}: validation = {self.validation} leaves none of {len(train)} training images")
        self._train, self._validation, self._test = train[:kept], train[kept:], test

    @property
    def steps_per_epoch(self) -> int:
        """Every training image once, the last batch being smaller."""
        return -(-len(self._train) // self.batch_bags)

    def train_batches(self, epoch: int, rng: torch.Generator) -> Iterator[Bags]:  # noqa: ARG002
        """Yield every training image once."""
        for index in torch.randperm(len(self._train), generator=rng).split(self.batch_bags):
            drawn = self._train[index.to(self._train.classes.device)]
            yield Images(self.augmented(drawn.pixels, rng), drawn.classes).bags()

    def network(self, seed: int) -> Network:
        """Return the paper's network, of several positions."""
        return AllConvolutional(self.layers(), self.channels, seed)

    def classifier(self, seed: int) -> Network:
        """Return the paper's baseline, of one position."""
        return Classifier(self.classifier_layers(), self.channels, seed)

    def instances_from(self, picture: Image) -> Tensor:
        """Return the picture in grey or in colours, as the images are: (channels, H, W) in [0, 1]."""
        return torch.from_numpy(grey(picture) if self.channels == 1 else colours(picture)) / WHITE

    def evaluate(self, score: ScoreFunction) -> dict[str, float]:
        """Return how often the wrong class is named, and what the presence scores say of all classes.

        Where an instance is found is not asked: every position is on it.
        """
        asked = {"validation": self._validation, "test": self._test} if self.validation else {"test": self._test}
        values = {}
        answers = {split: _answers(score, images) for split, images in asked.items()}
        chosen_on = answers["validation"] if self.validation else _answers(score, self._train[:CALIBRATION])
        values[THRESHOLD] = threshold = metrics.best_threshold(*chosen_on[1:])
        for split, (classes, presence, labels) in answers.items():
            values[f"{split}/instance_error"] = metrics.instance_error(classes, labels.int().argmax(dim=1))
            values[f"{split}/set_error"] = metrics.set_error(presence, labels, threshold)
            values[f"{split}/average_precision"] = metrics.average_precision(presence, labels)
            values[f"{split}/auroc"] = metrics.auroc(presence, labels)
        return values

    def gallery(self) -> Bags:
        """Return the first eight test images."""
        return self._test[:8].bags()


def _answers(score: ScoreFunction, images: Images) -> tuple[Tensor, Tensor, Tensor]:
    """Return class scores, presence scores and labels, (N, C) each, on the CPU."""
    scored = [(score(bags), bags.labels) for bags in images.batches()]
    classes = torch.cat([scores.classes.cpu() for scores, _ in scored])
    presence = torch.cat([scores.presence.cpu() for scores, _ in scored])
    return classes, presence, torch.cat([labels.cpu() for _, labels in scored])
