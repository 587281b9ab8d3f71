"""Cells whose networks have weights set by hand, so that their predictions are known."""

import json
from typing import Any

import torch
from safetensors.torch import save_file

from milbench import AllConvolutional, Network, Task
from milbench.contracts.registry import tasks
from milbench.evaluation.reading.reader import Reader
from milbench.experiment.cell import Cell
from milbench.networks.known_networks import make_network
from milbench.store.folders import Root
from milbench.store.gallery import Gallery
from milbench.store.gallery import write as write_gallery
from tests._helpers.cells import make_cell

LOGITS = {3: (140.0, -90.0), 7: (60.0, -20.0)}
"""Digit -> slope and offset of its logit, which is slope * grey + offset.

The background has the logit 0. So the background has the largest logit where a pixel is black (0),
a seven where it is grey (0.5), and a three where it is white (1):

    grey   three   seven   background
    0      -90     -20     0
    0.5    -20      10     0
    1       50      40     0
"""
COLOURS = {1: 0, 2: 1, 9: 2}
"""Digit of a house number -> the channel of its colour: a one is red, a two green, a nine blue."""
NETWORKS = {
    "extended-digits": "conv",
    "extended-mnist": "paper",
    "svhn": "small",
    "synthetic-bags": "mlp",
}
"""Task -> the network of its cells."""


def cell(task: str, seed: int = 0, **params: int | str) -> Cell:
    """Return a cell of the loss exact on a task with these parameters."""
    # A text that stands for the digest of the task's data.
    data = f"data of {task}"
    return make_cell(task=task, network=NETWORKS[task], task_params=params, data=data, seed=seed)


def network_of(name: str) -> Network:
    """Return the network of the task with this name.

    Each position reads one pixel, the middle of what the position sees.

    The layers before the last one copy this pixel: their parameters are zero, except for one weight
    of each channel of the image. The last layer gives the logits of LOGITS or COLOURS.
    """
    task: Task = tasks().create(name, {})
    network = make_network(
        task, bag_format=task.format_from({}), name=NETWORKS[name], params={}, seed=0
    )
    assert isinstance(network, AllConvolutional)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
        convolutions = [
            module for module in network.modules() if isinstance(module, torch.nn.Conv2d)
        ]
        *layers, head = convolutions
        for layer in layers:
            _pass_on(layer, channels=convolutions[0].in_channels)
        if name == "svhn":
            _recognise_colours(head)
        else:
            _recognise_greys(head)
    return network


def _pass_on(layer: torch.nn.Conv2d, channels: int) -> None:
    """Let a convolution copy the first `channels` channels of its middle pixel."""
    middle = layer.kernel_size[0] // 2
    for channel in range(channels):
        layer.weight[channel, channel, middle, middle] = 1


def _recognise_greys(head: torch.nn.Conv2d) -> None:
    """Give the digits of LOGITS their logits, the background 0, and every other digit -100.

    A digit with the logit -100 is never found.
    """
    assert head.bias is not None
    middle = head.kernel_size[0] // 2
    # The background is the last channel.
    head.bias[:-1] = -100
    for digit, (slope, offset) in LOGITS.items():
        head.bias[digit] = offset
        head.weight[digit, 0, middle, middle] = slope


def _recognise_colours(head: torch.nn.Conv2d) -> None:
    """Give the digits of COLOURS a logit of 20 where their channel is 1, and -10 where it is 0.

    The background has the logit 0, and every other digit -100.
    """
    assert head.bias is not None
    middle = head.kernel_size[0] // 2
    head.bias[:-1] = -100
    for digit, channel in COLOURS.items():
        # -10 where the channel is 0, and 30 - 10 = 20 where it is 1.
        head.bias[digit] = -10
        head.weight[digit, channel, middle, middle] = 30


def publish(
    root: Root,
    one: Cell,
    network: torch.nn.Module | None,
    *,
    decoder: Reader | None = None,
    metrics: dict[str, float] | None = None,
    memory: dict[str, Any] | None = None,
    threshold: float | None = None,
    gallery: Gallery | None = None,
) -> str:
    """Put a cell into a store as a launch leaves it, and return its id.

    A cell that is in the store already is replaced.

    Args:
        root: the store.
        one: the cell.
        network: the trained network; None for a cell that failed.
        decoder: the content of decoder.json: how a network's outputs are read as strings.
        metrics: the values of metrics, the same after each epoch; None: only a training loss.
        memory: the content of task.json: what predictions need to know of the task's data; None:
            the classes are the ten digits.
        threshold: the threshold that was chosen on validation bags.
        gallery: the gallery of the cell: a few test bags with what the loss detects in them.
    """
    folder = root.make().cell(one.id)
    folder.remove()
    folder.begin(one, label="", provenance={})
    if network is not None:
        # A trained network is stored below this name, beside the weights of its loss.
        model = torch.nn.ModuleDict({"network": network})
        weights = {name: values.contiguous() for name, values in model.state_dict().items()}
        save_file(weights, folder.weights)
    if decoder is not None:
        folder.decoder.write_text(json.dumps(decoder.model_dump(mode="json")))
    if memory is not None:
        folder.memory.write_text(json.dumps(memory))
    if gallery is not None:
        write_gallery(folder.gallery, gallery)
    for epoch in range(1, one.recipe.epochs + 1):
        folder.append(epoch, metrics or {"train/loss": 0.5})
    if network is None:
        folder.fail("ValueError: it broke")
    else:
        classes = memory["classes"] if memory else [str(n) for n in range(10)]
        folder.finish({"costs": {}, "threshold": threshold, "classes": classes})
    return one.id
