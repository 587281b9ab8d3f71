"""Initial weights of networks, which depend only on the seed and on the names of the parameters."""

import math

import torch
from torch import nn

from milbench._utils.seeding import generator

SLOPE = 0.1
"""The negative slope of all leaky ReLUs, as in X.-L. Li, arXiv:1811.12346, 2018."""


def initialise(network: nn.Module, seed: int) -> None:
    """Set the weights and biases of a network, in place, to normal noise / sqrt(fan_in).

    This is the initialisation of X.-L. Li, arXiv:1811.12346. It is for linear layers, convolutions
    and gated recurrent units; any other layer stays as it is. Every parameter has a random
    generator of its own, seeded by `seed` and the name of the parameter. So two networks have equal
    weights wherever names and shapes agree.
    """
    for name, layer in network.named_modules():
        if isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Linear | nn.GRU):
            _initialise_layer(layer, name, seed)


@torch.no_grad()
def _initialise_layer(layer: nn.Module, name: str, seed: int) -> None:
    """Set the weights and biases of one layer, in place, to normal noise / sqrt(fan_in)."""
    for kind, parameter in layer.named_parameters():
        rng = generator("weights", seed, name, kind)
        noise = torch.randn(parameter.shape, generator=rng)
        # A bias has the fan-in of its weights.
        weights = layer.get_parameter(kind.replace("bias", "weight"))
        fan_in = weights[0].numel()
        parameter.copy_(1 / math.sqrt(fan_in) * noise)
