"""Draw a network: its layers from left to right.

A layer is drawn as a box. More positions make it higher, and more channels wider.
"""

import io
import math
from typing import Any, NamedTuple

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor, nn

from milbench._utils.palette import MUTED
from milbench.contracts.network import Network
from milbench.networks.sequence import SequenceNetwork

DRAWN = nn.Conv1d | nn.Conv2d | nn.Linear | nn.GRU
"""The layers that are drawn."""
INPUT_COLOUR = "#c3cad4"
LAYER_COLOUR = "#0e7490"


class Box(NamedTuple):
    """What is drawn of a layer: its name, and the channels and positions of its output."""

    name: str
    channels: int
    positions: tuple[int, ...]
    """The size of each dimension of positions."""


def picture(network: Network, sample: Tensor) -> bytes:
    """Return a PNG of the layers of a network, in the order in which they run.

    Args:
        network: the network.
        sample: one bag that it can read, (1, *bag_shape).
    """
    boxes = [_input_box(network, sample), *_layer_boxes(network, sample)]
    most_positions = max(math.prod(box.positions) for box in boxes)
    figure = Figure(figsize=(max(4.8, 0.68 * len(boxes)), 2.2), layout="constrained")
    axes = figure.subplots()
    for number, box in enumerate(boxes):
        _draw_box(axes, box, number, most_positions)
    axes.set(xlim=(-0.6, len(boxes) - 0.4), ylim=(-0.95, 0.85))
    axes.axis("off")
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=130)
    return file.getvalue()


def _draw_box(axes: Axes, box: Box, number: int, most_positions: int) -> None:
    """Draw a layer: its height and width grow with the logarithms of its positions and channels."""
    width = 0.2 + 0.07 * math.log2(box.channels)
    positions = math.prod(box.positions)
    height = 0.2 + 0.8 * math.log2(positions) / max(math.log2(most_positions), 1)
    colour = INPUT_COLOUR if number == 0 else LAYER_COLOUR
    corner = (number - width / 2, -height / 2)
    axes.add_patch(Rectangle(corner, width, height, facecolor=colour))
    size = f"{box.channels}\n{' x '.join(map(str, box.positions))}"
    axes.text(number, height / 2 + 0.04, size, ha="center", va="bottom", fontsize=7)
    axes.text(number, -0.56, box.name, ha="center", va="top", fontsize=7, color=MUTED)


def _input_box(network: Network, sample: Tensor) -> Box:
    """Return the box of a bag, whose features come last in sets, and first in other bags."""
    is_set = sample.ndim == 3 and not isinstance(network, SequenceNetwork)
    if is_set:
        return _box_with_channels_last("input", sample[0])
    return _box_with_channels_first("input", sample[0])


def _layer_boxes(network: Network, sample: Tensor) -> list[Box]:
    """Return the boxes of the layers of a network, in the order in which they run."""
    boxes: list[Box] = []

    def keep(layer: nn.Module, _: Any, output: Any) -> None:
        # A GRU returns its state as well.
        values = output[0] if isinstance(output, tuple) else output
        of_bag = values[0]
        if isinstance(layer, nn.Linear | nn.GRU):
            boxes.append(_box_with_channels_last(_name(layer), of_bag))
        else:
            boxes.append(_box_with_channels_first(_name(layer), of_bag))

    layers = [layer for layer in network.modules() if isinstance(layer, DRAWN)]
    hooks = [layer.register_forward_hook(keep) for layer in layers]
    with torch.no_grad():
        network.eval()(sample)
    for hook in hooks:
        hook.remove()
    return boxes


def _box_with_channels_last(name: str, values: Tensor) -> Box:
    *positions, channels = values.shape
    # A layer without dimensions of positions has one position.
    return Box(name, channels, tuple(positions) or (1,))


def _box_with_channels_first(name: str, values: Tensor) -> Box:
    channels, *positions = values.shape
    return Box(name, channels, tuple(positions))


def _name(layer: nn.Module) -> str:
    """Return the text below a layer."""
    if isinstance(layer, nn.GRU):
        return "GRU"
    if not isinstance(layer, nn.Conv1d | nn.Conv2d):
        return "linear"
    kernel = "x".join(map(str, layer.kernel_size))
    stride = layer.stride[0]
    if stride > 1:
        return f"conv\n{kernel}\nstride {stride}"
    return f"conv\n{kernel}"
