"""Cells (one loss on one task with one network, recipe and seed) and plans (the cells of a named comparison)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from pathlib import PurePath
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from milbench._utils.files import file_and_member
from milbench._utils.words import readable
from milbench.api.parameters import with_neutral
from milbench.api.published import Published
from milbench.api.questions import Contrast, Mark
from milbench.api.recipe import Recipe
from milbench.errors import UsageError

COMPARISON_NAME = r"^[A-Za-z0-9][A-Za-z0-9._+-]*$"  # each is a file and a folder of that name
LONGEST_NAME = 200  # characters: common file systems hold 255 bytes, and temporary names are longer
Selection = Literal["last", "validation"]
"""The rules by which losses may be compared: the last epoch, or the one with the smallest validation set error."""


class Label(NamedTuple):
    """Names of the task, loss, network and recipe of a cell, with the parameters that set it apart from others."""

    task: str
    loss: str
    network: str = ""  # where the task has one, or it is asked for as the default
    recipe: str = ""  # where there is one

    @property
    def variant(self) -> str:
        """The name in reports of what is compared on a task."""
        network, recipe = (
            f" with {self.network}" * bool(self.network),
            f" ({self.recipe})" * bool(self.recipe),
        )
        return f"{self.loss}{network}{recipe}"


CELL_FORMAT = 4
"""The format of the cells that are planned now. To be raised when training computes something else from the same cell:
older results are then not reused."""
SHA256_LENGTH = 64
"""Characters of the digest with which the revision of a plug-in ends."""
FORMAT_OF_BEFORE = 3
"""The format of a cell that does not say it: those planned before cells had the field."""


@dataclass(frozen=True)
class Cell:
    """Everything that determines the result of a training run, and nothing else.

    The parameters of loss, task and network, and the recipe, are complete but for those that were `added` later and
    have their neutral value; see `milbench.api.parameters.without_neutral`.
    """

    loss: str
    loss_params: dict[str, Any]  # all arguments of its constructor, defaults included
    loss_revision: str  # its `revision`, with a digest of its source where it is a plug-in
    supervision: str  # follows from the loss
    task: str
    task_params: dict[str, Any]
    task_revision: str
    data: str  # the digest that `Task.check_data` returned
    network: str
    network_params: dict[str, Any]
    network_revision: str  # with a digest of a file of initial weights
    recipe: dict[str, Any]  # all fields of the `Recipe`
    seed: int  # of the initial weights and of the order and content of the bags
    # The path of the file that holds the loss, "" for one that is built in or installed.
    loss_file: str = ""
    task_file: str = ""
    network_file: str = ""
    task_name: str = ""  # a short name for the task with these parameters, "" for none
    network_is_default: bool = False  # asked for as the first of its task: one variant on all tasks
    format: int = FORMAT_OF_BEFORE  # CELL_FORMAT when the cell was planned

    @cached_property
    def id(self) -> str:
        """The content hash, 16 hexadecimal digits, of the format and the fields HASHED.

        It depends on the content of a plug-in, not on its path.
        """
        hashed = {name: getattr(self, name) for name in HASHED}
        content = to_json([self.format, hashed])
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    @property
    def version(self) -> tuple[str, ...]:
        """What may differ between cells of one variant and seed: code, data and the format of the cell."""
        return (
            self.loss_revision,
            self.task_revision,
            self.network_revision,
            self.data,
            str(self.format),
        )

    @property
    def plugin_files(self) -> tuple[str, ...]:
        """The files of the user's own that it needs, and names of modules."""
        sources = (self.loss_file, self.task_file, self.network_file)
        return tuple(file_and_member(source)[0] or source for source in sources if source)

    @property
    def has_plugins(self) -> bool:
        """Whether its loss, task or network is not milbench's own.

        The revision of such a part ends with a digest, or names an installed package.
        """
        revisions = (self.loss_revision, self.task_revision, self.network_revision)
        return any(len(revision) > SHA256_LENGTH or " of " in revision for revision in revisions)

    @cached_property
    def variant_key(self) -> str:
        """Loss, task, network and recipe with all parameters, whatever the seed and the versions of code and data."""
        network = [self.network, self.network_params]
        return to_json(
            [self.loss, self.loss_params, self.task, self.task_params, network, self.recipe]
        )

    @cached_property
    def task_key(self) -> str:
        """The task with its parameters, a key of `Plan.tasks`."""
        return task_key(self.task, self.task_params)

    def params(self) -> dict[str, Any]:
        """Return every parameter in one flat dict: "loss", "task", "network", "seed", "loss.KEY", "recipe.KEY", ...

        Later parameters at their neutral value are not among them; `Plan.params` has them too.
        """
        flat: dict[str, Any] = {
            "loss": self.loss,
            "task": self.task,
            "network": self.network,
            "seed": self.seed,
        }
        sections = {
            "loss": self.loss_params,
            "task": self.task_params,
            "network": self.network_params,
            "recipe": self.recipe,
        }
        for section, params in sections.items():
            for key, value in params.items():
                flat[f"{section}.{key}"] = value
        return flat

    def __str__(self) -> str:
        return f"{self.loss} on {self.task_name or self.task}, seed {self.seed}"


