"""The network my-network."""

from torch import Tensor, nn

from milbench import Network


class MyNetwork(Network):
    """Two layers, whose positions are two pixels apart.

    Args:
        width: the channels between the layers.
    """

    name = "my-network"

    def __init__(
        self,
        inputs: int,
        num_classes: int,
        seed: int,  # noqa: ARG002
        width: int = 32,
    ) -> None:
        super().__init__()
        # Torch's generator, which has the seed already, makes the initial weights.
        self.body = nn.Sequential(
            nn.Conv2d(inputs, width, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1),
            nn.ReLU(),
        )
        # The background is the last channel.
        self.head = nn.Conv2d(width, num_classes + 1, 3)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(images))
        return logits
