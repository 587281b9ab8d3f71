"""A network."""

from milbench import InstanceMLP, Network


def one_layer(inputs: int, num_classes: int, seed: int) -> Network:
    """Make a linear map of every instance."""
    return InstanceMLP(inputs, num_classes, seed, layers=0)