NOT_HASHED = {
    "loss_file",
    "task_file",
    "network_file",
    "task_name",
    "network_is_default",
    "supervision",
    "format",  # it is hashed beside the fields
}
HASHED = sorted({f.name for f in fields(Cell)} - NOT_HASHED)
"""The fields that the id of a cell depends on."""
to_json = json.JSONEncoder(sort_keys=True).encode


def task_key(task: str, params: Mapping[str, Any]) -> str:
    """Return the key of a task with its parameters in `Plan.tasks`."""
    return f"{task} {to_json(params)}"


@dataclass(frozen=True)
class TaskInfo:
    """What a report needs of a task with certain parameters, so that it need not import it; see `Task` for the rest."""

    primary: str
    chance: float | None = None
    amount: str = ""
    published: list[Published] = field(default_factory=list)
    folds: tuple[int, int] | None = (
        None  # their number and that of repetitions, 0 for any, where seeds are folds
    )
    overlap: float = 0.0  # how many bags are tested on for each that is trained on where seeds split the same bags
    marks: list[Mark] = field(default_factory=list)
    is_tested: bool = True


class Arm(NamedTuple):
    """The labels of the task, the loss and the network that settings are searched for."""

    task: str
    loss: str
    network: str = ""

    @property
    def key(self) -> str:
        """The arm as one text, "TASK|LOSS|NETWORK"."""
        return "|".join(self)


@dataclass(frozen=True)
class Draw:
    """Settings that a search tries for an arm."""

    arm: Arm
    draw: int  # its number among the draws of the arm, from 0
    settings: dict[str, Any]  # by name, such as recipe.lr
    point: int | None = None
    """The number of the point of the ranges, from 0; None in plans that drew lists with the ranges."""


@dataclass(frozen=True)
class SearchRecord:
    """The search for settings before a comparison: its draws, and which of them were chosen."""

    metric: str  # that chose, with its split, of label sets alone
    draws: dict[str, Draw]
    """Cell id -> the draw that it trains. A draw has a cell for each of its seeds: finalists have more than others."""
    chosen: dict[str, int] = field(default_factory=dict)
    """`Arm.key` -> the draw that was chosen; empty before all draws are done."""
    compared: dict[str, Label] = field(default_factory=dict)
    """Cell id -> the label of a cell with chosen settings."""

    def joined(self, earlier: SearchRecord, kept: set[str]) -> SearchRecord:
        """Return this record with what an earlier one says of the cells that are kept of it, by their ids."""
        draws = {cell: draw for cell, draw in earlier.draws.items() if cell in kept}
        kept_arms = {draw.arm.key for draw in draws.values()}
        chosen = {arm: draw for arm, draw in earlier.chosen.items() if arm in kept_arms}
        compared = {cell: label for cell, label in earlier.compared.items() if cell in kept}
        return SearchRecord(
            self.metric,
            draws | self.draws,
            chosen | self.chosen,
            compared | self.compared,
        )


class _SpecOfPlan(BaseModel):
    """What is read of the spec in a plan."""

    name: str = Field(pattern=COMPARISON_NAME, max_length=LONGEST_NAME)
    margin: dict[str, float]
    compare_by: list[str]
    contrasts: list[Contrast]
    selection: Selection
    differences: list[dict[str, str]] = []


