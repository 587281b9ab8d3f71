"""Base class of tasks whose images show one thing each: X.-L. Li, arXiv:1811.12346, Section 5.1."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from milbench.contracts.bags import Bags
from milbench.contracts.problem import BagFormat, EvalSplit, Evaluation, ScoreFunction
from milbench.contracts.task import CPU
from milbench.data import image_sets
from milbench.data.labelled_images import ImageSplits, LabelledImages
from milbench.families.fixed_bags import FixedBags, Lazy
from milbench.families.image_task import DIGIT_NAMES, DIGITS, ImageTask, single_instance_bags

IMAGES_PER_EVAL_BATCH = 500
CALIBRATION_IMAGES = 5000
"""How many training images choose the threshold where there is no validation split."""


class OneInstanceImages(ImageTask):
    """Base class of tasks with one thing in each image.

    Such a task shows what it costs to know label sets alone: a loss is told which class occurs, but
    not that it occurs once. Losses with the head "class", such as cross-entropy, assume that it
    occurs once. They train the networks in `classifiers`, which have less padding, one position and
    no background. There is no hit rate, as every position depends on the same thing.

    A subclass adds the networks, sets `side` and `batch_bags`, and sets `format` unless its images
    are grey digits. By default it takes the images of the data set with its name.

    Args:
        validation: the number of training images that are kept for validation, the last ones.
        any_data: whether the files may hold other images than the published data set.
    """

    instances_are_ordered = True
    primary = "instance_error"
    chance = 1 - 1 / DIGITS
    format: BagFormat = BagFormat(inputs=1, class_names=DIGIT_NAMES)
    side: ClassVar[int]
    """Height and width of an image, in pixels."""
    batch_bags: ClassVar[int]
    """How many images a training batch has."""

    def __init__(
        self, validation: Annotated[int, Field(ge=0)] = 5000, any_data: bool = False
    ) -> None:
        self.validation = validation
        self.any_data = any_data

    @property
    def channels(self) -> int:
        return self.format.inputs

    def check_data(self, data_dir: Path | None) -> str:
        return image_sets.check(self.name, data_dir, self.any_data)

    def images(self, data_dir: Path | None) -> tuple[LabelledImages, LabelledImages]:
        """Return the training images and the test images, on the CPU."""
        return image_sets.load(self.name, data_dir)

    def augmented(self, pixels: Tensor, rng: torch.Generator) -> Tensor:  # noqa: ARG002
        """Return training pixels (B, channels, h, w) with random changes, by default without any.

        A subclass may override it, and takes its random numbers from `rng`.
        """
        return pixels

    def load(
        self,
        data_dir: Path | None = None,
        seed: int = 0,
        device: torch.device = CPU,
        limit: int | None = None,
    ) -> OneInstanceProblem:
        train, test = self.images(data_dir)
        images = ImageSplits.with_last_for_validation(
            train, test, count=self.validation, task_name=self.name
        ).to(device)
        num_classes = self.format.num_classes
        as_bags = partial(single_instance_bags, num_classes=num_classes)

        def make_batch(numbers: Tensor, rng: torch.Generator) -> Bags:
            chosen = images.train[numbers]
            return as_bags(replace(chosen, pixels=self.augmented(chosen.pixels, rng)))

        def batches_of(evaluated: LabelledImages) -> Lazy[Bags]:
            return Lazy.of(evaluated[:limit], IMAGES_PER_EVAL_BATCH, as_bags)

        splits = {}
        for split, evaluated in images.evaluated.items():
            splits[split] = EvalSplit((), batches_of(evaluated), is_single_instance=True)
        calibration = None
        if not self.validation:
            calibration = batches_of(images.train[:CALIBRATION_IMAGES])
        return OneInstanceProblem(
            task_name=self.name,
            seed=seed,
            format=self.format,
            typical_shape=(self.format.inputs, self.side, self.side),
            batch_bags=self.batch_bags,
            splits=splits,
            max_labels=1,
            training_count=len(images.train),
            make_batch=make_batch,
            calibration=calibration,
            limit=limit,
        )


@dataclass(kw_only=True, eq=False, repr=False)
class OneInstanceProblem(FixedBags):
    """A problem of images that show one thing each."""

    def evaluate(self, score: ScoreFunction) -> Evaluation:
        """Return the metrics without the hit rate, as every position depends on the same thing."""
        # Without centres of positions no hit is judged.
        return super().evaluate(lambda bags: replace(score(bags), centres=None))
