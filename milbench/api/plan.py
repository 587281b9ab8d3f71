"""A cell: one loss on one task with one seed under one recipe, and the plan that holds many."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from milbench.errors import RENAMED, UsageError

if TYPE_CHECKING:
    from milbench.api.task import Task

COMPARISON_NAME = r"^[A-Za-z0-9][A-Za-z0-9._+-]*$"
"""What a comparison may be called: its report gets a folder of that name."""
CELL_FORMAT = 1
"""Raise it when the trainer computes something else from the same cell: older results are then not reused."""


@dataclass(frozen=True)
class Cell:
    """Everything that decides what is computed, and nothing else: not the device, the order or the number of jobs."""

    loss: str
    loss_params: dict[str, Any]
    loss_revision: str
    supervision: str
    task: str
    task_params: dict[str, Any]
    task_revision: str
    data: str
    recipe: dict[str, Any]
    seed: int
    loss_file: str = ""
    task_file: str = ""

    @cached_property
    def id(self) -> str:
        """Return the content hash; where a plug-in file lies does not count, what is in it does (its revision)."""
        what = {k: v for k, v in asdict(self).items() if k not in ("loss_file", "task_file", "supervision")}
        return hashlib.sha256(json.dumps([CELL_FORMAT, what], sort_keys=True).encode()).hexdigest()[:16]

    def params(self) -> dict[str, Any]:
        """Return every parameter in one flat dict, as the tracker and the report show them."""
        flat = {"loss": self.loss, "task": self.task, "seed": self.seed}
        for section, values in (("loss", self.loss_params), ("task", self.task_params), ("recipe", self.recipe)):
            flat |= {f"{section}.{k}": v for k, v in values.items()}
        return flat

    def __str__(self) -> str:
        return f"{self.loss} on {self.task}, seed {self.seed}"


@dataclass(frozen=True)
class TaskInfo:
    """What a report must know of a task without importing it."""

    primary: str
    published: list[dict[str, Any]]
    chance: float | None = None

    @classmethod
    def of(cls, task: Task) -> TaskInfo:
        """Read them off a task."""
        return cls(task.primary, [{"task": task.name, **asdict(p)} for p in task.published], task.chance)


@dataclass(frozen=True)
class Plan:
    """The cells of one named comparison."""

    name: str
    title: str
    source: str
    cells: list[Cell]
    tasks: dict[str, TaskInfo] = field(default_factory=dict)
    labels: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    """Cell id -> how to call its loss, task and recipe so that variants can be told apart."""
    preset: str = ""
    notes: list[str] = field(default_factory=list)
    """What a reader must know of the comparison: the limits of a preset, say."""
    differences: list[dict[str, str]] = field(default_factory=list)
    """See `milbench.engine.spec.Difference`."""

    def to_json(self) -> str:
        """Return the plan as JSON."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Return the plan that `to_json` wrote, of this version or an earlier one.

        Raises:
            UsageError: the text is no plan, or a plan of a version that knows more than this one.
        """
        try:
            return cls._from_raw(json.loads(text))
        except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
            raise UsageError(
                f"a plan in the store is damaged or was written by another version of milbench ({error})"
            ) from None

    @classmethod
    def _from_raw(cls, raw: dict[str, Any]) -> Plan:
        return cls(
            raw["name"],
            raw["title"],
            raw["source"],
            [Cell(**_with_names_of_today(c)) for c in raw["cells"]],
            {k: TaskInfo(**v) for k, v in raw["tasks"].items()},
            {k: (v[0], v[1], v[2]) for k, v in raw["labels"].items()},
            raw.get("preset", ""),
            raw.get("notes", []),
            raw.get("differences", []),
        )


def merge(plans: Iterable[Plan]) -> Plan:
    """Join plans of one name, the newest first: every cell once, labelled among all of them."""
    plans = list(plans)
    cells = {cell.id: cell for plan in reversed(plans) for cell in plan.cells}
    facts = {k: v for plan in reversed(plans) for k, v in plan.tasks.items()}
    return replace(plans[0], cells=list(cells.values()), tasks=facts, labels=labels(cells.values()))


def labels(cells: Iterable[Cell]) -> dict[str, tuple[str, str, str]]:
    """Name the loss, task and recipe of every cell, with the parameters in which cells of that kind differ.

    No two cells with one seed get the same name: what still looks alike (other data, another revision) gets its id.
    """
    cells = list(cells)
    losses = _differing((c.loss, c.loss_params) for c in cells)
    tasks = _differing((c.task, c.task_params) for c in cells)
    recipes = _differing((c.task, c.recipe) for c in cells)
    names = {
        c.id: (
            _with(c.loss, c.loss_params, losses[c.loss]),
            _with(c.task, c.task_params, tasks[c.task]),
            _with("", c.recipe, recipes[c.task]),
        )
        for c in cells
    }
    alike = Counter((names[c.id], c.seed) for c in cells)
    return {
        c.id: (loss, task, f"{recipe} cell={c.id[:6]}".strip() if alike[names[c.id], c.seed] > 1 else recipe)
        for c in cells
        for loss, task, recipe in [names[c.id]]
    }


def _with_names_of_today(cell: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a cell in JSON; those of earlier versions had `tier` in place of `supervision`."""
    return {RENAMED.get(name, name): value for name, value in cell.items()}


def _differing(named: Iterable[tuple[str, dict[str, Any]]]) -> dict[str, list[str]]:
    """Return, by name, the parameters that take more than one value, or that only some have."""
    by_name: dict[str, list[dict[str, Any]]] = {}
    for name, params in named:
        by_name.setdefault(name, []).append(params)
    return {
        name: [
            k for k in dict.fromkeys(k for p in many for k in p) if len({repr(p.get(k, "absent")) for p in many}) > 1
        ]
        for name, many in by_name.items()
    }


def _with(name: str, params: dict[str, Any], telling: list[str]) -> str:
    return " ".join([name, *(f"{k}={params[k]}" for k in telling if k in params)]).strip()
