"""What a spec chooses: a loss, a task and a network, each with its parameters and the version of its code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from milbench._utils.files import file_and_member
from milbench.contracts.supervision import Supervision

Params = Mapping[str, Any]
"""Parameters by name, of values that JSON can hold."""

DIGEST_LENGTH = 64
"""Characters of the digest with which the revision of a plug-in ends."""

to_json = json.JSONEncoder(sort_keys=True).encode
"""Write a value as JSON with sorted keys. Ids are hashes of such texts, so that the order of keys means nothing."""


@dataclass(frozen=True)
class Choice:
    """One loss, task or network with its parameters.

    The parameters are complete but for those that were `added` to its class later and have their
    neutral value; see `milbench.contracts.parameters.without_neutral`.
    """

    kind: ClassVar[str]
    """loss, task or network: what messages call it, and which registry it is found in."""

    name: str
    params: Params
    revision: str
    """The `revision` of its class, with a digest of its source where it is a plug-in."""
    source: str = ""
    """The file or the module that the user named, perhaps with `:MEMBER`; "" for what is built in or installed."""

    @property
    def reference(self) -> str:
        """What it is found by again in a registry: its source, or its name where it has none."""
        return self.source or self.name

    @property
    def is_plugin(self) -> bool:
        """Whether it is not milbench's own: its revision ends with a digest, or names an installed package."""
        return len(self.revision) > DIGEST_LENGTH or " of " in self.revision

    @property
    def file(self) -> str:
        """The file or the module of a plug-in of the user's own, without its member; "" for all others."""
        file, _ = file_and_member(self.source)
        return file or self.source

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class LossChoice(Choice):
    """A loss with its parameters."""

    kind: ClassVar[str] = "loss"

    supervision: Supervision = "set"
    """What the loss learns from. The class of the loss decides it."""


@dataclass(frozen=True)
class TaskChoice(Choice):
    """A task with its parameters and data."""

    kind: ClassVar[str] = "task"

    data: str = ""
    """The digest that `Task.check_data` returns; "" until the plan is made."""
    short_name: str = ""
    """The name that the spec gives the task with these parameters, "" for none."""

    @property
    def key(self) -> str:
        """The task with its parameters as one text, a key of `Plan.tasks`."""
        return task_key(self.name, self.params)


def task_key(name: str, params: Params) -> str:
    """Return a task with its parameters as one text."""
    return f"{name} {to_json(params)}"


@dataclass(frozen=True)
class NetworkChoice(Choice):
    """A network with its parameters; its revision ends with the digest of a file of initial weights, if it has one."""

    kind: ClassVar[str] = "network"

    is_default: bool = False
    """Whether it was asked for as the first network of its task: it is then one variant on all tasks."""
