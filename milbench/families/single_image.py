"""Images of one thing each: the protocol of X.-L. Li, arXiv:1811.12346, Section 5.1, where a bag is a whole image."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from milbench.api.bags import Bags
from milbench.api.scores import Scores
from milbench.api.task import Evaluation, ScoreFunction
from milbench.data import image_sets
from milbench.data.labelled_images import ImageSplits, LabelledImages
from milbench.evaluation.evaluate import EvalSplit
from milbench.families.fixed_bags import Lazy
from milbench.families.image_bags import ImageTask, single_instance_bags

IMAGES_PER_EVAL_BATCH = 500
CALIBRATION_IMAGES = 5000
"""Training images on which the threshold of the set error is chosen where there is no validation split."""


class OneInstanceImages(ImageTask):
    """Base class of tasks with one class in each image; a subclass adds the images and the networks.

    It measures what set supervision costs: a loss is given which class occurs, but not that it occurs once. Losses with
    the head "class", such as cross-entropy, assume one instance in an image. They train `classifiers`, networks with
    less padding, one position and no background. The hit rate is left out: every position of a network depends on the
    one instance there is.

    Args:
        validation: the number of training images, the last ones, that are kept for validation.
        any_data: accept other images in the files of the data set.
    """

    instances_are_ordered = True
    num_classes = 10
    max_labels = 1
    primary = "instance_error"
    chance = 1 - 1 / num_classes
    side: ClassVar[int]
    """Height and width of an image, in pixels."""

    def __init__(self, validation: Annotated[int, Field(ge=0)] = 5000, any_data: bool = False) -> None:
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
        """Load the images onto `device` and keep the last training images for validation."""
        train, test = self.load(data_dir)
        splits = ImageSplits.with_last_for_validation(train, test, count=self.validation, task_name=self.name)
        self._splits = splits.to(device)
        self.training_count = len(splits.train)
        # Each bag holds one instance: the same batches serve the metrics of instances and those of label sets.
        batches = {split: self._batches(images) for split, images in self._splits.evaluated.items()}
        self.eval_splits = {split: EvalSplit(images, images) for split, images in batches.items()}
        self.calibration = None if self.validation else self._batches(self._splits.train[:CALIBRATION_IMAGES])

    def training_batch(self, numbers: Tensor, rng: torch.Generator) -> Bags:
        drawn = self._splits.train[numbers]
        return single_instance_bags(replace(drawn, pixels=self.augmented(drawn.pixels, rng)), self.num_classes)

    def evaluate(self, score: ScoreFunction) -> Evaluation:
        def without_places(bags: Bags) -> Scores:
            return replace(score(bags), centres=None)

        return super().evaluate(without_places)

    def _batches(self, images: LabelledImages) -> Lazy[Bags]:
        images = images[: self.evaluation_limit]
        return Lazy.of(images, IMAGES_PER_EVAL_BATCH, partial(single_instance_bags, num_classes=self.num_classes))
