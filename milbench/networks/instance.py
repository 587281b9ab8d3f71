"""A multilayer perceptron for the instances of a set."""

from typing import Annotated

from pydantic import Field
from torch import Tensor, nn

from milbench.contracts.network import Network
from milbench.networks.initialisation import SLOPE, initialise


class InstanceMLP(Network):
    """A multilayer perceptron that is applied to each instance by itself.

    It makes logits (B, C+1, K), background last, of bags (B, K, D).

    Args:
        hidden: the width of each hidden layer.
        layers: the number of hidden layers.
    """

    head: nn.Linear

    def __init__(
        self,
        inputs: int,
        num_classes: int,
        seed: int,
        hidden: Annotated[int, Field(ge=1)] = 64,
        layers: Annotated[int, Field(ge=0)] = 1,
    ) -> None:
        super().__init__()
        body: list[nn.Module] = []
        width = inputs
        for _ in range(layers):
            body.append(nn.Linear(width, hidden))
            body.append(nn.LeakyReLU(SLOPE))
            width = hidden
        self.body = nn.Sequential(*body)
        self.head = nn.Linear(width, num_classes + 1)
        initialise(self, seed)

    def forward(self, instances: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(instances))
        return logits.transpose(1, 2)
