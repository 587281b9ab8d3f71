"""Networks by name, which tasks choose from; packages add more as entry points `milbench.networks`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Literal

from milbench.api.registry import Names, own_functions
from milbench.api.task import Network
from milbench.errors import UsageError, unknown
from milbench.networks.attention_pooling import DSMIL, AttentionPooling, GatedAttention, SetTransformer
from milbench.networks.convolutional import AllConvolutional, Layer
from milbench.networks.instance import InstanceMLP

NetworkMaker = Callable[[int, int, int], Network]
"""From the number of channels of an image or of features of an instance, the number C of classes without the
background, and a seed to a new network on the CPU. Its initial weights depend on these three alone."""
HIDDEN = 64
Size = Literal["small", "medium", "large"]
WIDTHS: dict[Size, tuple[int, int, int]] = {"small": (48, 64, 96), "medium": (96, 128, 192), "large": (128, 192, 256)}
"""Of the paper's networks for house numbers."""


def _instance_mlp(inputs: int, num_classes: int, seed: int) -> Network:
    """Make a perceptron with two hidden layers of 64 units, the same for every instance of a bag (B, K, D)."""
    return InstanceMLP((inputs, HIDDEN, HIDDEN, num_classes + 1), seed)


def _house_numbers(size: Size, inputs: int, num_classes: int, seed: int) -> Network:
    """Make the paper's ten 5x5 convolutions for house numbers, of three widths, for images (B, N, H, W)."""
    a, b, c = WIDTHS[size]
    layers = [*(Layer(a, 5, padding=2),) * 3, Layer(b, 5, stride=2, padding=2), *(Layer(b, 5, padding=2),) * 2,
              *(Layer(c, 5, padding=2),) * 3, Layer(num_classes + 1, 5)]  # fmt: skip
    return AllConvolutional(layers, inputs, seed)


NETWORKS: dict[str, NetworkMaker] = {
    "instance-mlp": _instance_mlp,
    "gated-attention": GatedAttention,
    "dsmil": DSMIL,
    "set-transformer": SetTransformer,
    **{f"house-numbers-{size}": partial(_house_numbers, size) for size in WIDTHS},
}
"""The networks of milbench itself that have names; others belong to one task and stand in its file."""


@cache
def networks() -> Names[NetworkMaker]:
    """Return the registry of networks."""
    return Names("network", "networks", own_functions(NETWORKS))


def network_name(given: str, others: Sequence[str] = ()) -> str:
    """Return the name of a network: one of `others`, one known here, or a size of those for house numbers.

    Raises UsageError for any other name.
    """
    name = f"house-numbers-{given}" if given in WIDTHS else given
    if name not in networks().entries and name not in others:
        raise unknown("network", given, [*WIDTHS, *networks().entries, *others])
    return name


def pooling_network(name: str, encoder: Network, num_classes: int, seed: int) -> Network:
    """Return a network that pools the HIDDEN features of an encoder, such as `gated-attention`, on the CPU.

    Raises UsageError where there is no such network, or it does not pool instances.
    """
    made = load_network(name, HIDDEN, num_classes, seed)
    if not isinstance(made, AttentionPooling):
        known = "gated-attention, dsmil or set-transformer"
        raise UsageError(f"network {name!r} does not pool instances; expected one that does, such as {known}")
    return made.on(encoder, seed)


def load_network(name: str, inputs: int, num_classes: int, seed: int) -> Network:
    """Return a new network on the CPU, from instances to logits (B, C+1, *positions), background last.

    Args:
        name: of a network of milbench or of an installed package, see `milbench list networks`.
        inputs: N, the number of channels of images (B, N, H, W), or D, that of features of instances (B, K, D).
        num_classes: C, the background not counted.
        seed: decides the initial weights.

    Raises:
        UsageError: there is no such network, it cannot be imported, or what it makes is no `Network`.

    Examples:
        >>> import torch
        >>> network = load_network("instance-mlp", inputs=2, num_classes=3, seed=0)
        >>> network(torch.zeros(1, 6, 2)).shape  # one bag of six instances
        torch.Size([1, 4, 6])
    """
    made: object = networks().function(name)(inputs, num_classes, seed)
    if not isinstance(made, Network):
        origin = networks().entry(name).origin
        raise UsageError(f"network {name!r} from {origin} makes no milbench.Network, got {type(made).__name__}")
    return made
