"""Finding and making a network by its name.

It may be a network of a task, one of torchvision, one that sees whole bags, or a user's own.
"""

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
"""The networks that see the whole bag. They work on the outputs of a task's first network."""


@cache
def networks() -> Registry[NetworkMaker]:
    """Return the registry of networks that suit more than one task."""
    return Registry("network", "networks", built_in_functions(OF_BAGS), base=lambda: Network)


def registries() -> dict[str, Registry[Any]]:
    """Return the registries of losses, tasks and networks.

    Their keys are "loss", "task" and "network", as the fields of a cell are named.
    """
    return {registry.kind: registry for registry in (losses(), tasks(), networks())}


def network_name(task: TaskOrClass, reference: str, head: Head | None = None) -> str:
    """Return the name of the network that a user refers to.

    Args:
        task: the task that the network is for.
        reference: "default" for the first network of the task, a name, a file or a module.
        head: the head of the losses that the network is for; None: any.

    Raises:
        UsageError: there is no such network, or another network of the task has the same name.
    """
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
            f"the network of {reference} is named {name!r}, as another one of {task.name} is: "
            "rename it"
        )
    return name


def network_maker(task: TaskOrClass, name: str, head: Head | None = None) -> NetworkMaker:
    """Return the maker of a network for a task and for losses with a head; None: any head.

    Raises UsageError where the network does not suit. The message names networks that do.
    """
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
    """Return the names of the networks for a task and for losses with a head; None: any head.

    The default network of the task is the first. Torchvision's networks are left out.
    """
    suitable = list(_task_makers(task, head))
    for name in networks().names():
        if name not in suitable and _suits(name, head):
            suitable.append(name)
    return suitable


def _suits(name: str, head: Head | None) -> bool:
    """Return whether a network that belongs to no task suits losses with a head.

    A network that cannot be imported suits no loss.
    """
    try:
        maker = networks().get(name)
    except UsageError:
        return False
    return head is None or head in loss_heads(maker)


