"""Bags that are images, and images of one thing each: X.-L. Li, arXiv:1811.12346, Section 5.1."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from milbench._utils.devices import to_device
from milbench._utils.images import colours, grey
from milbench.api.bags import Bags, Origin, Truth, label_matrix
from milbench.api.task import Evaluation, ScoreFunction
from milbench.data import image_sets
from milbench.data.labelled_images import ImageSplits, LabelledImages
from milbench.evaluation.evaluate import EvalSplit
from milbench.families.fixed_bags import FixedBags, Lazy

if TYPE_CHECKING:
    from PIL.Image import Image

DIGITS = 10  # classes
IMAGES_PER_EVAL_BATCH = 500
CALIBRATION_IMAGES = (
    5000  # to train on, by which the threshold is chosen where there is no validation split
)


def single_instance_bags(images: LabelledImages, num_classes: int) -> Bags:
    """Return every image as a bag of one instance (channels, h, w) in [0, 1] that fills it.

    Bags have the numbers of their images, where these are numbered.
    """
    height, width = images.pixels.shape[-2:]
    classes = images.classes.unsqueeze(1)
    box = to_device(torch.tensor([0.0, 0.0, width, height]), classes.device)
    truth = Truth(classes, box.expand(len(images), 1, 4))
    origin = None if images.numbers is None else Origin(images.numbers)
    return Bags(images.scaled(), label_matrix(classes, num_classes), truth=truth, origin=origin)


class ImageTask(FixedBags):
    """Base class of tasks whose bags are images, which a network can read from pictures."""

    bag_kind = "images"
    inputs: int = 1  # for grey, 3 for colours
    white: ClassVar[int] = 255  # the value of a pixel that is scaled to 1

    def instances_from(self, picture: Image) -> Tensor:
        """Return a picture, in grey or in colours as the images are, (channels, H, W) in [0, 1]."""
        return (
            torch.from_numpy(grey(picture) if self.inputs == 1 else colours(picture)) / self.white
        )

    def picture_from(self, instances: Tensor) -> Image:
        from PIL.Image import fromarray

        pixels = (instances * self.white).round().clamp(0, 255).byte().cpu().numpy()
        return fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))


class OneInstanceImages(ImageTask):
    """Base class of tasks with one class in each image; a subclass adds the images and the networks.

    It measures what set supervision costs: a loss is told which class occurs, but not that it occurs once. Losses with
    the head "class", such as cross-entropy, assume that, and train `classifiers`, networks with less padding, one
    position and no background. There is no hit rate, as every position depends on the one instance. The last
    `validation` training images are kept for validation; with `any_data` the files may hold other images.
    """

    instances_are_ordered = True
    num_classes = 10
    max_labels = 1
    primary = "instance_error"
    chance = 1 - 1 / num_classes
    side: ClassVar[int]  # height and width of an image, in pixels

    def __init__(
        self, validation: Annotated[int, Field(ge=0)] = 5000, any_data: bool = False
    ) -> None:
        self.validation = validation
        self.any_data = any_data
        self.typical_size = self.side, self.side

    def check_data(self, data_dir: Path | None) -> str:
        return image_sets.check(self.name, data_dir, self.any_data)

    def load(self, data_dir: Path | None) -> tuple[LabelledImages, LabelledImages]:
        """Return the training images and the test images of the data set of the task's name, on the CPU."""
        return image_sets.load(self.name, data_dir)

    def augmented(self, pixels: Tensor, rng: torch.Generator) -> Tensor:  # noqa: ARG002
        """Return training pixels (B, channels, h, w) augmented by draws from `rng`; the default changes nothing."""
        return pixels

    def prepare(self, data_dir: Path | None, device: torch.device) -> None:
        train, test = self.load(data_dir)
        splits = ImageSplits.with_last_for_validation(
            train, test, count=self.validation, task_name=self.name
        )
        self._splits = splits.to(device)
        self.training_count = len(splits.train)
        # Each bag holds one instance: the same batches serve the metrics of instances and those of label sets.
        batches = {split: self._batches(images) for split, images in self._splits.evaluated.items()}
        self.eval_splits = {split: EvalSplit(images, images) for split, images in batches.items()}
        self.calibration = (
            None if self.validation else self._batches(self._splits.train[:CALIBRATION_IMAGES])
        )

    def training_batch(self, numbers: Tensor, rng: torch.Generator) -> Bags:
        images = self._splits.train[numbers]
        return single_instance_bags(
            replace(images, pixels=self.augmented(images.pixels, rng)), self.num_classes
        )

    def evaluate(self, score: ScoreFunction) -> Evaluation:
        return super().evaluate(lambda bags: replace(score(bags), centres=None))

    def _batches(self, images: LabelledImages) -> Lazy[Bags]:
        images = images[: self.evaluation_limit]
        return Lazy.of(
            images,
            IMAGES_PER_EVAL_BATCH,
            partial(single_instance_bags, num_classes=self.num_classes),
        )
