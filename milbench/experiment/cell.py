"""The cell: one loss on one task, with one network, recipe and seed; and how it is stored and identified."""

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
"""The format of the cells that are planned now. Raise it when training computes something else from the same cell:
older results are then not reused."""
FORMAT_OF_BEFORE = 3
"""The format of a cell without this field: it was planned before cells had one."""


@dataclass(frozen=True)
class Cell:
    """Everything that determines the result of a training run, and nothing else."""

    loss: LossChoice
    task: TaskChoice
    network: NetworkChoice
    recipe: Recipe
    seed: int
    """It decides the initial weights, and the order and the content of the bags."""
    format: int = CELL_FORMAT

    @property
    def choices(self) -> dict[str, Choice]:
        """Loss, task and network by their kinds."""
        return {"loss": self.loss, "task": self.task, "network": self.network}

    @cached_property
    def id(self) -> str:
        """The content hash, 16 hexadecimal digits. It depends on the content of a plug-in, not on its path."""
        record = self.to_record()
        hashed = {name: value for name, value in record.items() if name not in NOT_HASHED}
        content = to_json([self.format, hashed])
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    @property
    def version(self) -> tuple[str, ...]:
        """What may differ between cells of one variant and seed: code, data and the format of the cell."""
        revisions = [choice.revision for choice in self.choices.values()]
        return (*revisions, self.task.data, str(self.format))

    @property
    def plugin_files(self) -> tuple[str, ...]:
        """The files of the user's own that it needs, and names of modules."""
        files = [choice.file for choice in self.choices.values()]
        return tuple(file for file in files if file)

    @property
    def has_plugins(self) -> bool:
        """Whether one of its loss, task and network is not milbench's own."""
        return any(choice.is_plugin for choice in self.choices.values())

    @cached_property
    def variant_key(self) -> str:
        """Loss, task, network and recipe with all parameters, whatever the seed and the versions of code and data."""
        network = [self.network.name, self.network.params]
        loss = [self.loss.name, self.loss.params]
        task = [self.task.name, self.task.params]
        return to_json([*loss, *task, network, stored_recipe(self.recipe)])

    def with_sources(self, sources: Mapping[str, str]) -> Cell:
        """Return the cell with its plug-ins in other places, by their kinds."""
        cell = self
        if "loss" in sources:
            cell = replace(cell, loss=replace(cell.loss, source=sources["loss"]))
        if "task" in sources:
            cell = replace(cell, task=replace(cell.task, source=sources["task"]))
        if "network" in sources:
            cell = replace(cell, network=replace(cell.network, source=sources["network"]))
        return cell

    def params(self) -> dict[str, Any]:
        """Return every parameter in one flat dict: "loss", "task", "network", "seed", "loss.KEY", "recipe.KEY", ...

        Later parameters at their neutral value are not among them; `Plan.params` has them too.
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
        """Return the cell as files hold it.

        These are the names of the stored format. Ids hash them but for those in `NOT_HASHED`, so
        none may ever be renamed, and a further one would change the id of every cell.
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
            "loss_file": loss.source,
            "task_file": task.source,
            "network_file": network.source,
            "task_name": task.short_name,
            "network_is_default": network.is_default,
            "format": self.format,
        }

    @classmethod
    def from_record(cls, record: object) -> Cell:
        """Return the cell that `to_record` described. Raises pydantic.ValidationError where it describes none."""
        return _RECORD.validate_python(record).cell()

    def __str__(self) -> str:
        return f"{self.loss} on {self.task.short_name or self.task}, seed {self.seed}"


NOT_HASHED = {
    "loss_file",
    "task_file",
    "network_file",
    "task_name",
    "network_is_default",
    "supervision",
    # It is hashed beside the fields.
    "format",
}
"""The fields of a record that are left out where the id of a cell is computed: the result does not depend on them."""


@checked_dataclass(frozen=True)
class _Record:
    """A cell as files hold it: the fields of `Cell.to_record`, with types by which a file is checked."""

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
    loss_file: str = ""
    task_file: str = ""
    network_file: str = ""
    task_name: str = ""
    network_is_default: bool = False
    format: int = FORMAT_OF_BEFORE

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
        # As JSON it can be a key of a cache.
        recipe = _recipe_of(to_json(self.recipe))
        return Cell(loss, task, network, recipe, self.seed, self.format)


_RECORD = TypeAdapter(_Record)


# Thousands of cells share a few recipes.
@lru_cache(maxsize=4096)
def _recipe_of(record: str) -> Recipe:
    """Return the recipe of a record in JSON, which may lack fields that were added later."""
    return Recipe(**with_neutral(Recipe, json.loads(record)))


def stored_recipe(recipe: Recipe) -> dict[str, Any]:
    """Return the fields of a recipe as a cell keeps them: without later ones that have their neutral value.

    A recipe that was read from an old cell keeps the fields of then, which its id depends on.
    """
    return without_neutral(Recipe, recipe.model_dump(exclude_unset=True))
