"""Cells (one loss on one task with one seed under one recipe) and plans (the cells of a named comparison)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from milbench.api.contrast import Contrast
from milbench.api.marks import Mark
from milbench.errors import RENAMED, UsageError

if TYPE_CHECKING:
    from milbench.api.task import Task

T = TypeVar("T")

COMPARISON_NAME = r"^[A-Za-z0-9][A-Za-z0-9._+-]*$"
"""A pattern for the names of comparisons: the report of each is a folder of that name."""
LONGEST_NAME = 200
"""Most characters in the name of a comparison: common file systems hold 255 bytes, and temporary names are longer."""
Selection = Literal["last", "validation"]
"""The rules by which losses may be compared: the last epoch, or the one with the smallest validation set error."""
CELL_FORMAT = 1
"""To be raised when the trainer computes something else from the same cell: older results are then not reused."""


@dataclass(frozen=True)
class Cell:
    """Everything that determines the result of a training run, but not where, when or beside what it is computed.

    Args:
        loss: the name of the loss.
        loss_params: all arguments of its constructor, defaults included.
        loss_revision: its `revision`, with a digest of its source where it is a plug-in.
        supervision: the loss's kind of supervision; the content hash leaves it out, as it follows from the loss.
        task: the name of the task.
        task_params: the arguments of its constructor, defaults included, except those of `Task.added_later`.
        task_revision: its `revision`, with a digest of its source where it is a plug-in.
        data: the digest that `Task.check_data` returned.
        recipe: all fields of the `Recipe`.
        seed: of the initial weights and of the order and content of the bags.
        loss_file: the path of the file that holds the loss, "" for one that is built in or installed.
        task_file: the same of the task.
        smoke: whether the cell only tries if everything works, on few bags; the content hash holds it where it is True.
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
    smoke: bool = False

    @cached_property
    def id(self) -> str:
        """Return the content hash, 16 hexadecimal digits.

        It depends on the content of a plug-in file, which is part of the revision, but not on the file's path.
        """
        return _content_hash(_to_json({name: getattr(self, name) for name in self._hashed()}))

    @property
    def version(self) -> tuple[str, str, str]:
        """Return what code and data made it: the revision of its loss, that of its task, and the digest of its data."""
        return self.loss_revision, self.task_revision, self.data

    def with_seeds(self, seeds: Iterable[int]) -> Iterator[Cell]:
        """Yield this cell with each of the seeds; there may be 100,000, so all but the seed is turned to JSON once."""
        values = _fields(self)
        texts = {name: _to_json(values[name]) for name in self._hashed()}
        for seed in seeds:
            cell = Cell(**values | {"seed": seed})
            texts["seed"] = _to_json(seed)
            content = ", ".join(f'"{name}": {text}' for name, text in texts.items())
            vars(cell)["id"] = _content_hash(f"{{{content}}}")
            yield cell

    def _hashed(self) -> list[str]:
        """Return the fields that the content hash depends on, in alphabetical order."""
        return sorted([*HASHED, "smoke"]) if self.smoke else HASHED

    def params(self) -> dict[str, Any]:
        """Return every parameter in one flat dict ("loss", "task", "seed", "loss.KEY", "task.KEY", "recipe.KEY")."""
        flat = {"loss": self.loss, "task": self.task, "seed": self.seed} | ({"smoke": True} if self.smoke else {})
        for section, values in (("loss", self.loss_params), ("task", self.task_params), ("recipe", self.recipe)):
            flat |= {f"{section}.{k}": v for k, v in values.items()}
        return flat

    def __str__(self) -> str:
        return f"{self.loss} on {self.task}, seed {self.seed}"


HASHED = sorted(f.name for f in fields(Cell) if f.name not in ("loss_file", "task_file", "supervision", "smoke"))
"""The fields that the content hash of every cell depends on, in alphabetical order."""
_to_json = json.JSONEncoder(sort_keys=True).encode


def _content_hash(content: str) -> str:
    """Return the id of a cell from its hashed fields as JSON, with sorted keys."""
    return hashlib.sha256(f"[{CELL_FORMAT}, {content}]".encode()).hexdigest()[:16]


