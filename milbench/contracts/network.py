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
"""What the instances of bags are; `Network` says the shape of each kind."""

_LARGEST_SIDE_TRIED = 100_000
"""In pixels. No network needs an image as large as this to have a position."""


class Network(nn.Module, ABC):
    """Base class of networks, from instances (B, *bag_shape) to logits (B, C+1, *positions).

    B is the number of bags and C the number of classes; the background is last. Images are (B, N,
    H, W) with N channels, sequences (B, F, T) with F features in each of T frames, sets (B, K, D)
    of K instances with D features. The constructor takes the number of inputs (N, F or D), the
    number of classes C without the background, and the seed of the initial weights, then parameters
    of its own, all annotated and with defaults. For torch's own initialisation the seed is not
    needed: milbench seeds torch's generator before it makes a network. `milbench new network NAME`
    writes an example.

    The logits of a position must not depend on the amount of padding in its bag. In a set they
    depend on the instance at the position alone, unless the network has `sees_mask`: then it may
    look at all instances of the set. In a sequence padding is NaN, so that the logits depend on
    frames that are not NaN.

    A network that works on the features of another network has `takes_encoder`; `BagNetwork` is the
    base class of such networks.
    """

    name: ClassVar[str]
    """The name of the network, in lower case with hyphens.

    A network in a user's file needs it. A network of milbench or of a task is named where it is
    registered.
    """
    revision: ClassVar[int] = 1
    """A version of the code. Raise it when the network computes something else than before.

    Stored results of an older revision are then not reused.
    """
    added: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """Parameters that are newer than stored cells, see `milbench.contracts.parameters`."""
    head: nn.Conv1d | nn.Conv2d | nn.Linear
    """The last layer, with C+1 outputs and a bias."""
    sees_mask: ClassVar[bool] = False
    """Whether `forward` takes the mask of the bags as a second argument."""
    takes_encoder: ClassVar[bool] = False
    """Whether the network works on the outputs of an encoder, which `with_encoder` gives it.

    The encoder is the first network of the task, made with 64 outputs.
    """
    loss_heads: ClassVar[tuple[Head, ...]] = ("softmax", "sigmoid")
    """The heads (`Loss.head`) of the losses that the network suits."""
    standardises: ClassVar[bool] = False
    """Whether the network scales its instances itself, in place of `BagFormat.standardise`."""

    def logits_of(self, bags: Bags) -> Tensor:
        """Return the logits (B, C+1, *positions) of B bags that are on the network's device."""
        instances = bags.instances
        # Only images have four dimensions. `move_to` says why their memory is laid out like this.
        if instances.ndim == 4:
            instances = instances.contiguous(memory_format=torch.channels_last)
        arguments: list[Tensor | None] = [instances]
        if self.sees_mask:
            arguments.append(self.mask_of(bags))
        logits: Tensor = self(*arguments)
        return logits

    def mask_of(self, bags: Bags) -> Tensor | None:
        """Return (B, *positions) bool, True at positions that show an instance; None: all do."""
        return bags.mask

    def start_at_prior(self, positions: int) -> None:
        """Set the biases of the head so that a bag starts with about one instance of each class.

        The biases of classes become -log(positions), where `positions` is the number of positions
        in a bag, and the bias of the background becomes 0. A softmax or a sigmoid then gives each
        class a probability near 1/positions at every position.

        With random biases a bag of K positions starts with about K C/(C+1) expected instances that
        are not background. Nearly all label sets then have a probability near 0, and training can
        get stuck where every class is equally unlikely at every position.

        Raises UsageError where there is no `head` with a `bias`.
        """
        head = getattr(self, "head", None)
        bias = getattr(head, "bias", None)
        if bias is None:
            name = type(self).__name__
            raise UsageError(
                f"the network {name} needs a `head`, its last layer, with a bias, "
                "or recipe.head_init=paper"
            )
        with torch.no_grad():
            bias.fill_(-math.log(positions))
            bias[-1] = 0

    def with_encoder(self, encoder: "Network", seed: int) -> Self:  # noqa: ARG002
        """Put this network on the outputs (B, 64, *positions) of an encoder, and return it.

        The weights of the encoder are initialised from the seed.
        """
        raise UsageError(
            f"the network {type(self).__name__} takes an encoder and needs a method with_encoder; "
            "milbench.BagNetwork has one"
        )

    def move_to(self, device: torch.device) -> Self:
        """Move the network to a device, with its weights in the memory format "channels last".

        `logits_of` gives it images in the same format. This is faster on a CPU, and in half
        precision on a GPU.
        """
        return self.to(device).to(memory_format=torch.channels_last)

    @cached_property
    def geometry(self) -> tuple[Layer, ...] | None:
        """The layers of a network of images that decide where its positions are; None: not known.

        They are found by tracing the network.
        """
        return traced_layers(self)

    def output_shape(self, height: int, width: int) -> tuple[int, int] | None:
        """Return (h, w), how many positions the network has in an image; None: not known.

        `height` and `width` of the image are in pixels.
        """
        layers = self.geometry
        if layers is None:
            return None
        return output_size(layers, height), output_size(layers, width)

    def smallest_side(self) -> int:
        """Return the side in pixels of the smallest square image in which there is a position.

        Returns 1 where that is not known.
        """
        for side in range(1, _LARGEST_SIDE_TRIED):
            shape = self.output_shape(side, side)
            if shape is None or min(shape) > 0:
                return side
        return 1

    def position_centres(self, height: int, width: int) -> tuple[Tensor, Tensor] | None:
        """Return y of every row and x of every column of positions in an image; None: not known.

        They are the centres of receptive fields, in pixels from the top and left edges of an image
        of `height` x `width` pixels.
        """
        layers = self.geometry
        if layers is None:
            return None
        return position_centres(layers, height, width)

    def centres_in(self, bags: Bags) -> tuple[Tensor, Tensor] | None:
        """Return where the positions of the network are in bags; None: not known.

        For images the result is that of `position_centres`. A network of sequences overrides this
        method, and returns the y of a single row and the x of its positions, which is the time in
        frames.
        """
        are_images = bags.instances.ndim == 4
        if not are_images:
            return None
        height, width = bags.instances.shape[-2:]
        return self.position_centres(height, width)


NetworkMaker = Callable[..., Network]
"""A class of networks, or a function: (inputs, num_classes, seed, **parameters) -> a new network.

The network is on the CPU. `inputs` is the number of channels of an image, or of features of a frame
or an instance; `num_classes` is C, without the background. The initial weights depend on these
arguments alone.
"""


def input_standardised(network: Network, standardise: nn.Module) -> Network:
    """Let a network get its instances through a module that standardises them, and return it.

    The module becomes a part of the network: it is stored and moved with the network's weights.
    """

    # The hook looks `standardise` up by its name: a copy of the network shares this function, and
    # must use its own copy of the module.
    def standardised(module: nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return module.get_submodule("standardise")(arguments[0]), *arguments[1:]

    network.add_module("standardise", standardise)
    network.register_forward_pre_hook(standardised)
    return network
