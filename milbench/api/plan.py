"""Cells (one loss on one task with one seed under one recipe) and plans (the cells of a named comparison)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from pathlib import PurePath
from typing import Any, Literal

from milbench.api.published import Published
from milbench.errors import UsageError

COMPARISON_NAME = r"^[A-Za-z0-9][A-Za-z0-9._+-]*$"
"""A pattern for the names of comparisons: each is a file and a folder of that name."""
LONGEST_NAME = 200
"""Most characters in the name of a comparison: common file systems hold 255 bytes, and temporary names are longer."""
Selection = Literal["last", "validation"]
"""The rules by which losses may be compared: the last epoch, or the one with the smallest validation set error."""
Label = tuple[str, str]
"""The labels of the loss and of the recipe of a variant, see `labels`."""
CELL_FORMAT = 2
"""To be raised when training computes something else from the same cell: older results are then not reused."""


@dataclass(frozen=True)
class Cell:
    """Everything that determines the result of a training run, but not where, when or beside what it is computed.

    Args:
        loss: the name of the loss.
        loss_params: all arguments of its constructor, defaults included.
        loss_revision: its `revision`, with a digest of its source where it is a plug-in.
        supervision: the loss's kind of supervision, which follows from the loss.
        task: the name of the task; `task_params` and `task_revision` as of the loss.
        data: the digest that `Task.check_data` returned.
        recipe: all fields of the `Recipe`.
        seed: of the initial weights and of the order and content of the bags.
        loss_file: the path of the file that holds the loss, "" for one that is built in or installed; `task_file` as
            well.
        task_name: a short name for the task with these parameters, "" for none.
    """

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
    task_name: str = ""

    @cached_property
    def id(self) -> str:
        """The content hash, 16 hexadecimal digits, of the fields HASHED: of a plug-in's content, not of its path."""
        content = to_json([CELL_FORMAT, {name: getattr(self, name) for name in HASHED}])
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    @property
    def version(self) -> tuple[str, str, str]:
        """What code and data made it: the revision of its loss, that of its task, and the digest of its data."""
        return self.loss_revision, self.task_revision, self.data

    @cached_property
    def variant_key(self) -> str:
        """Loss, task and recipe with all parameters, whatever the seed and the versions of code and data."""
        return to_json([self.loss, self.loss_params, self.task, self.task_params, self.recipe])

    @cached_property
    def task_key(self) -> str:
        """The task with its parameters, a key of `Plan.tasks`."""
        return task_key(self.task, self.task_params)

    def params(self) -> dict[str, Any]:
        """Return every parameter in one flat dict ("loss", "task", "seed", "loss.KEY", "task.KEY", "recipe.KEY")."""
        flat: dict[str, Any] = {"loss": self.loss, "task": self.task, "seed": self.seed}
        for section, values in (("loss", self.loss_params), ("task", self.task_params), ("recipe", self.recipe)):
            flat |= {f"{section}.{k}": v for k, v in values.items()}
        return flat

    def __str__(self) -> str:
        return f"{self.loss} on {self.task_name or self.task}, seed {self.seed}"


HASHED = sorted({f.name for f in fields(Cell)} - {"loss_file", "task_file", "task_name", "supervision"})
"""The fields that the content hash of a cell depends on."""
to_json = json.JSONEncoder(sort_keys=True).encode


def task_key(task: str, params: Mapping[str, Any]) -> str:
    """Return the key of a task with its parameters in `Plan.tasks`."""
    return f"{task} {to_json(params)}"


@dataclass(frozen=True)
class Mark:
    """A pass mark, stated before anything is computed: what a loss has to reach on a task.

    Args:
        name: of the test, such as "twice as many instances"; marks on several metrics may share it.
        metric: the name of the test metric, without the split.
        bound: the largest value that passes, or the smallest.
        at_most: whether it is the largest.
    """

    name: str
    metric: str
    bound: float
    at_most: bool = True


