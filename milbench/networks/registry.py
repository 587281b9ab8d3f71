"""Networks by name: those of a task, torchvision's, those that pool instances, and the user's own."""

import inspect
import re
from collections.abc import Mapping
from functools import cache, partial
from importlib.metadata import version
from typing import Any

import torch

from milbench.api.loss import Head
from milbench.api.network import Network, NetworkMaker, input_standardised
from milbench.api.parameters import check_values, network_parameters
from milbench.api.registry import Registry, losses, own_functions, tasks
from milbench.api.resolver import read_edited, resolve
from milbench.api.task import Task
from milbench.errors import UsageError, hint
from milbench.networks.attention_pooling import DSMIL, AttentionPooling, GatedAttention, SetTransformer
from milbench.networks.backbone import FAMILIES, Backbone, backbones

TaskOrClass = Task | type[Task]
HIDDEN = 64
"""The features of an instance that a network pools."""
POOLING: dict[str, NetworkMaker] = {
    "gated-attention": GatedAttention, "dsmil": DSMIL, "set-transformer": SetTransformer
}  # fmt: skip
"""The networks that pool the instances of a bag, on the encoder of any task."""


@cache
def networks() -> Registry[NetworkMaker]:
    """Return the registry of networks that suit more than one task."""
    return Registry("network", "networks", own_functions(POOLING), base=lambda: Network)


def registries() -> dict[str, Registry[Any]]:
    """Return the registries of losses, tasks and networks by their kinds, as the fields of a cell name them."""
    return {registry.kind: registry for registry in (losses(), tasks(), networks())}


def network_name(task: TaskOrClass, given: str, head: Head | None = None) -> str:
    """Return the name of what a user has given for a task: "default", a name, a file or a module; or UsageError."""
    of_task = _own(task, head)
    if given == "default":
        if not of_task:
            raise UsageError(f"{task.name} has no network" + f" for losses with the head {head}" * bool(head))
        return next(iter(of_task))
    if given in of_task or _of_torchvision(task, given):
        return given
    if given not in networks().entries and not re.search("[.:]", given):
        raise _unsuitable(task, given, head)
    name = resolve(networks(), given)
    if name in of_task or _of_torchvision(task, name):
        raise UsageError(f"the network of {given} is named {name!r}, as another one of {task.name} is: rename it")
    return name


def network_maker(task: TaskOrClass, name: str, head: Head | None = None) -> NetworkMaker:
    """Return the maker of a network of this name for a task and losses with this head, None: any.

    Raises UsageError, with those that suit, where there is none, or it does not suit.
    """
    of_task = _own(task, head)
    if name in of_task:
        return of_task[name]
    if name not in networks().entries and not _of_torchvision(task, name):
        raise _unsuitable(task, name, head)
    maker = partial(Backbone, name) if _of_torchvision(task, name) else networks().get(name)
    if head == "class" or (head == "softmax" and pools(maker)):
        raise _unsuitable(task, name, head)
    return maker


def suitable_networks(task: TaskOrClass, head: Head | None = None) -> list[str]:
    """Return the names of networks for a task and losses with this head, the default first."""
    of_task = _own(task, head)
    general = [] if head == "class" else [n for n in networks().names() if head != "softmax" or n not in POOLING]
    return [*of_task, *(name for name in general if name not in of_task)]


def source_of(task: TaskOrClass, name: str, head: Head | None = None) -> tuple[str, str]:
    """Return what identifies the code of a network for a task, and its file or module where it is the user's own."""
    maker = network_maker(task, name, head)
    revision = str(getattr(unwrapped(maker), "revision", 1))
    if pools(maker):  # on the task's first network
        encoder = network_name(task, "default")
        revision += f" on {encoder} {source_of(task, encoder)[0]}"
    if name in _own(task, head):
        return revision, ""  # that of the task tells its file
    if _of_torchvision(task, name):
        return f"{revision} of torchvision {version('torchvision').partition('+')[0]}", ""
    entry = networks().entry(name)
    return f"{revision}{entry.source_digest}", entry.source


def make_network(task: Task, name: str, params: Mapping[str, Any], seed: int, head: Head = "softmax") -> Network:
    """Return a new network for a task, prepared or recalled, and losses with this head, on the CPU.

    One that pools instances gets the features of the task's first network. Raises UsageError where there is no such
    network, it does not suit, or what its maker returns is no `Network`.
    """
    maker = network_maker(task, name, head)
    if pools(maker):
        encoder = _own(task, head)[network_name(task, "default")](task.inputs, HIDDEN - 1, seed)  # C + 1 outputs
        pooling = maker(HIDDEN, task.num_classes, seed, **params)
        network: Network = pooling.with_encoder(encoder, seed)  # type: ignore[operator]
    else:
        network = _checked(name, maker(task.inputs, task.num_classes, seed, **params))
        if isinstance(network, AttentionPooling):
            raise UsageError(f"network {name!r} pools instances: name its class, which gets an encoder, not a function")
    standardise = None if network.standardises else task.standardise()
    return network if standardise is None else input_standardised(network, standardise)


def load_network(name: str, inputs: int, num_classes: int, seed: int, **params: Any) -> Network:
    """Return a new network on the CPU, from instances to logits (B, C+1, *positions), background last.

    The name is that of a network that pools instances, of torchvision or an installed package, or of a file, `FILE.py`
    or `FILE.py:NAME`, or a module; those that belong to tasks are in their `networks`. Inputs are N, the channels of
    images (B, N, H, W), or D, the features of instances (B, K, D) or frames (B, D, T), and `num_classes` is C, the
    background not counted. Raises UsageError where there is no such network, it cannot be imported, or what it makes is
    no `Network`.

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
        raise UsageError(f"network {name!r} makes no milbench.Network, got {type(network).__name__}")
    return network


def unwrapped(maker: NetworkMaker) -> NetworkMaker:
    """Return the class or function behind a partial, whose attributes say its revision and recipe."""
    return getattr(maker, "func", maker)


def pools(maker: NetworkMaker) -> bool:
    """Return whether a maker is a class of networks that pool instances, and need an encoder."""
    made = unwrapped(maker)
    return inspect.isclass(made) and issubclass(made, AttentionPooling)


def _own(task: TaskOrClass, head: Head | None) -> Mapping[str, NetworkMaker]:
    of_task = task.classifiers if head == "class" else task.networks
    if not isinstance(of_task, Mapping):
        raise UsageError(f"networks of {task.name} must be a mapping from names, got {type(of_task).__name__}")
    return of_task


def _of_torchvision(task: TaskOrClass, name: str) -> bool:
    return task.bag_kind == "images" and name.startswith(FAMILIES) and name in backbones()


def _unsuitable(task: TaskOrClass, name: str, head: Head | None) -> UsageError:
    suitable = suitable_networks(task, head)
    exists = name in networks().entries or name in task.networks or _of_torchvision(task, name)
    subject = f"{task.name} and a loss with the head {head}" if head and exists else task.name
    problem = f"network {name!r} does not suit {subject}" if exists else f"unknown network {name!r} for {subject}"
    rest = ", and torchvision's, such as resnet18" if task.bag_kind == "images" and head != "class" else ""
    return UsageError(f"{problem}{hint(name, suitable)} (there are: {', '.join(suitable) or 'none'}{rest})")
