"""A package with additions to milbench, as somebody outside the project would publish it.

The loss and the task are modules that tests/test_plugin_package.py puts beside this file.
"""

import torch

from milbench import InstanceMLP, Network, Recipe


def plain(model: torch.nn.Module, recipe: Recipe, seed: int) -> torch.optim.Optimizer:
    """Move every weight by the learning rate, against its gradient."""
    return torch.optim.SGD(model.parameters(), recipe.lr)


def one_layer(inputs: int, num_classes: int, seed: int) -> Network:
    """Make a linear map of every instance."""
    return InstanceMLP(inputs, num_classes, seed, layers=0)
