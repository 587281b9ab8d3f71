"""MNIST with one digit in each image: X.-L. Li, arXiv:1811.12346, Section 5.1."""

from __future__ import annotations

from milbench.api.recipe import Recipe
from milbench.api.task import Published
from milbench.data.image_sets import MNIST_SIDE
from milbench.families.single_image import OneInstanceImages

from ._mnist_networks import BASELINES, NETWORKS
from ._paper import AS_EXACT, LI_2018, PROTOCOL, RULE, TWICE_THE_SPREAD

_EPOCHS = 20
_AS_PUBLISHED = {**PROTOCOL, "recipe.epochs": _EPOCHS, "recipe.lr": 0.02, "recipe.loss_precision": "float32"}
_NOTE = f"{TWICE_THE_SPREAD} The runs are those that the author's programs list"


class MNIST(OneInstanceImages):
    """Classify the digit of an image, given that its class occurs (set supervision) or occurs alone (cross-entropy).

    X.-L. Li, arXiv:1811.12346, 2018, Section 5.1.1: batches of 64 images, pixels in [0, 1]. The paper trains on all
    60,000 images (`validation=0`); the default keeps the last 5,000 of them for validation.

    Args:
        validation: the number of training images that are kept for validation.
        any_data: accept other images in MNIST's files; the results are then named non-canonical.
    """

    name = "mnist"
    side = MNIST_SIDE
    batch_bags = 64
    networks = NETWORKS
    classifiers = BASELINES
    published = (
        Published(
            "exact", "instance_error", 0.0048, f"{LI_2018}, Section 5.1.1: {RULE}", 0.0004,
            protocol={**_AS_PUBLISHED, **AS_EXACT},
            values=(0.0041, 0.0051, 0.0052, 0.0050, 0.0046), margin=0.0008, note=_NOTE,
        ),
        Published(
            "cross-entropy", "instance_error", 0.0054, f"{LI_2018}, Section 5.1.1, the baseline: {RULE}", 0.0003,
            protocol=_AS_PUBLISHED, values=(0.0055, 0.0055, 0.0052), margin=0.0006, note=_NOTE,
        ),
    )  # fmt: skip

    def recipe(self) -> Recipe:
        """Return one-cycle AdamW in half precision, for as many epochs as the paper trains."""
        return Recipe(lr=1e-3, epochs=_EPOCHS, evaluate_every=4)
