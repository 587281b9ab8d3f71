"""MNIST with one digit in each image: X.-L. Li, arXiv:1811.12346, Section 5.1.

The networks serve the task `extended-mnist` too.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from milbench import Layer, Network, NetworkMaker, OneInstanceImages, Published, Recipe
from milbench.data.image_sets import MNIST_SIDE
from milbench.networks.convolutional import AllConvolutional, Classifier

from ._paper import AS_EXACT, LI_2018, PROTOCOL, RULE, TWICE_THE_SPREAD

_SMALL_RECIPE: Mapping[str, Any] = {"lr": 3e-3, "weight_decay": 0.1}
"""Settings for the small networks, chosen with `exact` on validation digits, like their layers."""
_FIRST_FOUR = (
    Layer(16, 5, stride=2, padding=2),
    Layer(32, 3, padding=1),
    Layer(32, 3, stride=2, padding=1),
    Layer(64, 3, padding=1),
)
"""The first layers of the small network and of its baseline."""


def paper(inputs: int, num_classes: int, seed: int) -> Network:
    """Make the paper's six 5x5 convolutions: 28 pixels give 4 positions, 56 give 18, 84 give 32."""
    layers = (
        Layer(64, 5, padding=2),
        Layer(64, 5, padding=2),
        Layer(64, 5, stride=2, padding=2),
        Layer(64, 5, padding=1),
        Layer(64, 5),
        Layer(num_classes + 1, 5),
    )
    return AllConvolutional(layers, inputs, seed)


class Small(AllConvolutional):
    """Seven convolutions with batch norm, at 1/22 of the cost of the paper's network.

    28 pixels give 3 positions, 56 give 10, and 84 give 17.
    """

    recipe: ClassVar[Mapping[str, Any]] = _SMALL_RECIPE

    def __init__(self, inputs: int, num_classes: int, seed: int) -> None:
        last = (Layer(64, 3, padding=1), Layer(64, 3), Layer(num_classes + 1, 3))
        super().__init__(_FIRST_FOUR + last, inputs, seed, batch_norm=True)


def paper_baseline(inputs: int, num_classes: int, seed: int) -> Network:
    """Make the paper's network with less padding: 28 pixels give 1 position."""
    layers = (
        Layer(64, 5, padding=2),
        Layer(64, 5, padding=2),
        Layer(64, 5, stride=2, padding=1),
        Layer(64, 5),
        Layer(64, 5),
        Layer(num_classes, 5),
    )
    return Classifier(layers, inputs, seed)


class SmallBaseline(Classifier):
    """The small network with less padding: 28 pixels give 1 position."""

    recipe: ClassVar[Mapping[str, Any]] = _SMALL_RECIPE

    def __init__(self, inputs: int, num_classes: int, seed: int) -> None:
        last = (Layer(64, 3), Layer(64, 3), Layer(num_classes, 3))
        super().__init__(_FIRST_FOUR + last, inputs, seed, batch_norm=True)


NETWORKS: Mapping[str, NetworkMaker] = {"paper": paper, "small": Small}
BASELINES: Mapping[str, NetworkMaker] = {"paper": paper_baseline, "small": SmallBaseline}
"""The networks for losses that name one class of an image, such as `cross-entropy`."""

_EPOCHS = 20
"""The number of epochs of the paper."""
_AS_PUBLISHED = {
    **PROTOCOL,
    "recipe.epochs": _EPOCHS,
    "recipe.lr": 0.02,
    "recipe.loss_precision": "float32",
}
_NOTE = f"{TWICE_THE_SPREAD} The runs are those that the author's programs list"


class MNIST(OneInstanceImages):
    """Classify the digit of an image: MNIST, where every bag has one instance.

    A loss with set supervision is told that the class of the digit occurs; `cross-entropy` presumes
    in addition that the image holds nothing else.

    The protocol is that of X.-L. Li, arXiv:1811.12346, 2018, Section 5.1.1: batches of 64 images,
    pixels in [0, 1]. The paper trains on all 60,000 images (`validation=0`); by default the last
    5,000 of them are kept for validation.

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
            metric="instance_error",
            value=0.0048,
            source=f"{LI_2018}, Section 5.1.1: {RULE}",
            loss="exact",
            spread=0.0004,
            protocol={**_AS_PUBLISHED, **AS_EXACT},
            values=(0.0041, 0.0051, 0.0052, 0.0050, 0.0046),
            margin=0.0008,
            note=_NOTE,
        ),
        Published(
            metric="instance_error",
            value=0.0054,
            source=f"{LI_2018}, Section 5.1.1, the baseline: {RULE}",
            loss="cross-entropy",
            spread=0.0003,
            protocol=_AS_PUBLISHED,
            values=(0.0055, 0.0055, 0.0052),
            margin=0.0006,
            note=_NOTE,
        ),
    )

    def datasets(self) -> Sequence[str]:
        if self.any_data:
            return ()
        return (self.name,)

    def recipe(self) -> Recipe:
        # The number of epochs is the paper's.
        return Recipe(lr=1e-3, epochs=_EPOCHS, evaluate_every=4)
