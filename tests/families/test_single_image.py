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


def test_errors_are_those_counted_by_hand() -> None:
    """Every image of class 9 is called a 0. The class of an image has the presence 0.75 or 0.5, all others have 0.

    At a threshold of 0.75 half of the label sets are right, at 0.5 all of them are.
    """
    task = Numbered(10)
    task.prepare(None, CPU)

    def score(bags: Bags) -> Scores:
        labels = bags.labels.double()
        classes = labels.clone()
        classes[labels[:, 9] == 1] = torch.eye(10, dtype=torch.float64)[0]
        strengths = torch.where(torch.arange(10) < 5, 0.75, 0.5).double()
        return Scores(classes, labels * strengths, labels[:, :, None, None])

    values = task.evaluate(score).metrics
    for split in ("validation", "test"):
        assert values[f"{split}/instance_error"] == pytest.approx(1 / 10)
        assert values[f"{split}/set_error"] == 0
        assert values[f"{split}/average_precision"] == values[f"{split}/auroc"] == 1
        assert f"{split}/hit_rate" not in values
    assert values["chosen/threshold"] == 0.5
