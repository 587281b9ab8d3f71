"""All-convolutional networks from images to logits by position."""

from collections.abc import Sequence
from functools import partial

from torch import Tensor, nn

from milbench.contracts.geometry import Layer
from milbench.contracts.network import Network, NetworkMaker
from milbench.networks.initialisation import SLOPE, initialise


class AllConvolutional(Network):
    """Convolutions with leaky ReLUs between them.

    They make logits (B, C+1, h, w), background last, of images (B, N, H, W).

    Args:
        layers: the convolutions; the last one has C + 1 channels.
        inputs: N, the channels of an image.
        batch_norm: whether the outputs of every layer but the last are normalised over the batch
            (S. Ioffe and C. Szegedy, "Batch Normalization: Accelerating Deep Network Training by
            Reducing Internal Covariate Shift", ICML 2015). With it these layers have no bias.
    """

    head: nn.Conv2d

    def __init__(
        self, layers: Sequence[Layer], inputs: int, seed: int, *, batch_norm: bool = False
    ) -> None:
        super().__init__()
        self.geometry = tuple(layers)
        *hidden, last = self.geometry
        body: list[nn.Module] = []
        for layer in hidden:
            body.append(nn.Conv2d(inputs, *layer, bias=not batch_norm))
            if batch_norm:
                body.append(nn.BatchNorm2d(layer.channels))
            body.append(nn.LeakyReLU(SLOPE))
            inputs = layer.channels
        self.body = nn.Sequential(*body)
        self.head = nn.Conv2d(inputs, *last)
        initialise(self, seed)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(images))
        return logits


class Classifier(AllConvolutional):
    """Convolutions for losses with the head "class", which ignore the background.

    The last layer has C channels, and the channel of the background is 0.
    """

    def forward(self, images: Tensor) -> Tensor:
        class_logits = super().forward(images)
        return nn.functional.pad(class_logits, (0, 0, 0, 0, 0, 1))


HOUSE_NUMBER_CHANNELS = {
    "small": (48, 64, 96),
    "medium": (96, 128, 192),
    "large": (128, 192, 256),
}
"""The channels of the first three, the middle three and the last three of nine layers."""


def _house_numbers(size: str, inputs: int, num_classes: int, seed: int) -> Network:
    """Make the paper's ten 5x5 convolutions: 64 pixels give 28 positions.

    Source: X.-L. Li, arXiv:1811.12346, 2018, Section 5.4.
    """
    first, middle, last = HOUSE_NUMBER_CHANNELS[size]
    layers = [
        Layer(first, 5, padding=2),
        Layer(first, 5, padding=2),
        Layer(first, 5, padding=2),
        Layer(middle, 5, stride=2, padding=2),
        Layer(middle, 5, padding=2),
        Layer(middle, 5, padding=2),
        Layer(last, 5, padding=2),
        Layer(last, 5, padding=2),
        Layer(last, 5, padding=2),
        Layer(num_classes + 1, 5),
    ]
    return AllConvolutional(layers, inputs, seed)


HOUSE_NUMBERS: dict[str, NetworkMaker] = {
    size: partial(_house_numbers, size) for size in HOUSE_NUMBER_CHANNELS
}
