"""Initial weights, drawn from the seed alone."""

from __future__ import annotations

import math

import torch
from torch import nn

from milbench._utils.seeding import generator

SLOPE = 0.1
"""Of every leaky ReLU, as in the paper."""


def initialise(network: nn.Module, seed: int) -> None:
    """Draw weights and biases alike from normal / sqrt(fan_in), the paper's initialisation.

    Every parameter has a generator of its own, named by the seed and the parameter: networks agree wherever names and
    shapes agree, whatever comes before, and nothing depends on the global state of torch.
    """
    with torch.no_grad():
        for name, layer in network.named_modules():
            if isinstance(layer, nn.Conv2d | nn.Linear):
                scale = 1 / math.sqrt(layer.weight[0].numel())
                for kind, parameter in layer.named_parameters():
                    drawn = torch.randn(parameter.shape, generator=generator("weights", seed, name, kind))
                    parameter.copy_(scale * drawn)