@dataclass(frozen=True)
class TaskInfo:
    """What a report needs of a task, so that it need not import the task.

    Args:
        primary: the name of the task's primary metric, without its split.
        published: the fields of each `Published`, with the task's name as `task`; under `params` those parameters of
            the task that it is for, where it is not for all.
        chance: the value of the primary metric that guessing gives, whatever the parameters of the task; None where it
            is not known. Plans of earlier versions have it in place of `chances`.
        amount: the parameter that is the number of training bags, "" where there is none.
        chances: the parameters of the task as JSON -> the value of the primary metric that guessing gives with them.
    """

    primary: str
    published: list[dict[str, Any]]
    chance: float | None = None
    amount: str = ""
    chances: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, task: Task, params: dict[str, Any]) -> TaskInfo:
        """Return what a report needs of `task`, which has these parameters in its cells."""
        published = [{"task": task.name, **asdict(p)} for p in task.published]
        chances = {} if task.chance is None else {_to_json(params): task.chance}
        return cls(task.primary, published, amount=task.amount, chances=chances)

    def chance_with(self, params: dict[str, Any]) -> float | None:
        """Return the value of the primary metric that guessing gives with these parameters, None if not known."""
        return self.chances.get(_to_json(params), self.chance)

    def beyond(self, other: TaskInfo | None) -> TaskInfo:
        """Return the same with what another one, if any, knows of the task with other parameters."""
        return self if other is None else replace(self, chances=other.chances | self.chances)

    def compared_by(self, metrics: list[str]) -> TaskInfo:
        """Return the same where the first of these metrics, if there is one, takes the place of the primary one."""
        if not metrics or metrics[0] == self.primary:
            return self
        return replace(
            self, primary=metrics[0], chance=None, chances={}
        )  # guessing is known for the task's own metric alone

    def beside(self, published: list[dict[str, Any]]) -> TaskInfo:
        """Return the same with further published values."""
        return replace(self, published=[*self.published, *published])


@dataclass(frozen=True)
class SearchRecord:
    """The search for settings before a comparison: its draws, and which of them were chosen.

    An arm is one loss on one task, each with its parameters; its settings are searched for it alone.

    Args:
        draws: cell id -> the keys "arm" and "draw" (numbers, from 0), "settings" (by name, of recipe and loss) and
            "asked" (how many draws were asked for; plans of earlier versions lack it).
        chosen: the draw that was chosen for each arm; empty before all draws are done.
        metric: the metric that chose, of label sets alone.
    """

    draws: dict[str, dict[str, Any]]
    chosen: list[int] = field(default_factory=list)
    metric: str = "validation/set_error"