@dataclass(frozen=True)
class Plan:
    """The cells of one named comparison, and what its spec says of them."""

    spec: dict[str, Any]  # the fields of `milbench.engine.spec.Spec`, as the user gave them
    cells: list[Cell]  # every one once, those of a search included
    tasks: dict[str, TaskInfo] = field(default_factory=dict)  # by `Cell.task_key`
    notes: list[str] = field(default_factory=list)  # for the reader of the report
    search: SearchRecord | None = None  # of a tuned comparison
    command: str = ""  # of the last launch
    launched: str = ""  # when that was, in UTC
    precision: str = ""  # what `auto` is in these cells, also for later launches that add to them
    # The neutral values of what was `added` later, by "loss NAME", "task NAME", "network NAME of TASK" and "recipe".
    neutral: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the comparison, which matches COMPARISON_NAME."""
        return str(self.spec["name"])

    @property
    def contrasts(self) -> list[Contrast]:
        """The differences that the comparison is made for; flags may have left out their variants."""
        return [Contrast(**contrast) for contrast in self.spec["contrasts"]]

    @cached_property
    def labels(self) -> dict[str, Label]:
        """Cell id -> its label, see `labels`; the recipe of a draw is its number."""
        cell_labels = labels(self.cells)
        if self.search is None:
            return cell_labels
        searched = {
            cell: Label(*draw.arm, recipe=f"draw {draw.draw + 1}")
            for cell, draw in self.search.draws.items()
        }
        searched |= self.search.compared
        return {
            cell: searched[cell]._replace(network=label.network)
            for cell, label in cell_labels.items()
        }

    @property
    def for_use(self) -> list[str]:
        """A line for each task without bags to test on, which says what its networks are for."""
        untested = {key for key, info in self.tasks.items() if not info.is_tested}
        names = dict.fromkeys(
            self.labels[cell.id].task for cell in self.cells if cell.task_key in untested
        )
        purpose = "networks for use by milbench predict, trained on all bags: no errors of theirs are known"
        return [f"{name}: {purpose}" for name in names]

    @property
    def compared(self) -> list[Cell]:
        """The cells outside the search."""
        draws = self.search.draws if self.search else {}
        return [cell for cell in self.cells if cell.id not in draws]

    @property
    def is_searching(self) -> bool:
        """Whether settings are still searched: an arm has draws, and none of them is chosen yet."""
        if self.search is None:
            return False
        arms = {draw.arm.key for draw in self.search.draws.values()}
        return not arms <= self.search.chosen.keys()

    def params(self, cell: Cell) -> dict[str, Any]:
        """Return `Cell.params`, with the neutral value of every later parameter that the cell lacks."""
        owners = {
            "loss": f"loss {cell.loss}",
            "task": f"task {cell.task}",
            "network": f"network {cell.network} of {cell.task}",
            "recipe": "recipe",
        }
        params = cell.params()
        for section, owner in owners.items():
            for key, value in self.neutral.get(owner, {}).items():
                params.setdefault(f"{section}.{key}", value)
        return params

    def task_params(self, cell: Cell) -> dict[str, Any]:
        """Return the parameters of the task of a cell, with the neutral value of every one that it lacks."""
        params = dict(cell.task_params)
        for key, value in self.neutral.get(f"task {cell.task}", {}).items():
            params.setdefault(key, value)
        return params

    def label(self, cell: Cell) -> str:
        """Return the task, loss, network, recipe and seed of a cell, in one line."""
        parts = [readable(part) for part in self.labels[cell.id] if part]
        return ", ".join([*parts, f"seed {cell.seed}"])

    def joined(self, earlier: Plan) -> Plan:
        """Return this plan with the cells of an earlier one; UsageError where one of them alone had a search.

        Cells of a variant that this plan has by other code or data are left out, and searches that this plan repeats.
        """
        if (self.search is None) != (earlier.search is None):
            raise UsageError(
                f"one {self.name} had a search for settings and one had none: give another --root"
            )
        versions = {cell.variant_key: cell.version for cell in self.cells}
        earlier_cells = [
            cell
            for cell in earlier.cells
            if versions.get(cell.variant_key, cell.version) == cell.version
        ]
        search = self.search
        if search and earlier.search:
            searched = {(cell.task, cell.loss, cell.network) for cell in self.cells}
            earlier_cells = [
                cell
                for cell in earlier_cells
                if (cell.task, cell.loss, cell.network) not in searched
            ]
            search = search.joined(earlier.search, {cell.id for cell in earlier_cells})
        cells = {cell.id: cell for cell in [*earlier_cells, *self.cells]}
        return replace(
            self,
            cells=list(cells.values()),
            tasks=earlier.tasks | self.tasks,
            search=search,
            neutral=earlier.neutral | self.neutral,
        )

    def to_json(self) -> str:
        """Return the plan as JSON, with a digest of it."""
        content = asdict(self)
        # The digest is that of what will be read: JSON turns some values into others, such as tuples into lists.
        written = json.loads(json.dumps(content))
        return json.dumps(content | {"digest": _content_digest(written)})

    @classmethod
    def from_json(cls, text: bytes) -> Plan:
        """Return the plan that `to_json` wrote. Raises UsageError where it is none, or something has changed it.

        Plans of earlier versions have no digest: of these it is not known.
        """
        try:
            plan = TypeAdapter(cls).validate_json(text)
            _SpecOfPlan(**plan.spec)
            recipes = {to_json(cell.recipe): cell.recipe for cell in plan.cells}
            for recipe in recipes.values():
                Recipe(**with_neutral(Recipe, recipe))
            for cell in plan.cells:
                plan.label(cell), plan.tasks[cell.task_key]
        except ValidationError as error:
            place, why = ".".join(map(str, error.errors()[0]["loc"])), error.errors()[0]["msg"]
            raise UsageError(
                f"the plan is damaged or of another version of milbench ({place}: {why})"
            ) from None
        except (KeyError, TypeError, AttributeError) as error:
            raise UsageError(f"the plan is damaged ({error!r})") from None
        content = json.loads(text)
        digest = content.pop("digest", None)
        if digest is not None and digest != _content_digest(content):
            raise UsageError("the plan is not as milbench wrote it: it was edited, or damaged")
        return plan


def _content_digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(to_json(content).encode()).hexdigest()


def labels(cells: Iterable[Cell]) -> dict[str, Label]:
    """Return cell id -> the names of its parts, with the parameters in which cells of that kind differ."""
    cells = list(cells)
    losses = _distinguishing((c.loss, c.loss_params) for c in cells)
    tasks = _distinguishing((c.task, c.task_params) for c in cells)
    networks = _distinguishing(((c.task, c.network), c.network_params) for c in cells)
    recipes = _distinguishing(((c.task, c.network), c.recipe) for c in cells)
    networks_by_task: dict[str, set[tuple[str, str]]] = {}
    for c in cells:
        networks_by_task.setdefault(c.task, set()).add((c.network, repr(c.network_params)))

    def network(c: Cell) -> str:
        name = _qualified(c.network, c.network_params, networks[c.task, c.network])
        return (
            ""
            if len(networks_by_task[c.task]) == 1 or (c.network_is_default and name == c.network)
            else name
        )

    tables = {
        c.task: PurePath(c.task_params["table"]).stem for c in cells if c.task_params.get("table")
    }

    def task(c: Cell) -> str:
        name = c.task_name or _qualified(c.task, c.task_params, tasks[c.task])
        table = tables.get(c.task, "")
        return table if name == c.task and [*tables.values(), *tasks].count(table) == 1 else name

    def label(c: Cell) -> Label:
        loss = _qualified(c.loss, c.loss_params, losses[c.loss])
        return Label(
            task(c), loss, network(c), _qualified("", c.recipe, recipes[c.task, c.network])
        )

    return {c.id: label(c) for c in cells}


def _distinguishing(
    entries: Iterable[tuple[Any, dict[str, Any]]],
) -> dict[Any, dict[str, dict[str, str]]]:
    """Return, by name, the parameters that tell apart all that differ, with a text for each value."""
    variants: dict[Any, dict[str, dict[str, Any]]] = {}
    for name, params in {
        (name, id(params)): (name, params) for name, params in entries
    }.values():  # cells share them
        variants.setdefault(name, {})[repr(params)] = params
    distinguishing: dict[Any, dict[str, dict[str, str]]] = {name: {} for name in variants}
    for name, texts in distinguishing.items():
        all_params, count = [*variants[name].values()], 1
        for key in dict.fromkeys(key for params in all_params for key in params):
            groups = len({repr([p.get(k, "absent") for k in (*texts, key)]) for p in all_params})
            if groups > count:
                texts[key], count = (
                    _text_by_value({_as_word(p[key]) for p in all_params if key in p}),
                    groups,
                )
    return distinguishing


def _as_word(value: object) -> str:
    """Return a value as a text; a list has no spaces, which separate the parameters of a name."""
    text = str(value)
    return text.replace(", ", ",") if isinstance(value, list) else text


def _text_by_value(values: set[str]) -> dict[str, str]:
    """Return a text for each value: of paths the stems, where these tell them apart."""
    stems = {value: PurePath(value).stem if "/" in value else value for value in values}
    return stems if len(set(stems.values())) == len(values) else {value: value for value in values}


def _qualified(name: str, params: Mapping[str, Any], texts: Mapping[str, Mapping[str, str]]) -> str:
    """Return a name with some parameters; a table stands in place of the name of its task."""
    values = {key: texts[key][_as_word(value)] for key, value in params.items() if key in texts}
    subject = values.pop("table", name)
    return " ".join([subject, *(f"{key}={value}" for key, value in values.items())]).strip()
