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
    `milbench.contracts.bags.Truth.boxes`: the left edge of the image is 0 and the middle of its first pixel 0.5.
    """
    # The centre of the first position, and the distance of two positions. They begin with those of the pixels.
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

    One path is enough: all paths that meet in a sum have the same strides and centres, or the sum would add what is
    shown in different places. Where a module has several inputs, the last one is followed. In torchvision's networks
    that is never a gate on channels.
    """
    from torch.fx import Graph, symbolic_trace

    # Tracing would look inside of a layer that stands alone.
    traced = nn.Sequential(module)
    graph: Graph = symbolic_trace(traced).graph
    modules = dict(traced.named_modules())
    node = next(node for node in graph.nodes if node.op == "output")
    layers: list[Layer] = []
    while node.op != "placeholder":
        layer = modules.get(str(node.target)) if node.op == "call_module" else None
        if isinstance(layer, nn.Conv2d | nn.MaxPool2d | nn.AvgPool2d):
            layers.append(_layer(layer))
        node = [source for source in node.all_input_nodes if source.op != "get_attr"][-1]
    return tuple(layers[::-1])


def traced_layers(network: nn.Module) -> tuple[Layer, ...] | None:
    """Return the layers of a network of images (B, N, H, W), found by tracing; None where they are not known.

    What was found is tried: it has to predict how many positions the network has in images of two sizes.
    """
    convolutions = [module for module in network.modules() if isinstance(module, nn.Conv2d)]
    training = network.training
    try:
        layers = layers_on_path(network.eval())
        images = (torch.zeros(1, convolutions[0].in_channels, side, side) for side in _PROBES)
        device = convolutions[0].weight.device
        with torch.no_grad():
            shapes = [tuple(network(image.to(device)).shape[2:]) for image in images]
    except Exception:  # noqa: BLE001 a user's network may fail here in any way
        return None
    finally:
        network.train(training)
    is_exact = shapes == [(output_size(layers, side),) * 2 for side in _PROBES]
    return layers if is_exact else None


def _layer(module: nn.Conv2d | nn.MaxPool2d | nn.AvgPool2d) -> Layer:
    """Return the geometry of a module, which holds along both sides where its sides are equal."""
    kernel = _side(getattr(module, "dilation", 1)) * (_side(module.kernel_size) - 1) + 1
    padding = module.padding
    if isinstance(padding, str):
        padding = (kernel - 1) // 2 if padding == "same" else 0
    channels = module.out_channels if isinstance(module, nn.Conv2d) else 0
    return Layer(channels, kernel, _side(module.stride), _side(padding))


def _side(value: int | tuple[int, ...]) -> int:
    return value if isinstance(value, int) else value[0]
