"""What a spec chooses: a loss, a task and a network.

Each choice has its parameters and the version of its code.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from milbench._utils.files import file_and_member
from milbench.contracts.supervision import Supervision

Params = Mapping[str, Any]
"""Name of a parameter -> its value, which JSON can hold."""

DIGEST_LENGTH = 64
"""The number of characters of the digest with which the revision of a plug-in ends."""

to_json = json.JSONEncoder(sort_keys=True).encode
"""Write a value as JSON with sorted keys.

Ids are hashes of such texts. They therefore do not depend on the order of keys.
"""


@dataclass(frozen=True)
class Choice:
    """One loss, task or network with its parameters.

    All parameters are there, except those that were `added` to its class after cells had been
    stored and have their neutral value: see `milbench.contracts.parameters.without_neutral`.
    """

    kind: ClassVar[str]
    """The word "loss", "task" or "network": for messages, and to find the registry."""

    name: str
    params: Params
    revision: str
    """The `revision` of its class, with a digest of its source where it is a plug-in."""
    source: str = ""
    """The file or module that the user named, perhaps with `:MEMBER`.

    It is "" for what is built in or installed.
    """

    @property
    def reference(self) -> str:
        """The text by which a registry finds it again: its source, or else its name."""
        return self.source or self.name

    @property
    def is_plugin(self) -> bool:
        """Whether it is not milbench's own.

        The revision of a plug-in ends with a digest, or names an installed package.
        """
        return len(self.revision) > DIGEST_LENGTH or " of " in self.revision

    @property
    def file(self) -> str:
        """The file or module of a plug-in of the user's own, without `:MEMBER`; else ""."""
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
    """A network with its parameters.

    If a file holds its initial weights, its revision ends with the digest of the file.
    """

    kind: ClassVar[str] = "network"

    is_default: bool = False
    """Whether the user asked for the first network of each task, and not for this name.

    Reports then leave the name out, so that a loss is one variant on all tasks.
    """
