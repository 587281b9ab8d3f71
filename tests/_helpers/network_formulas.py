"""The layers of a network as NumPy functions of one vector.

Tests write the formula of a network with them, in plain loops.
"""

import numpy as np
import torch
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Weights:
    """The weights of a network, and what its layers compute, by the names of layers."""

    def __init__(self, network: torch.nn.Module) -> None:
        # Name of a parameter -> its values.
        self.of = {
            name: value.detach().double().numpy() for name, value in network.state_dict().items()
        }

    def linear(self, layer: str, x: Array) -> Array:
        """Return the output of a linear layer for a vector."""
        product: Array = self.of[f"{layer}.weight"] @ x
        bias: Array = self.of.get(f"{layer}.bias", np.zeros(1))
        return product + bias

    def norm(self, layer: str, x: Array) -> Array:
        """Return the output of a layer norm for a vector."""
        # Torch adds this to the variance.
        epsilon = 1e-5
        standardised: Array = (x - x.mean()) / np.sqrt(x.var() + epsilon)
        moved: Array = standardised * self.of[f"{layer}.weight"] + self.of[f"{layer}.bias"]
        return moved


def weighted_sum(weights: Array, vectors: list[Array]) -> Array:
    """Return the sum of vectors, each times its weight."""
    total = np.zeros_like(vectors[0])
    for weight, vector in zip(weights, vectors, strict=True):
        total += weight * vector
    return total