@dataclass(frozen=True)
class Plan:
    """The cells of one named comparison.

    Args:
        name: of the comparison, matching `COMPARISON_NAME`, with at most LONGEST_NAME characters.
        title: of the report, "" for none.
        source: the spec, such as "built-in demo" or a path, or "flags".
        cells: every cell once.
        tasks: task name -> what a report needs of the task.
        labels: cell id -> names of its loss, task and recipe that distinguish it from the other cells, see `labels`.
        preset: the preset of the spec, "" for none.
        notes: remarks for the reader of the report, such as the limits of a preset.
        differences: the fields of each `milbench.engine.spec.Difference`.
        search: for a tuned comparison, the search; its draws are among the cells.
        selection: the rule that chooses the epoch by which losses are compared.
        margin: metric -> the largest difference that counts as none, given in advance.
        compare_by: the metrics that losses are compared by; empty: each task's primary one.
        contrasts: the differences that the comparison is made for.
        folds: cell id -> the fields of the `Folds` in which its seed is a fold; absent where seeds are no folds.
        overlaps: cell id -> how many bags are tested on for each that is trained on, see `Task.overlap`; absent where
            seeds do not split the same bags differently.
        spec: a digest of all that a spec says but its losses, tasks, seeds and remarks; "" for a launch from flags.
        part: whether losses or tasks of a spec were chosen by flags, so that the plan is one part of a comparison.
        marks: what passes on which task, given in advance.
    """

    name: str
    title: str
    source: str
    cells: list[Cell]
    tasks: dict[str, TaskInfo] = field(default_factory=dict)
    labels: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    preset: str = ""
    notes: list[str] = field(default_factory=list)
    differences: list[dict[str, str]] = field(default_factory=list)
    search: SearchRecord | None = None
    selection: Selection = "last"
    margin: dict[str, float] = field(default_factory=dict)
    compare_by: list[str] = field(default_factory=list)
    folds: dict[str, tuple[int, int]] = field(default_factory=dict)
    overlaps: dict[str, float] = field(default_factory=dict)
    spec: str = ""
    part: bool = False
    contrasts: list[Contrast] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)

    def with_cells(self, cells: list[Cell], **changes: Any) -> Plan:
        """Return the plan with other cells of its tasks, and perhaps other fields.

        Folds and overlaps, which follow from the task alone, are those of the new cells.
        """

        def carried(values: Mapping[str, T]) -> dict[str, T]:
            of_task = {_task_of(cell): values[cell.id] for cell in self.cells if cell.id in values}
            return {cell.id: of_task[_task_of(cell)] for cell in cells if _task_of(cell) in of_task}

        return replace(self, cells=cells, folds=carried(self.folds), overlaps=carried(self.overlaps), **changes)

    def marks_by_task(self) -> dict[str, list[Mark]]:
        """Return the marks by the label of their task, those of tasks without cells left out."""
        tasks = {_task_of(cell): self.labels[cell.id][1] for cell in self.cells}
        found: dict[str, list[Mark]] = {}
        for mark in self.marks:
            if (key := _task_of(mark)) in tasks:
                found.setdefault(tasks[key], []).append(mark)
        return found

    def to_json(self) -> str:
        """Return the plan as JSON."""
        return json.dumps(self, default=_fields)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Return the plan that `to_json` wrote, of this version or an earlier one.

        Raises:
            UsageError: the text is no plan, or a plan of a later version, with fields that are unknown to this one.
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
            name=raw["name"],
            title=raw["title"],
            source=raw["source"],
            cells=[Cell(**fields_today(c)) for c in raw["cells"]],
            tasks={k: TaskInfo(**v) for k, v in raw["tasks"].items()},
            labels={k: (v[0], v[1], v[2]) for k, v in raw["labels"].items()},
            preset=raw.get("preset", ""),
            notes=raw.get("notes", []),
            differences=raw.get("differences", []),
            search=SearchRecord(**raw["search"]) if raw.get("search") else None,
            selection=raw.get("selection", "last"),
            margin=raw.get("margin", {}),
            compare_by=raw.get("compare_by", []),
            folds={cell: (count, repeats) for cell, (count, repeats) in raw.get("folds", {}).items()},
            overlaps=raw.get("overlaps", {}),
            spec=raw.get("spec", ""),
            part=raw.get("part", False),
            contrasts=[Contrast.from_raw(contrast) for contrast in raw.get("contrasts", [])],
            marks=[Mark(**mark) for mark in raw.get("marks", [])],
        )


def _fields(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass, as `asdict` does, which copies all that is in them."""
    return {f.name: getattr(value, f.name) for f in fields(value)}


def fields_today(cell: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a cell in JSON; those of earlier versions had `tier` in place of `supervision`."""
    return {RENAMED.get(name, name): value for name, value in cell.items()}


def _task_of(found: Cell | Mark) -> tuple[str, str]:
    return found.task, _to_json(found.task_params)


def labels(cells: Iterable[Cell]) -> dict[str, tuple[str, str, str]]:
    """Return names for the loss, task and recipe of every cell, with the parameters in which cells of that kind differ.

    No two cells with one seed have the same names: where cells differ only in their data or in a revision, the name of
    the recipe ends with a digest of these, which is the same for all seeds.

    Returns:
        Cell id -> (loss, task, recipe); the name of the recipe is "" where all recipes of the task are the same.
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
    versions: dict[tuple[str, str, str], set[tuple[str, str, str]]] = {}
    for c in cells:
        versions.setdefault(names[c.id], set()).add(c.version)
    return {
        c.id: (loss, task, f"{recipe} code={_content_hash(_to_json(c.version))[:6]}".strip() if several else recipe)
        for c in cells
        for loss, task, recipe in [names[c.id]]
        for several in [len(versions[names[c.id]]) > 1]
    }


def _differing(named: Iterable[tuple[str, dict[str, Any]]]) -> dict[str, list[str]]:
    """Return, by name, the parameters that take more than one value, or that only some have."""
    by_name: dict[str, list[dict[str, Any]]] = {}
    for name, params in {(name, id(params)): (name, params) for name, params in named}.values():  # cells share them
        by_name.setdefault(name, []).append(params)
    return {
        name: [
            k for k in dict.fromkeys(k for p in many for k in p) if len({repr(p.get(k, "absent")) for p in many}) > 1
        ]
        for name, many in by_name.items()
    }


def _with(name: str, params: dict[str, Any], shown: list[str]) -> str:
    return " ".join([name, *(f"{k}={params[k]}" for k in shown if k in params)]).strip()
