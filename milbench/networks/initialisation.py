"""Initial weights, decided by the seed and the names of the parameters."""

import math

import torch
from torch import nn

from milbench._utils.seeding import generator

SLOPE = 0.1
"""Negative slope of every leaky ReLU in the networks of milbench, as in the paper, X.-L. Li, arXiv:1811.12346, 2018."""


def initialise(network: nn.Module, seed: int) -> None:
    """Draw the weights and biases of a network, in place, from normal / sqrt(fan_in), the paper's initialisation.

    It draws those of linear layers, convolutions and gated recurrent units, and leaves any other
    layer as it is. Every parameter has a generator of its own, seeded by `seed` and the name of the
    parameter: two networks have equal weights wherever names and shapes agree, whatever the global
    state of torch.
    """
    for name, layer in network.named_modules():
        if isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Linear | nn.GRU):
            _initialise_layer(layer, name, seed)


@torch.no_grad()
def _initialise_layer(layer: nn.Module, name: str, seed: int) -> None:
    """Draw the weights and biases of one layer, in place."""
    for kind, parameter in layer.named_parameters():
        rng = generator("weights", seed, name, kind)
        noise = torch.randn(parameter.shape, generator=rng)
        # A bias has the fan-in of its weights.
        weights = layer.get_parameter(kind.replace("bias", "weight"))
        fan_in = weights[0].numel()
        parameter.copy_(1 / math.sqrt(fan_in) * noise)
