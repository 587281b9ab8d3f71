"""The layers of a network as functions of one vector in NumPy, for formulas that are written out in loops."""

import numpy as np
import torch
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Weights:
    """The weights of a network, and its layers by name."""

    def __init__(self, network: torch.nn.Module) -> None:
        self.of = {
            name: value.detach().double().numpy() for name, value in network.state_dict().items()
        }

    def linear(self, layer: str, x: Array) -> Array:
        """Return what a linear layer makes of a vector."""
        product: Array = self.of[f"{layer}.weight"] @ x
        bias: Array = self.of.get(f"{layer}.bias", np.zeros(1))
        return product + bias

    def norm(self, layer: str, x: Array) -> Array:
        """Return a vector with mean 0 and variance 1, then scaled and moved."""
        # What torch adds to the variance.
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
