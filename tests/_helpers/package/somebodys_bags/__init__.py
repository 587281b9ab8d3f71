"""A loss, a task, an optimiser and a network, as somebody outside the project would publish them."""

import torch

from milbench import InstanceMLP, Network, Recipe


def plain(model: torch.nn.Module, recipe: Recipe, seed: int) -> torch.optim.Optimizer:
    """Move every weight by the learning rate, against its gradient."""
    return torch.optim.SGD(model.parameters(), recipe.lr)


def one_layer(inputs: int, num_classes: int, seed: int) -> Network:
    """Make a linear map of every instance."""
    return InstanceMLP(inputs, num_classes, seed, layers=0)
