"""Networks by name: those of a task, torchvision's, those that see whole bags, and the user's own."""

import re
from collections.abc import Mapping
from functools import cache, partial
from importlib.metadata import version
from typing import Any

import torch

from milbench._utils.files import python_files
from milbench.contracts.loss import Head
from milbench.contracts.network import Network, NetworkMaker, input_standardised
from milbench.contracts.parameters import check_values, network_parameters, neutral_values
from milbench.contracts.problem import BagFormat
from milbench.contracts.registry import Registry, built_in_functions, losses, tasks
from milbench.contracts.resolver import reload_edited_plugins, resolve
from milbench.contracts.task import Task
from milbench.errors import UsageError, hint
from milbench.networks.attention_pooling import DSMIL, GatedAttention, SetTransformer
from milbench.networks.backbone import FAMILIES, Backbone, backbones
from milbench.networks.bag_network import HIDDEN
from milbench.networks.context import Context

TaskOrClass = Task | type[Task]
OF_BAGS: dict[str, type[Network]] = {
    "gated-attention": GatedAttention,
    "dsmil": DSMIL,
    "set-transformer": SetTransformer,
    "context": Context,
}
"""The networks that see the whole bag, on the encoder of any task."""


@cache
def networks() -> Registry[NetworkMaker]:
    """Return the registry of networks that suit more than one task."""
    return Registry("network", "networks", built_in_functions(OF_BAGS), base=lambda: Network)


def registries() -> dict[str, Registry[Any]]:
    """Return the registries of losses, tasks and networks by their kinds, as the fields of a cell name them."""
    return {registry.kind: registry for registry in (losses(), tasks(), networks())}


def network_name(task: TaskOrClass, reference: str, head: Head | None = None) -> str:
    """Return the name of the network that a user refers to: "default", a name, a file or a module; or UsageError."""
    makers = _task_makers(task, head)
    if reference == "default":
        if not makers:
            condition = f" for losses with the head {head}" if head else ""
            raise UsageError(f"{task.name} has no network{condition}")
        return next(iter(makers))
    if reference in makers or _is_torchvision(task, reference):
        return reference
    # A file or a module has a dot or a colon in it; a name has none.
    is_name = not re.search("[.:]", reference)
    if is_name and reference not in networks().entries:
        raise _unsuitable(task, reference, head)
    name = resolve(networks(), reference)
    if name in makers or _is_torchvision(task, name):
        raise UsageError(
            f"the network of {reference} is named {name!r}, as another one of {task.name} is: rename it"
        )
    return name


def network_maker(task: TaskOrClass, name: str, head: Head | None = None) -> NetworkMaker:
    """Return the maker of a network for a task and losses with a head, None: any; UsageError with those that suit."""
    makers = _task_makers(task, head)
    if name in makers:
        return makers[name]
    maker: NetworkMaker
    if _is_torchvision(task, name):
        maker = partial(Backbone, name)
    elif name in networks().entries:
        maker = networks().get(name)
    else:
        raise _unsuitable(task, name, head)
    if head and head not in loss_heads(maker):
        raise _unsuitable(task, name, head)
    return maker


def suitable_networks(task: TaskOrClass, head: Head | None = None) -> list[str]:
    """Return the names of networks for a task and losses with this head, the default first."""
    suitable = list(_task_makers(task, head))
    for name in networks().names():
        if name not in suitable and _suits(name, head):
            suitable.append(name)
    return suitable


def _suits(name: str, head: Head | None) -> bool:
    """Return whether a network that belongs to no task suits losses with a head; a broken one suits none."""
    try:
        maker = networks().get(name)
    except UsageError:
        return False
    return head is None or head in loss_heads(maker)


def network_source(task: TaskOrClass, name: str, head: Head | None = None) -> tuple[str, str]:
    """Return what identifies the code of a network for a task, and its file or module where it is the user's own."""
    maker = network_maker(task, name, head)
    revision = str(getattr(unwrapped(maker), "revision", 1))
    encoder = _encoder_name(task, name, maker)
    if encoder:
        encoder_revision, _ = network_source(task, encoder)
        revision += f" on {encoder} {encoder_revision}"
    if name in _task_makers(task, head):
        # Its code is part of the task, whose own file is known.
        return revision, ""
    if _is_torchvision(task, name):
        # Without what tells builds of one version apart, as in 0.21.0+cpu.
        release, _, _ = version("torchvision").partition("+")
        return f"{revision} of torchvision {release}", ""
    entry = networks().entry(name)
    return f"{revision}{entry.record.digest}", entry.source


