"""Where the positions of a convolutional network are in an image.

The positions are the places in the grid of its output. The geometry of a network is the list of its
layers that decide how large this grid is and where its positions lie.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

_PROBES = (61, 84)
"""The sides in pixels of two square images on which a traced geometry is tested.

One is odd and one even, and they differ by no multiple of a usual stride such as 2, 4 or 8. So a
wrong geometry is unlikely to have the right number of positions on both.
"""


class Layer(NamedTuple):
    """A square convolution or pooling.

    Kernel, stride and padding (on every side) are in pixels of its input. `channels` are those of
    its output, 0 for a pooling.
    """

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
    """Return where positions are: the centres of their receptive fields in an image.

    The image has `height` x `width` pixels. The centres are y of every row of positions (h,) and x
    of every column (w,), float64, on the scale of `milbench.contracts.bags.Truth.boxes`: the left
    edge of the image is 0, and the middle of its first pixel 0.5.
    """
    # `start` is the centre of the first position, and `step` the distance between neighbours, both
    # in pixels of the image. Before the first layer the positions are the pixels.
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
    would add values from different parts of the image. Where an operation has several inputs, the
    path follows the last of them. Where two inputs are multiplied, as by squeeze-and-excitation
    (`gate * maps`), the first one is a factor for each channel, which has no positions: in all of
    torchvision's networks the maps are the last input.
    """
    from torch.fx import Graph, symbolic_trace

    # The module is put into a container. If it were a single layer such as a convolution, tracing
    # the module itself would look inside the layer and find no layer.
    traced = nn.Sequential(module)
    graph: Graph = symbolic_trace(traced).graph
    modules = dict(traced.named_modules())
    # Walk from the output back to the input.
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
    """Return the layers of a network, found by tracing. Its images are (B, channels, H, W).

    The layers that were found are tested: they have to predict how many positions the network has
    in images of two sizes. Returns None where tracing or this test fails.
    """
    # A user may have frozen some modules in evaluation mode: each gets its own mode back.
    modes = [(module, module.training) for module in network.modules()]
    network.eval()
    try:
        layers = layers_on_path(network)
        shapes = [_positions_shape(network, side) for side in _PROBES]
    except Exception:  # noqa: BLE001 a user's network may fail here in any way
        return None
    finally:
        for module, is_training in modes:
            module.training = is_training
    for side, shape in zip(_PROBES, shapes, strict=True):
        size = output_size(layers, side)
        if shape != (size, size):
            return None
    return layers


@torch.no_grad()
def _positions_shape(network: nn.Module, side: int) -> tuple[int, ...]:
    """Run a network on a black square image, and return how many positions (h, w) it has there."""
    first = next(module for module in network.modules() if isinstance(module, nn.Conv2d))
    image = torch.zeros(1, first.in_channels, side, side, device=first.weight.device)
    return tuple(network(image).shape[2:])


def _layer(module: nn.Conv2d | nn.MaxPool2d | nn.AvgPool2d) -> Layer:
    """Return the geometry of a square layer, read along its height."""
    # An average pooling has no dilation. The size of a dilated kernel is the pixels that it spans.
    dilation = _side(getattr(module, "dilation", 1))
    kernel = dilation * (_side(module.kernel_size) - 1) + 1
    padding = module.padding
    if isinstance(padding, str):
        # torch knows two texts, "same" and "valid".
        padding = (kernel - 1) // 2 if padding == "same" else 0
    channels = module.out_channels if isinstance(module, nn.Conv2d) else 0
    return Layer(channels, kernel, _side(module.stride), _side(padding))


def _side(value: int | tuple[int, ...]) -> int:
    """Return the value for the height: the first of a pair (height, width), or a single number."""
    return value if isinstance(value, int) else value[0]
