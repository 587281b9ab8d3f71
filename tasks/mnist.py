"""MNIST with one digit in each image: X.-L. Li, arXiv:1811.12346, Section 5.1."""

from __future__ import annotations

from pathlib import Path

from milbench.api.recipe import Recipe
from milbench.api.task import Published
from milbench.data import mnist
from milbench.data.labelled_images import LabelledImages
from milbench.families.single_image import OneInstanceImages
from milbench.networks.convolutional import Layer

from ._paper import AS_EXACT, LI_2018, MINOR, PROTOCOL, RULE, mnist_layers

_EPOCHS = 20
_AS_PUBLISHED = {**PROTOCOL, "recipe.epochs": _EPOCHS}
_NEARLY = {**MINOR, "recipe.lr": 0.02, "recipe.loss_precision": "float32"}


class MNIST(OneInstanceImages):
    """Classify the digit of an image, given that its class occurs (set supervision) or occurs alone (cross-entropy).

    X.-L. Li, arXiv:1811.12346, 2018, Section 5.1.1: batches of 64 images, pixels in [0, 1]. The paper trains on all
    60,000 images (`validation=0`); the default keeps the last 5,000 of them for validation.

    Args:
        validation: the number of training images that are kept for validation.
        any_data: accept other images in MNIST's files; the results are then named non-canonical.
    """

    name = "mnist"
    channels = 1
    side = mnist.MNIST_SIDE
    batch_bags = 64
    published = (
        Published(
            "exact", "instance_error", 0.0048, f"{LI_2018}, Section 5.1.1: number of runs not given, {RULE}", 0.0004,
            protocol={**_AS_PUBLISHED, **AS_EXACT}, minor=_NEARLY,
        ),
        Published(
            "cross-entropy", "instance_error", 0.0054, f"{LI_2018}, Section 5.1.1: number of runs not given, {RULE}",
            0.0003, protocol=_AS_PUBLISHED, minor=_NEARLY,
        ),
    )  # fmt: skip

    def layers(self) -> tuple[Layer, ...]:
        """Return the paper's six 5x5 convolutions, as for extended MNIST."""
        return mnist_layers(self.num_classes)

    def classifier_layers(self) -> tuple[Layer, ...]:
        """Return the same with less padding: 28 pixels give 1 position."""
        same = Layer(64, 5, padding=2)
        return (same, same, Layer(64, 5, stride=2, padding=1), Layer(64, 5), Layer(64, 5), Layer(self.num_classes, 5))

    def recipe(self) -> Recipe:
        """Return one-cycle AdamW in half precision, for as many epochs as the paper trains."""
        return Recipe(lr=1e-3, precision="bfloat16", epochs=_EPOCHS, evaluate_every=4)

    def check_data(self, data_dir: Path | None) -> str:
        """Return a digest of the files, downloaded where they are missing."""
        return mnist.check(data_dir, self.any_data)

    def load(self, data_dir: Path | None) -> tuple[LabelledImages, LabelledImages]:
        """Read the files."""
        return mnist.load(data_dir)