def network_source(task: TaskOrClass, name: str, head: Head | None = None) -> tuple[str, str]:
    """Return what identifies the code of a network for a task, and where the code is.

    The second text is the file or the module of a user's own network, else "".
    """
    maker = network_maker(task, name, head)
    revision = str(getattr(unwrapped(maker), "revision", 1))
    encoder = _encoder_name(task, name, maker)
    if encoder:
        encoder_revision, _ = network_source(task, encoder)
        revision += f" on {encoder} {encoder_revision}"
    if name in _task_makers(task, head):
        # The network is part of the code of the task, whose file a cell records.
        return revision, ""
    if _is_torchvision(task, name):
        # The build is left out, such as `cpu` in 0.21.0+cpu: it does not change the network.
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
    """Return a new network on the CPU, for bags of a task and for losses with a head.

    A network that takes an encoder gets the first network of the task as its encoder.

    Args:
        task: the task that the network is for.
        bag_format: the format of the bags, with the numbers of inputs and classes.
        name: the name of the network.
        params: the parameters of the network.
        seed: the seed of the initial weights.
        head: the head of the losses that the network is for.

    Raises:
        UsageError: there is no such network, it does not suit, or it is not a `Network`.
    """
    inputs = bag_format.inputs
    classes = bag_format.num_classes
    maker = network_maker(task, name, head)
    encoder_name = _encoder_name(task, name, maker)
    if encoder_name:
        make_encoder = network_maker(task, encoder_name)
        # A cell has no parameters of the encoder. With neutral values an encoder stays what it is
        # when parameters are added to its network.
        neutral = neutral_values(make_encoder)
        # HIDDEN outputs: a network has one output more than it has classes.
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
    """Return a new network on the CPU that makes logits (B, C+1, *positions), background last.

    Networks that belong to a task are not found: they are in the attribute `networks` of the task.
    A network that takes an encoder is made without one, and works on sets of instances (B, K, D).

    Args:
        name: a network that sees the whole bag, such as `context`, a network of torchvision or of
            an installed package, a file, `FILE.py` or `FILE.py:NAME`, or a module.
        inputs: N, the channels of images (B, N, H, W), or D, the features of instances (B, K, D) or
            of frames (B, D, T).
        num_classes: C, the number of classes without the background.
        seed: the seed of the initial weights.
        params: the parameters of the network.

    Raises:
        UsageError: there is no such network, or it cannot be imported or made.

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
    """Return the maker of a network that belongs to no task.

    `load_network` says which names there are, and which errors are raised.
    """
    if name.startswith(FAMILIES) and name in backbones():
        return partial(Backbone, name)
    reload_edited_plugins()
    return networks().get(resolve(networks(), name))


def _checked(name: str, network: object) -> Network:
    """Return what a maker has made. Raises UsageError where it is not a network."""
    if not isinstance(network, Network):
        raise UsageError(
            f"network {name!r} makes no milbench.Network, got {type(network).__name__}"
        )
    return network


def unwrapped(maker: NetworkMaker) -> NetworkMaker:
    """Return the class or function that a partial calls, or the maker itself.

    Its attributes, such as `revision` and `loss_heads`, describe the network.
    """
    return getattr(maker, "func", maker)


def takes_encoder(maker: NetworkMaker) -> bool:
    """Return whether a maker is a class of networks that take an encoder."""
    return bool(getattr(unwrapped(maker), "takes_encoder", False))


def loss_heads(maker: NetworkMaker) -> tuple[Head, ...]:
    """Return the heads of the losses that the networks of a maker suit."""
    heads: tuple[Head, ...] = getattr(unwrapped(maker), "loss_heads", Network.loss_heads)
    return heads


def suited(maker: NetworkMaker) -> str:
    """Return in words which tasks and losses a network suits that belongs to no task."""
    tasks_suited = "every task" if takes_encoder(maker) else "tasks with bags of its kind"
    heads = loss_heads(maker)
    if set(heads) >= set(Network.loss_heads):
        return tasks_suited
    return f"{tasks_suited}, losses with a {' or '.join(heads)} head"


def _encoder_name(task: TaskOrClass, name: str, maker: NetworkMaker) -> str:
    """Return the name of the encoder that a network gets on a task; "" if it gets none."""
    if not takes_encoder(maker):
        return ""
    first = network_name(task, "default")
    # The first network of a task cannot be its own encoder.
    return "" if name == first else first


def _task_makers(task: TaskOrClass, head: Head | None) -> Mapping[str, NetworkMaker]:
    """Return the makers of the networks that belong to a task, by name."""
    makers = task.classifiers if head == "class" else task.networks
    if not isinstance(makers, Mapping):
        raise UsageError(
            f"networks of {task.name} must be a mapping from names, got {type(makers).__name__}"
        )
    return makers


def _is_torchvision(task: TaskOrClass, name: str) -> bool:
    """Return whether the task is of images, and the name is a suitable network of torchvision."""
    return task.bag_kind == "images" and name.startswith(FAMILIES) and name in backbones()


def _unsuitable(task: TaskOrClass, name: str, head: Head | None) -> UsageError:
    """Return the error that a network does not suit, or does not exist.

    The message names the networks that suit.
    """
    suitable = suitable_networks(task, head)
    known = ", ".join(suitable) or "none"
    if task.bag_kind == "images" and head != "class":
        known += ", and torchvision's, such as resnet18"
    if head == "softmax":
        with_sigmoid = suitable_networks(task, "sigmoid")
        others = [other for other in with_sigmoid if other not in suitable]
        if others:
            known += f"; for losses with the head sigmoid also {', '.join(others)}"

    # A registered name is right but does not suit, so that no file is meant.
    files = [] if name in networks().entries else python_files()
    similar = hint(name, [*suitable, *files])
    condition = f" and a loss with the head {head}" if head else ""
    return UsageError(
        f"{name!r} is no network for {task.name}{condition}{similar} (there are: {known})"
    )
