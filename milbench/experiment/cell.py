"""The cell: one loss on one task, with one network, recipe and seed.

This module also says how a cell is stored, and how its id is computed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

from pydantic import TypeAdapter
from pydantic.dataclasses import dataclass as checked_dataclass

from milbench.contracts.parameters import with_neutral, without_neutral
from milbench.contracts.recipe import Recipe
from milbench.contracts.supervision import Supervision
from milbench.experiment.choices import Choice, LossChoice, NetworkChoice, TaskChoice, to_json

CELL_FORMAT = 4
"""The format of the cells that are planned now.

Raise it when training computes something else from the same cell, so that older results are not
used any longer.
"""


@dataclass(frozen=True)
class Cell:
    """Everything that determines the result of a training run, and nothing else."""

    loss: LossChoice
    task: TaskChoice
    network: NetworkChoice
    recipe: Recipe
    seed: int
    """Decides the initial weights, and the order and the content of the bags."""
    format: int = CELL_FORMAT

    @property
    def choices(self) -> dict[str, Choice]:
        """Loss, task and network by their kinds."""
        return {"loss": self.loss, "task": self.task, "network": self.network}

    @cached_property
    def id(self) -> str:
        """The content hash, 16 hexadecimal digits.

        It depends on the content of a plug-in, not on the path of its file.
        """
        record = self.to_record()
        hashed = {name: value for name, value in record.items() if name not in NOT_HASHED}
        content = to_json([self.format, hashed])
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    @property
    def version(self) -> tuple[str, ...]:
        """The versions of the code, the data and the format of the cell.

        Cells of the same variant and seed have other ids if they differ in one of these.
        """
        revisions = [choice.revision for choice in self.choices.values()]
        return (*revisions, self.task.data, str(self.format))

    @property
    def plugin_files(self) -> tuple[str, ...]:
        """The files, or names of modules, that hold the user's own plug-ins of the cell."""
        files = [choice.file for choice in self.choices.values()]
        # The file is "" for what is built in or installed.
        return tuple(file for file in files if file)

    @property
    def has_plugins(self) -> bool:
        """Whether its loss, task or network is not milbench's own."""
        return any(choice.is_plugin for choice in self.choices.values())

    @cached_property
    def variant_key(self) -> str:
        """The loss, task, network and recipe with all parameters, as one text.

        It does not depend on the seed, nor on the versions of code and data.
        """
        loss = [self.loss.name, self.loss.params]
        task = [self.task.name, self.task.params]
        network = [self.network.name, self.network.params]
        return to_json([loss, task, network, stored_recipe(self.recipe)])

    def with_sources(self, sources: Mapping[str, str]) -> Cell:
        """Return the cell with other sources of its plug-ins.

        `sources` is kind ("loss", "task" or "network") -> `Choice.source` of the plug-in: its file
        or module, perhaps with `:MEMBER`.
        """
        cell = self
        if "loss" in sources:
            cell = replace(cell, loss=replace(cell.loss, source=sources["loss"]))
        if "task" in sources:
            cell = replace(cell, task=replace(cell.task, source=sources["task"]))
        if "network" in sources:
            cell = replace(cell, network=replace(cell.network, source=sources["network"]))
        return cell

    def params(self) -> dict[str, Any]:
        """Return every parameter in one flat dict.

        Its keys are "loss", "task", "network", "seed", "loss.KEY", "recipe.KEY" and so on.
        A parameter that was added after cells had been stored is left out at its neutral value, the
        value that changes nothing (`milbench.contracts.parameters`); `Plan.params` includes
        it.
        """
        flat: dict[str, Any] = {kind: choice.name for kind, choice in self.choices.items()}
        flat["seed"] = self.seed
        for kind, choice in self.choices.items():
            for key, value in choice.params.items():
                flat[f"{kind}.{key}"] = value
        for key, value in stored_recipe(self.recipe).items():
            flat[f"recipe.{key}"] = value
        return flat

    def to_record(self) -> dict[str, Any]:
        """Return the cell as files hold it, in values that JSON can hold.

        The id of a cell is a hash of these keys and values, except those in `NOT_HASHED`. So no key
        may ever be renamed, and a further hashed key would change the id of every cell.
        """
        loss = self.loss
        task = self.task
        network = self.network
        return {
            "loss": loss.name,
            "loss_params": dict(loss.params),
            "loss_revision": loss.revision,
            "supervision": loss.supervision,
            "task": task.name,
            "task_params": dict(task.params),
            "task_revision": task.revision,
            "data": task.data,
            "network": network.name,
            "network_params": dict(network.params),
            "network_revision": network.revision,
            "recipe": stored_recipe(self.recipe),
            "seed": self.seed,
            # The next three keys say "file", but hold sources, perhaps with `:MEMBER`. What the
            # code calls `Choice.file` is a source without `:MEMBER`.
            "loss_file": loss.source,
            "task_file": task.source,
            "network_file": network.source,
            "task_name": task.short_name,
            "network_is_default": network.is_default,
            "format": self.format,
        }

    @classmethod
    def from_record(cls, record: object) -> Cell:
        """Return the cell that `to_record` described.

        Raises pydantic.ValidationError where the record describes no cell.
        """
        return _RECORD.validate_python(record).cell()

    def __str__(self) -> str:
        return f"{self.loss} on {self.task.short_name or self.task}, seed {self.seed}"


