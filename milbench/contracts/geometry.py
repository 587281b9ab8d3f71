"""Where the positions of a convolutional network are in an image."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

_PROBES = (61, 84)
"""The sides in pixels of the images on which a traced geometry is compared with what the network returns."""


class Layer(NamedTuple):
    """A square convolution: output channels, then kernel, stride and zeros on every side in pixels of its input."""

    channels: int
    kernel: int
    stride: int = 1
    padding: int = 0


def output_size(layers: Sequence[Layer], size: int) -> int:
    """Return the number of positions along one side of an image of `size` pixels."""
    for layer in layers:
        size = (size + 2 * layer.padding - layer.kernel) // layer.stride + 1
    return size


def position_centres(layers: Sequence[Layer], height: int, width: int) -> tuple[Tensor, Tensor]:
    """Return the centres of the receptive fields of all positions in an image of `height` x `width` pixels.

    They are y of every row (h,) and x of every column (w,), float64, on the scale of
    `milbench.contracts.bags.Truth.boxes`: the left edge of the image is 0 and the middle of its
    first pixel 0.5.
    """
    # The centre of the first position, and the distance of two positions. They begin with those of
    # the pixels.
    start = 0.5
    step = 1
    for layer in layers:
        start += step * ((layer.kernel - 1) / 2 - layer.padding)
        step *= layer.stride
    rows = torch.arange(output_size(layers, height)).double()
    columns = torch.arange(output_size(layers, width)).double()
    return start + step * rows, start + step * columns


def layers_on_path(module: nn.Module) -> tuple[Layer, ...]:
    """Return the convolutions and poolings on one path from the input of a module to its output.

    One path is enough: all paths that meet in a sum have the same strides and centres, or the sum
    would add what is shown in different places. Where a module has several inputs, the last one is
    followed. In torchvision's networks that is never a gate on channels.
    """
    from torch.fx import Graph, symbolic_trace

    # Tracing would look inside of a layer that stands alone.
    traced = nn.Sequential(module)
    graph: Graph = symbolic_trace(traced).graph
    modules = dict(traced.named_modules())
    # From the output back to the input.
    node = next(node for node in graph.nodes if node.op == "output")
    layers: list[Layer] = []
    while node.op != "placeholder":
        if node.op == "call_module":
            called = modules[str(node.target)]
            if isinstance(called, nn.Conv2d | nn.MaxPool2d | nn.AvgPool2d):
                layers.append(_layer(called))
        # A `get_attr` is a weight or a buffer, which does not come from the image.
        sources = [source for source in node.all_input_nodes if source.op != "get_attr"]
        node = sources[-1]
    layers.reverse()
    return tuple(layers)


def traced_layers(network: nn.Module) -> tuple[Layer, ...] | None:
    """Return the layers of a network of images (B, N, H, W), found by tracing; None where they are not known.

    What was found is tried: it has to predict how many positions the network has in images of two
    sizes.
    """
    was_training = network.training
    network.eval()
    try:
        layers = layers_on_path(network)
        shapes = [_positions_shape(network, side) for side in _PROBES]
    except Exception:  # noqa: BLE001 a user's network may fail here in any way
        return None
    finally:
        network.train(was_training)
    for side, shape in zip(_PROBES, shapes, strict=True):
        size = output_size(layers, side)
        if shape != (size, size):
            return None
    return layers


@torch.no_grad()
def _positions_shape(network: nn.Module, side: int) -> tuple[int, ...]:
    """Return (h, w), how many positions a network has in a square image; the network is run on one."""
    first = next(module for module in network.modules() if isinstance(module, nn.Conv2d))
    image = torch.zeros(1, first.in_channels, side, side, device=first.weight.device)
    return tuple(network(image).shape[2:])


def _layer(module: nn.Conv2d | nn.MaxPool2d | nn.AvgPool2d) -> Layer:
    """Return the geometry of a module along its height. A square module has the same along its width."""
    # An average pooling has no dilation. A dilated kernel is as large as the pixels that it spans.
    dilation = _side(getattr(module, "dilation", 1))
    kernel = dilation * (_side(module.kernel_size) - 1) + 1
    padding = module.padding
    if isinstance(padding, str):
        # The other text that torch knows is "valid".
        padding = (kernel - 1) // 2 if padding == "same" else 0
    channels = module.out_channels if isinstance(module, nn.Conv2d) else 0
    return Layer(channels, kernel, _side(module.stride), _side(padding))


def _side(value: int | tuple[int, ...]) -> int:
    """Return the value for the height. A pair has one for each side, the height first."""
    return value if isinstance(value, int) else value[0]
