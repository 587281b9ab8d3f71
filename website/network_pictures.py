"""The drawing of a network: its layers from left to right, as high as their positions and as wide as their channels."""

import io
import math
from typing import Any, NamedTuple

import torch
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor, nn

from milbench._utils.palette import MUTED
from milbench.contracts.network import Network
from milbench.networks.sequence import SequenceNetwork

DRAWN = nn.Conv1d | nn.Conv2d | nn.Linear | nn.GRU
INPUT, LAYER = "#c3cad4", "#0e7490"


class Box(NamedTuple):
    """What is drawn of a layer: its name, the channels of its output, and the places that have them."""

    name: str
    channels: int
    places: tuple[int, ...]


def picture(network: Network, sample: Tensor) -> bytes:
    """Return a PNG of the layers of a network, in the order in which they ran on one bag (1, *bag_shape)."""
    channels_last = sample.ndim == 3 and not isinstance(network, SequenceNetwork)
    boxes = [_box("input", sample[0], channels_last=channels_last), *_layers(network, sample)]
    most = max(math.prod(box.places) for box in boxes)
    figure = Figure(figsize=(max(4.8, 0.68 * len(boxes)), 2.2), layout="constrained")
    axes = figure.subplots()
    for number, box in enumerate(boxes):
        width = 0.2 + 0.07 * math.log2(box.channels)
        height = 0.2 + 0.8 * math.log2(math.prod(box.places)) / max(math.log2(most), 1)
        colour = LAYER if number else INPUT
        axes.add_patch(
            Rectangle((number - width / 2, -height / 2), width, height, facecolor=colour)
        )
        size = f"{box.channels}\n{' x '.join(map(str, box.places))}"
        axes.text(number, height / 2 + 0.04, size, ha="center", va="bottom", fontsize=7)
        axes.text(number, -0.56, box.name, ha="center", va="top", fontsize=7, color=MUTED)
    axes.set(xlim=(-0.6, len(boxes) - 0.4), ylim=(-0.95, 0.85))
    axes.axis("off")
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=130)
    return file.getvalue()


def _layers(network: Network, sample: Tensor) -> list[Box]:
    boxes: list[Box] = []

    def keep(layer: nn.Module, _: Any, output: Any) -> None:
        values = (output[0] if isinstance(output, tuple) else output)[0]
        boxes.append(
            _box(_name(layer), values, channels_last=isinstance(layer, nn.Linear | nn.GRU))
        )

    hooks = [
        layer.register_forward_hook(keep) for layer in network.modules() if isinstance(layer, DRAWN)
    ]
    with torch.no_grad():
        network.eval()(sample)
    for hook in hooks:
        hook.remove()
    return boxes


def _box(name: str, values: Tensor, *, channels_last: bool) -> Box:
    shape = tuple(values.shape)
    return (
        Box(name, shape[-1], shape[:-1] or (1,))
        if channels_last
        else Box(name, shape[0], shape[1:])
    )


def _name(layer: nn.Module) -> str:
    if isinstance(layer, nn.Conv1d | nn.Conv2d):
        kernel = "x".join(map(str, layer.kernel_size))
        return f"conv\n{kernel}" + (f"\nstride {layer.stride[0]}" if layer.stride[0] > 1 else "")
    return "GRU" if isinstance(layer, nn.GRU) else "linear"