NOT_HASHED = {
    # No result depends on these: where a plug-in lies, and how spec and report name a choice.
    "loss_file",
    "task_file",
    "network_file",
    "task_name",
    "network_is_default",
    # The class of the loss decides the supervision, and name and revision of the loss are hashed.
    "supervision",
    # `Cell.id` puts the format in front of the hashed fields instead.
    "format",
}
"""The fields of a record that are not among the hashed fields of `Cell.id`."""


@checked_dataclass(frozen=True)
class _Record:
    """The fields of `Cell.to_record`, with the types by which a file is checked."""

    loss: str
    loss_params: dict[str, Any]
    loss_revision: str
    supervision: Supervision
    task: str
    task_params: dict[str, Any]
    task_revision: str
    data: str
    network: str
    network_params: dict[str, Any]
    network_revision: str
    recipe: dict[str, Any]
    seed: int
    loss_file: str
    task_file: str
    network_file: str
    task_name: str
    network_is_default: bool
    format: int

    def cell(self) -> Cell:
        """Return the cell that the record describes."""
        loss = LossChoice(
            name=self.loss,
            params=self.loss_params,
            revision=self.loss_revision,
            source=self.loss_file,
            supervision=self.supervision,
        )
        task = TaskChoice(
            name=self.task,
            params=self.task_params,
            revision=self.task_revision,
            source=self.task_file,
            data=self.data,
            short_name=self.task_name,
        )
        network = NetworkChoice(
            name=self.network,
            params=self.network_params,
            revision=self.network_revision,
            source=self.network_file,
            is_default=self.network_is_default,
        )
        # As JSON text, since the argument is a key of a cache, which a dict cannot be.
        recipe = _recipe_of(to_json(self.recipe))
        return Cell(loss, task, network, recipe, seed=self.seed, format=self.format)


_RECORD = TypeAdapter(_Record)


# Thousands of cells share a few recipes.
@lru_cache(maxsize=4096)
def _recipe_of(record: str) -> Recipe:
    """Return the recipe of a record in JSON.

    Fields that were added later and that the record lacks get the values that change nothing.
    """
    return Recipe(**with_neutral(Recipe, json.loads(record)))


def stored_recipe(recipe: Recipe) -> dict[str, Any]:
    """Return the fields of a recipe as a cell keeps them.

    Fields that were added after cells had been stored are left out at their neutral value, which
    changes nothing (`milbench.contracts.parameters`). A recipe that was read from an old cell keeps
    exactly the fields that were stored, since the id of the cell depends on them. A recipe that is
    planned anew has all fields.
    """
    return without_neutral(Recipe, recipe.model_dump(exclude_unset=True))
