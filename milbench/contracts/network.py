"""The contract of a network: from the instances of bags to a logit for every position and class."""

import math
from abc import ABC
from collections.abc import Callable, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor, nn

from milbench.contracts.bags import Bags
from milbench.contracts.geometry import Layer, output_size, position_centres, traced_layers
from milbench.contracts.loss import Head
from milbench.errors import UsageError

BagKind = Literal["images", "sequences", "sets"]
"""What the instances of a bag are: images (B, N, H, W), sequences (B, F, T) in time, or sets (B, K, D)."""

_LARGEST_SIDE_TRIED = 100_000
"""In pixels. No network needs larger images to have a position."""


class Network(nn.Module, ABC):
    """Base class of networks: instances (B, *bag_shape) to logits (B, C+1, *positions), background last.

    Images are (B, N, H, W) with N channels, sequences (B, F, T) with F features in each of T
    frames, sets (B, K, D) of K instances with D features. The constructor takes the number of
    inputs (N, F or D), the number of classes C without the background, and the seed of the initial
    weights, then parameters of its own, all annotated and with defaults. For torch's own
    initialisation the seed is not needed: milbench seeds torch's generator before it makes a
    network. `milbench new network NAME` writes an example.

    The logits of a position must not depend on how far its bag was padded. In a set they depend on
    the instance at the position alone; a network that looks at all instances of a set has
    `sees_mask`. In a sequence they depend on frames that are numbers, since padding is NaN.

    A network that works on the features of another one has `takes_encoder`; `BagNetwork` is the
    base class of such networks.
    """

    name: ClassVar[str]
    """In lower case with hyphens. A network in a user's file needs it; others are named where they are registered."""
    revision: ClassVar[int] = 1
    """Raise it when the network computes something else than before: older results are then not reused."""
    added: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """Parameters that are newer than stored cells, see `milbench.contracts.parameters`."""
    head: nn.Conv1d | nn.Conv2d | nn.Linear
    """The last layer, with C+1 outputs and a bias."""
    sees_mask: ClassVar[bool] = False
    """Whether `forward` takes the mask of the bags as a second argument."""
    takes_encoder: ClassVar[bool] = False
    """Whether it works on 64 outputs of a task's first network, which it is given by `with_encoder`."""
    loss_heads: ClassVar[tuple[Head, ...]] = ("softmax", "sigmoid")
    """The heads of the losses that it suits."""
    standardises: ClassVar[bool] = False
    """Whether it scales its instances itself, so that `BagFormat.standardise` is left out."""

    def logits_of(self, bags: Bags) -> Tensor:
        """Return the logits (B, C+1, *positions) of B bags, which are on the device of the network."""
        instances = bags.instances
        if instances.ndim == 4:
            instances = instances.contiguous(memory_format=torch.channels_last)
        arguments: list[Tensor | None] = [instances]
        if self.sees_mask:
            arguments.append(self.mask_of(bags))
        logits: Tensor = self(*arguments)
        return logits

    def mask_of(self, bags: Bags) -> Tensor | None:
        """Return (B, *positions) bool, True at positions that show an instance of the bags; None: all do."""
        return bags.mask

    def start_at_prior(self, positions: int) -> None:
        """Set the biases of the head to the bag prior: about one instance of each class in a bag of `positions`.

        Class biases become -log(positions) and the background's 0. A softmax or a sigmoid then
        gives each class a probability near 1/positions everywhere.

        With random biases a bag of K positions starts with about K C/(C+1) expected instances.
        Nearly all label sets then have a probability near 0, and training can stay where every
        class is equally unlikely everywhere.

        Raises UsageError where there is no `head` with a `bias`.
        """
        head = getattr(self, "head", None)
        bias = getattr(head, "bias", None)
        if bias is None:
            name = type(self).__name__
            raise UsageError(
                f"the network {name} needs a `head`, its last layer, with a bias, or recipe.head_init=paper"
            )
        with torch.no_grad():
            bias.fill_(-math.log(positions))
            bias[-1] = 0

    def with_encoder(self, encoder: "Network", seed: int) -> Self:  # noqa: ARG002
        """Return this network on the outputs (B, 64, *positions) of an encoder, with weights drawn by the seed."""
        raise UsageError(
            f"the network {type(self).__name__} takes an encoder and needs a method with_encoder; "
            "milbench.BagNetwork has one"
        )

    def move_to(self, device: torch.device) -> Self:
        """Move to `device`, with weights in the memory format "channels last", as images are in `logits_of`.

        This is faster on a CPU, and in half precision on a GPU.
        """
        return self.to(device).to(memory_format=torch.channels_last)

    @cached_property
    def geometry(self) -> tuple[Layer, ...] | None:
        """The layers of a network of images that decide where positions are, found by tracing it; None: not known."""
        return traced_layers(self)

    def output_shape(self, height: int, width: int) -> tuple[int, int] | None:
        """Return (h, w), the positions of an image of `height` x `width` pixels; None where that is not known."""
        layers = self.geometry
        if layers is None:
            return None
        return output_size(layers, height), output_size(layers, width)

    def smallest_side(self) -> int:
        """Return the side in pixels of the smallest square image that has a position; 1 where that is not known."""
        for side in range(1, _LARGEST_SIDE_TRIED):
            shape = self.output_shape(side, side)
            if shape is None or min(shape) > 0:
                return side
        return 1

    def position_centres(self, height: int, width: int) -> tuple[Tensor, Tensor] | None:
        """Return y of every row and x of every column of positions, the centres of receptive fields; None: not known.

        They are in pixels from the top and left edges of an image.
        """
        layers = self.geometry
        if layers is None:
            return None
        return position_centres(layers, height, width)

    def centres_in(self, bags: Bags) -> tuple[Tensor, Tensor] | None:
        """Return `position_centres` for the images of `bags`; None: not known.

        A network of sequences returns those of its positions in time.
        """
        are_images = bags.instances.ndim == 4
        if not are_images:
            return None
        height, width = bags.instances.shape[-2:]
        return self.position_centres(height, width)


NetworkMaker = Callable[..., Network]
"""A class of networks, or a function: (inputs, num_classes, seed, **parameters) -> a new network on the CPU.

`inputs` are the channels of an image or the features of a frame or instance, `num_classes` is C
without the background.
The initial weights depend on these and the parameters alone."""


def input_standardised(network: Network, standardise: nn.Module) -> Network:
    """Return a network that gets its instances through a module, which is stored and moved with its weights."""

    # A copy of the network calls this same function, and gets its own copy of `standardise` by its
    # name.
    def standardised(module: nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return module.get_submodule("standardise")(arguments[0]), *arguments[1:]

    network.add_module("standardise", standardise)
    network.register_forward_pre_hook(standardised)
    return network