@dataclass(frozen=True)
class TaskInfo:
    """What a report needs of a task with certain parameters, so that it need not import the task.

    Args:
        primary: the metric that losses are ranked by, without its split.
        chance: its value by guessing, None where it is not known.
        amount: the parameter that is the number of training bags, "" where there is none.
        published: the values from the literature to stand beside the results.
        folds: the number of folds and of repetitions where seeds are folds of a cross-validation, else None.
        overlap: how many bags are tested on for each that is trained on where seeds split the same bags, else 0.
        marks: what passes, given in advance.
    """

    primary: str
    chance: float | None = None
    amount: str = ""
    published: list[Published] = field(default_factory=list)
    folds: tuple[int, int] | None = None
    overlap: float = 0.0
    marks: list[Mark] = field(default_factory=list)


@dataclass(frozen=True)
class Contrast:
    """The difference of two variants that a comparison was made for, named in its spec: the first less the second.

    Args:
        name: what the difference shows, such as "what the softmax adds".
        margin: metric -> the largest difference that counts as none; it takes the place of that of the comparison.
        variants: label of the task -> the labels of the first and the second variant on it.
    """

    name: str
    margin: dict[str, float] = field(default_factory=dict)
    variants: dict[str, tuple[Label, Label]] = field(default_factory=dict)


