"""Networks by name: those of a task, torchvision's, those that pool instances, and the user's own."""

import inspect
import re
from collections.abc import Mapping
from functools import cache, partial
from importlib.metadata import version
from typing import Any

import torch

from milbench._utils.files import python_files
from milbench.api.loss import Head
from milbench.api.network import Network, NetworkMaker, input_standardised
from milbench.api.parameters import check_values, network_parameters, neutral_values
from milbench.api.registry import Registry, built_in_functions, losses, tasks
from milbench.api.resolver import read_edited, resolve
from milbench.api.task import Task
from milbench.errors import UsageError, hint
from milbench.networks.attention_pooling import (
    DSMIL,
    AttentionPooling,
    GatedAttention,
    SetTransformer,
)
from milbench.networks.backbone import FAMILIES, Backbone, backbones

TaskOrClass = Task | type[Task]
HIDDEN = 64  # the features of an instance that a network pools
POOLING: dict[str, NetworkMaker] = {
    "gated-attention": GatedAttention, "dsmil": DSMIL, "set-transformer": SetTransformer
}  # fmt: skip
"""The networks that pool the instances of a bag, on the encoder of any task."""


@cache
def networks() -> Registry[NetworkMaker]:
    """Return the registry of networks that suit more than one task."""
    return Registry("network", "networks", built_in_functions(POOLING), base=lambda: Network)


def registries() -> dict[str, Registry[Any]]:
    """Return the registries of losses, tasks and networks by their kinds, as the fields of a cell name them."""
    return {registry.kind: registry for registry in (losses(), tasks(), networks())}


def network_name(task: TaskOrClass, reference: str, head: Head | None = None) -> str:
    """Return the name of the network that a user refers to: "default", a name, a file or a module; or UsageError."""
    makers = _task_makers(task, head)
    if reference == "default":
        if not makers:
            raise UsageError(
                f"{task.name} has no network" + f" for losses with the head {head}" * bool(head)
            )
        return next(iter(makers))
    if reference in makers or _is_torchvision(task, reference):
        return reference
    if reference not in networks().entries and not re.search("[.:]", reference):
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
    if name not in networks().entries and not _is_torchvision(task, name):
        raise _unsuitable(task, name, head)
    maker = partial(Backbone, name) if _is_torchvision(task, name) else networks().get(name)
    if head == "class" or (head == "softmax" and pools(maker)):
        raise _unsuitable(task, name, head)
    return maker


def suitable_networks(task: TaskOrClass, head: Head | None = None) -> list[str]:
    """Return the names of networks for a task and losses with this head, the default first."""
    makers = _task_makers(task, head)
    general = (
        []
        if head == "class"
        else [n for n in networks().names() if head != "softmax" or n not in POOLING]
    )
    return [*makers, *(name for name in general if name not in makers)]


def network_source(task: TaskOrClass, name: str, head: Head | None = None) -> tuple[str, str]:
    """Return what identifies the code of a network for a task, and its file or module where it is the user's own."""
    maker = network_maker(task, name, head)
    revision = str(getattr(unwrapped(maker), "revision", 1))
    if pools(maker):  # on the task's first network
        encoder = network_name(task, "default")
        revision += f" on {encoder} {network_source(task, encoder)[0]}"
    if name in _task_makers(task, head):
        return revision, ""  # that of the task tells its file
    if _is_torchvision(task, name):
        return f"{revision} of torchvision {version('torchvision').partition('+')[0]}", ""
    entry = networks().entry(name)
    return f"{revision}{entry.code.digest}", entry.source


def make_network(
    task: Task, name: str, params: Mapping[str, Any], seed: int, head: Head = "softmax"
) -> Network:
    """Return a new network for a task, prepared or recalled, and losses with this head, on the CPU.

    One that pools instances gets the features of the task's first network. Raises UsageError where there is no such
    network, it does not suit, or what its maker returns is no `Network`.
    """
    maker = network_maker(task, name, head)
    if pools(maker):
        make_encoder = network_maker(task, network_name(task, "default"))
        # A cell does not say the parameters of the encoder: it stays what it was when they were added.
        neutral = neutral_values(make_encoder)
        encoder = make_encoder(task.inputs, HIDDEN - 1, seed, **neutral)  # C + 1 outputs
        pooling = maker(HIDDEN, task.num_classes, seed, **params)
        network: Network = pooling.with_encoder(encoder, seed)  # type: ignore[operator]
    else:
        network = _checked(name, maker(task.inputs, task.num_classes, seed, **params))
        if isinstance(network, AttentionPooling):
            raise UsageError(
                f"network {name!r} pools instances: name its class, which gets an encoder, not a function"
            )
    standardise = None if network.standardises else task.standardise()
    return network if standardise is None else input_standardised(network, standardise)


def load_network(name: str, inputs: int, num_classes: int, seed: int, **params: Any) -> Network:
    """Return a new network on the CPU, from instances to logits (B, C+1, *positions), background last.

    The name is that of a network that pools instances, of torchvision or an installed package, or of a file, `FILE.py`
    or `FILE.py:NAME`, or a module; those that belong to tasks are in their `networks`. Inputs are N, the channels of
    images (B, N, H, W), or D, the features of instances (B, K, D) or frames (B, D, T), and `num_classes` is C, the
    background not counted. Raises UsageError where there is no such network, or it cannot be imported or made.

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
    read_edited()
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


def pools(maker: NetworkMaker) -> bool:
    """Return whether a maker is a class of networks that pool instances, and need an encoder."""
    cls = unwrapped(maker)
    return inspect.isclass(cls) and issubclass(cls, AttentionPooling)


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
    suitable, files = (
        suitable_networks(task, head),
        [] if name in networks().entries else python_files(),
    )
    problem = (
        f"{name!r} is no network for {task.name}" + f" and a loss with the head {head}" * bool(head)
    )
    torchvision = (
        ", and torchvision's, such as resnet18"
        if task.bag_kind == "images" and head != "class"
        else ""
    )
    pooling = f"; for losses with the head sigmoid also {', '.join(POOLING)}" * (head == "softmax")
    similar = hint(name, [*suitable, *files])
    return UsageError(
        f"{problem}{similar} (there are: {', '.join(suitable) or 'none'}{torchvision}{pooling})"
    )
