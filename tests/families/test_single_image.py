"""Images of one thing each: how their splits are scored."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch

from milbench.api.bags import Bags
from milbench.api.recipe import Recipe
from milbench.api.task import Scores
from milbench.data.labelled_images import LabelledImages
from milbench.families import single_image
from milbench.families.single_image import OneInstanceImages
from milbench.networks.convolutional import Layer

CPU = torch.device("cpu")


class Numbered(OneInstanceImages):
    """Images of 2x2 pixels; image n has the value n, so that a score can be looked up."""

    name = "numbered"
    channels = 1
    side = 2
    batch_bags = 8

    def layers(self) -> tuple[Layer, ...]:
        return (Layer(self.num_classes + 1, 2),)

    def classifier_layers(self) -> tuple[Layer, ...]:
        return (Layer(self.num_classes, 2),)

    def load(self, data_dir: Path | None) -> tuple[LabelledImages, LabelledImages]:
        values = torch.arange(50)
        images = LabelledImages(values.byte().view(-1, 1, 1, 1).expand(50, 1, 2, 2), values % 10, white=255)
        return images[:30], images[30:]

    def recipe(self) -> Recipe:
        return Recipe()

    def check_data(self, data_dir: Path | None) -> str:
        return "numbered"


@pytest.mark.parametrize("validation", [0, 10])
def test_every_held_out_image_is_scored_once(monkeypatch: pytest.MonkeyPatch, validation: int) -> None:
    monkeypatch.setattr(single_image, "IMAGES_PER_EVAL_BATCH", 7)
    monkeypatch.setattr(single_image, "CALIBRATION_IMAGES", 12)
    task = Numbered(validation)
    task.prepare(None, CPU)
    seen: Counter[int] = Counter()

    def score(bags: Bags) -> Scores:
        seen.update((bags.instances[:, 0, 0, 0] * 255).round().int().tolist())
        labels = bags.labels.double()
        return Scores(labels, labels, labels[:, :, None, None])

    values = task.evaluate(score).metrics
    chosen_on = range(20, 30) if validation else range(12)  # the validation split, else the first training images
    assert seen == Counter([*chosen_on, *range(30, 50)])
    assert values["test/instance_error"] == 0