@dataclass(frozen=True)
class SearchRecord:
    """The search for settings before a comparison: its draws, and which of them were chosen.

    Args:
        metric: the metric that chose, with its split, of label sets alone.
        draws: cell id -> the keys "loss" and "task" (labels), "draw" (a number from 0), "settings" (by name) and
            "asked" (how many draws were asked for).
        chosen: "LOSS|TASK" (labels) -> the draw that was chosen; empty before all draws are done.
        compared: cell id -> the labels of loss and task of a cell with a chosen draw.
    """

    metric: str
    draws: dict[str, dict[str, Any]]
    chosen: dict[str, int] = field(default_factory=dict)
    compared: dict[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """The cells of one named comparison, and what its spec says of them.

    Args:
        spec: the fields of `milbench.engine.spec.Spec`, as the user gave them.
        cells: every cell once, those of a search included.
        tasks: `Cell.task_key` -> what a report needs of the task.
        notes: remarks for the reader of the report.
        contrasts: the differences that the comparison is made for, with their variants.
        search: for a tuned comparison, the search.
        command: the command of the last launch.
        launched: when that was, in UTC.
        precision: what the precision `auto` is in these cells, also for later launches that add to them.
    """

    spec: dict[str, Any]
    cells: list[Cell]
    tasks: dict[str, TaskInfo] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    contrasts: list[Contrast] = field(default_factory=list)
    search: SearchRecord | None = None
    command: str = ""
    launched: str = ""
    precision: str = ""

    @property
    def name(self) -> str:
        """The name of the comparison, which matches COMPARISON_NAME."""
        return str(self.spec["name"])

    @property
    def margin(self) -> dict[str, float]:
        """The largest difference that counts as none, by metric, given in advance."""
        return dict(self.spec["margin"])

    @property
    def compare_by(self) -> list[str]:
        """The metrics that losses are compared by; empty: the primary one of each task."""
        return list(self.spec["compare_by"])

    @cached_property
    def labels(self) -> dict[str, tuple[str, str, str]]:
        """Cell id -> names of its loss, task and recipe, see `labels`; the recipe of a draw is its number."""
        if self.search is None:
            return labels(self.cells)
        draws = {
            cell: (draw["loss"], draw["task"], f"draw {draw['draw'] + 1}") for cell, draw in self.search.draws.items()
        }
        return draws | {cell: (loss, task, "") for cell, (loss, task) in self.search.compared.items()}

    @property
    def compared(self) -> list[Cell]:
        """The cells outside the search."""
        draws = self.search.draws if self.search else {}
        return [cell for cell in self.cells if cell.id not in draws]

    def label(self, cell: Cell) -> str:
        """Return the task, loss, recipe and seed of a cell, in one line."""
        loss, task, recipe = self.labels[cell.id]
        return f"{task}, {loss}, {recipe + ', ' if recipe else ''}seed {cell.seed}"

    def joined(self, earlier: Plan) -> Plan:
        """Return this plan with the cells of an earlier one of the same comparison, so that losses can be added.

        Cells of a variant that this plan has too, by other code or data, are left out, and so is a search of a loss on
        a task that this plan searches too.
        """
        versions = {cell.variant_key: cell.version for cell in self.cells}
        kept = [cell for cell in earlier.cells if versions.get(cell.variant_key, cell.version) == cell.version]
        search = self.search
        if search is not None and earlier.search is not None:
            mine = {self.labels[cell.id][:2] for cell in self.cells}
            kept = [cell for cell in kept if earlier.labels[cell.id][:2] not in mine]
            ids = {cell.id for cell in kept}
            search = SearchRecord(
                search.metric,
                {cell: draw for cell, draw in earlier.search.draws.items() if cell in ids} | search.draws,
                earlier.search.chosen | search.chosen,
                {cell: arm for cell, arm in earlier.search.compared.items() if cell in ids} | search.compared,
            )
        cells = {cell.id: cell for cell in [*kept, *self.cells]}
        return replace(self, cells=list(cells.values()), tasks=earlier.tasks | self.tasks, search=search)

    def to_json(self) -> str:
        """Return the plan as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Return the plan that `to_json` wrote. Raises UsageError where the text is none."""
        from pydantic import TypeAdapter, ValidationError

        try:
            return TypeAdapter(cls).validate_json(text)
        except ValidationError as error:
            place = ".".join(map(str, error.errors()[0]["loc"]))
            why = f"{place}: {error.errors()[0]['msg']}".removeprefix(": ")
            raise UsageError(f"the plan is damaged or of another version of milbench ({why})") from None


def labels(cells: Iterable[Cell]) -> dict[str, tuple[str, str, str]]:
    """Return cell id -> names of its loss, task and recipe, with the parameters in which cells of that kind differ.

    The name of the recipe is "" where the task has one recipe.
    """
    cells = list(cells)
    losses = _distinguishing((c.loss, c.loss_params) for c in cells)
    tasks = _distinguishing((c.task, c.task_params) for c in cells)
    recipes = _distinguishing((c.task, c.recipe) for c in cells)
    return {
        c.id: (
            _named(c.loss, c.loss_params, losses[c.loss]),
            c.task_name or _named(c.task, c.task_params, tasks[c.task]),
            _named("", c.recipe, recipes[c.task]),
        )
        for c in cells
    }


def _distinguishing(named: Iterable[tuple[str, dict[str, Any]]]) -> dict[str, dict[str, dict[str, str]]]:
    """Return, by name, the parameters that tell apart all that differ, with a text for each value."""
    by_name: dict[str, dict[str, dict[str, Any]]] = {}
    for name, params in {(name, id(params)): (name, params) for name, params in named}.values():  # cells share them
        by_name.setdefault(name, {})[repr(params)] = params
    found: dict[str, dict[str, dict[str, str]]] = {}
    for name, variants in by_name.items():
        shown: dict[str, dict[str, str]] = {}
        apart = 1
        for key in dict.fromkeys(key for params in variants.values() for key in params):
            groups = len({repr([p.get(k, "absent") for k in (*shown, key)]) for p in variants.values()})
            if groups > apart:
                shown[key], apart = _texts({str(p[key]) for p in variants.values() if key in p}), groups
        found[name] = shown
    return found


def _texts(values: set[str]) -> dict[str, str]:
    """Return a text for each value: of paths the stems, where these tell them apart."""
    stems = {value: PurePath(value).stem if "/" in value else value for value in values}
    return stems if len(set(stems.values())) == len(values) else {value: value for value in values}


def _named(name: str, params: Mapping[str, Any], shown: Mapping[str, Mapping[str, str]]) -> str:
    """Return a name with some parameters; a table stands in place of the name of its task."""
    values = {key: shown[key][str(value)] for key, value in params.items() if key in shown}
    own = values.pop("table", name)
    return " ".join([own, *(f"{key}={value}" for key, value in values.items())]).strip()