def make_network(
    task: Task,
    bag_format: BagFormat,
    name: str,
    params: Mapping[str, Any],
    seed: int,
    head: Head = "softmax",
) -> Network:
    """Return a new network for bags of a task and losses with this head, on the CPU.

    One that takes an encoder gets the task's first network. Raises UsageError where there is no
    such network, it does not suit, or what its maker returns is no `Network`.
    """
    inputs = bag_format.inputs
    classes = bag_format.num_classes
    maker = network_maker(task, name, head)
    encoder_name = _encoder_name(task, name, maker)
    if encoder_name:
        make_encoder = network_maker(task, encoder_name)
        # A cell does not say the parameters of the encoder: it stays what it was when they were
        # added.
        neutral = neutral_values(make_encoder)
        # A network has one output more than it has classes.
        encoder = make_encoder(inputs, HIDDEN - 1, seed, **neutral)
        network = maker(HIDDEN, classes, seed, **params).with_encoder(encoder, seed)
    else:
        network = _checked(name, maker(inputs, classes, seed, **params))
        if network.takes_encoder and not takes_encoder(maker):
            raise UsageError(
                f"network {name!r} takes an encoder: name its class, not a function that makes it"
            )
    if network.standardises or bag_format.standardise is None:
        return network
    return input_standardised(network, bag_format.standardise())


def load_network(name: str, inputs: int, num_classes: int, seed: int, **params: Any) -> Network:
    """Return a new network on the CPU, from instances to logits (B, C+1, *positions), background last.

    The name is that of a network that sees the whole bag, such as `context`, of torchvision or an
    installed package, or of a file, `FILE.py` or `FILE.py:NAME`, or a module; those that belong to
    tasks are in their `networks`. Inputs are N, the channels of images (B, N, H, W), or D, the
    features of instances (B, K, D) or frames (B, D, T), and `num_classes` is C, the background not
    counted. A network that takes an encoder has none here, and works on sets (B, K, D). Raises
    UsageError where there is no such network, or it cannot be imported or made.

    Examples:
        >>> import torch
        >>> network = load_network("gated-attention", inputs=2, num_classes=3, seed=0)
        >>> network(torch.zeros(1, 6, 2)).shape  # one bag of six instances
        torch.Size([1, 4, 6])
    """
    maker = general_maker(name)
    params = check_values(f"network {name}", network_parameters(maker), params)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return _checked(name, maker(inputs, num_classes, seed, **params))


def general_maker(name: str) -> NetworkMaker:
    """Return the maker of a network that belongs to no task, of any name that `load_network` takes, with its errors."""
    if name.startswith(FAMILIES) and name in backbones():
        return partial(Backbone, name)
    reload_edited_plugins()
    return networks().get(resolve(networks(), name))


def _checked(name: str, network: object) -> Network:
    if not isinstance(network, Network):
        raise UsageError(
            f"network {name!r} makes no milbench.Network, got {type(network).__name__}"
        )
    return network


def unwrapped(maker: NetworkMaker) -> NetworkMaker:
    """Return the class or function behind a partial, whose attributes say its revision and recipe."""
    return getattr(maker, "func", maker)


def takes_encoder(maker: NetworkMaker) -> bool:
    """Return whether a maker is a class of networks that take an encoder."""
    return bool(getattr(unwrapped(maker), "takes_encoder", False))


def loss_heads(maker: NetworkMaker) -> tuple[Head, ...]:
    """Return the heads of the losses that the networks of a maker suit."""
    heads: tuple[Head, ...] = getattr(unwrapped(maker), "loss_heads", Network.loss_heads)
    return heads


def suited(maker: NetworkMaker) -> str:
    """Return in words which tasks and losses the networks of a maker suit; the maker belongs to no task."""
    tasks_suited = "every task" if takes_encoder(maker) else "tasks with bags of its kind"
    heads = loss_heads(maker)
    if set(heads) >= set(Network.loss_heads):
        return tasks_suited
    return f"{tasks_suited}, losses with a {' or '.join(heads)} head"


def _encoder_name(task: TaskOrClass, name: str, maker: NetworkMaker) -> str:
    """Return the name of the encoder that a network gets on a task, "" for none."""
    if not takes_encoder(maker):
        return ""
    first = network_name(task, "default")
    # The first network of a task cannot be its own encoder.
    return "" if name == first else first


def _task_makers(task: TaskOrClass, head: Head | None) -> Mapping[str, NetworkMaker]:
    makers = task.classifiers if head == "class" else task.networks
    if not isinstance(makers, Mapping):
        raise UsageError(
            f"networks of {task.name} must be a mapping from names, got {type(makers).__name__}"
        )
    return makers


def _is_torchvision(task: TaskOrClass, name: str) -> bool:
    return task.bag_kind == "images" and name.startswith(FAMILIES) and name in backbones()


def _unsuitable(task: TaskOrClass, name: str, head: Head | None) -> UsageError:
    """Return the error that a network does not suit a task and head, or does not exist, with those that suit."""
    suitable = suitable_networks(task, head)
    known = ", ".join(suitable) or "none"
    if task.bag_kind == "images" and head != "class":
        known += ", and torchvision's, such as resnet18"
    if head == "softmax":
        with_sigmoid = suitable_networks(task, "sigmoid")
        others = [other for other in with_sigmoid if other not in suitable]
        if others:
            known += f"; for losses with the head sigmoid also {', '.join(others)}"

    # A name that is registered is no misspelt file.
    files = [] if name in networks().entries else python_files()
    similar = hint(name, [*suitable, *files])
    condition = f" and a loss with the head {head}" if head else ""
    return UsageError(
        f"{name!r} is no network for {task.name}{condition}{similar} (there are: {known})"
    )
