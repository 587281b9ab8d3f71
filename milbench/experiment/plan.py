"""The plan: the cells of a named comparison, and what is known of them before they are computed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from milbench._utils.words import readable
from milbench.contracts.folds import Folds
from milbench.contracts.published import Published
from milbench.errors import UsageError
from milbench.experiment.cell import Cell
from milbench.experiment.display_names import Label, labels
from milbench.experiment.questions import Contrast, Mark, Questions


@dataclass(frozen=True)
class TaskInfo:
    """What a report needs to know of a task with certain parameters.

    With it a report need not import the task.
    """

    primary: str
    """The metric that losses are compared by, without its split."""
    chance: float | None = None
    """The value of that metric at no skill, None where the task does not know it."""
    amount: str = ""
    """The parameter that is the number of training bags, "" for none."""
    published: list[Published] = field(default_factory=list)
    """Values from the literature that are comparable: those of the task, then those of the spec."""
    folds: Folds | None = None
    """The folds of a cross-validation, None where there is none. A seed is the number of a fold."""
    overlap: float = 0.0
    """The number of test bags divided by that of training bags, where seeds split the same bags.

    It is 0 where each seed has bags of its own.
    """
    marks: list[Mark] = field(default_factory=list)
    """The pass marks of the spec for this task."""
    is_tested: bool = True
    """Whether there are bags to test on."""


class Arm(NamedTuple):
    """What settings are searched for: a loss with a network on a task.

    Each is named as in reports.
    """

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
    number: Annotated[int, Field(alias="draw")]
    """Its number among the draws of the arm, from 0. Files call it "draw"."""
    settings: dict[str, Any]
    """Name of a setting, such as recipe.lr -> its value."""
    point: int | None = None
    """The number of the point that gives the values in the ranges, from 0.

    It is None in some published reports, whose searches also sampled the values of lists.
    """


@dataclass(frozen=True)
class SearchRecord:
    """The search for settings before a comparison: its draws, and which of them were chosen."""

    metric: str
    """The metric that chose, with its split."""
    draws: dict[str, Draw]
    """Cell id -> the draw that the cell trains.

    A draw has a cell for each of its seeds, and finalists have more seeds than other draws.
    """
    chosen: dict[str, int] = field(default_factory=dict)
    """`Arm.key` -> the number of the draw that was chosen; empty before all draws are done."""
    compared: dict[str, Label] = field(default_factory=dict)
    """Cell id -> label, for the cells of the comparison, which have the chosen settings."""

    def joined(self, earlier: SearchRecord, kept: set[str]) -> SearchRecord:
        """Return this record, joined with what an earlier one says of the `kept` cell ids."""
        draws = {cell: draw for cell, draw in earlier.draws.items() if cell in kept}
        kept_arms = {draw.arm.key for draw in draws.values()}
        chosen = {arm: draw for arm, draw in earlier.chosen.items() if arm in kept_arms}
        compared = {cell: label for cell, label in earlier.compared.items() if cell in kept}
        return SearchRecord(
            metric=self.metric,
            draws=draws | self.draws,
            chosen=chosen | self.chosen,
            compared=compared | self.compared,
        )


@dataclass(frozen=True)
class Plan:
    """The cells of one named comparison, and what its spec says of them."""

    spec: Questions
    """A `Spec`, or of some published reports a `PublishedSpec`, which cannot be run again."""
    cells: list[Cell]
    """Every cell once, also those of a search."""
    tasks: dict[str, TaskInfo] = field(default_factory=dict)
    """By `TaskChoice.key`."""
    notes: list[str] = field(default_factory=list)
    """Notes for the reader of the report, each once.

    Those of the spec come first, then what was noticed while planning.
    """
    search: SearchRecord | None = None
    """The search for settings, None where there was none."""
    origin: str = ""
    """A digest of the spec and the flags.

    Launches of one name and origin add their cells to one plan.
    """
    is_changed: bool = False
    """Whether flags changed what the file of the spec says."""
    command: str = ""
    """The command of the last launch."""
    launched: str = ""
    """When the last launch was, in UTC."""
    precision: str = ""
    """What the precision `auto` is in these cells, and in those that later launches add."""
    neutral: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The neutral values of parameters that were `added` after cells had been stored.

    The keys are "loss NAME", "task NAME", "network NAME of TASK" and "recipe".
    """

    @property
    def name(self) -> str:
        """The name of the comparison."""
        return self.spec.name

    @property
    def contrasts(self) -> list[Contrast]:
        """The differences that the comparison is made for.

        Flags may have left out a variant of them.
        """
        return self.spec.contrasts

    @property
    def own_notes(self) -> list[str]:
        """The notes that are not in the spec: what was noticed while planning."""
        return [note for note in self.notes if note not in self.spec.notes]

    @cached_property
    def labels(self) -> dict[str, Label]:
        """Cell id -> its label. The label of a draw has its number in place of the recipe."""
        cell_labels = labels(self.cells)
        if self.search is None:
            return cell_labels
        searched: dict[str, Label] = {}
        for cell_id, draw in self.search.draws.items():
            # People count from 1.
            number = draw.number + 1
            searched[cell_id] = Label(draw.arm.task, draw.arm.loss, recipe=f"draw {number}")
        searched |= self.search.compared
        # Which networks need a name depends on all cells, and a later launch may have added some.
        return {
            cell_id: searched[cell_id]._replace(network=label.network)
            for cell_id, label in cell_labels.items()
        }

    @property
    def for_use(self) -> list[str]:
        """A line for each task without bags to test on, which says what its networks are for."""
        untested = {key for key, info in self.tasks.items() if not info.is_tested}
        cells = [cell for cell in self.cells if cell.task.key in untested]
        # A dict keeps the order of the plan.
        names = dict.fromkeys(self.labels[cell.id].task for cell in cells)
        purpose = (
            "networks for use by milbench predict, trained on all bags: "
            "no errors of theirs are known"
        )
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

    def info(self, cell: Cell) -> TaskInfo:
        """Return what a report needs of the task of a cell."""
        return self.tasks[cell.task.key]

    def params(self, cell: Cell) -> dict[str, Any]:
        """Return `Cell.params`, with the neutral values of the parameters that the cell lacks."""
        owners = {
            "loss": f"loss {cell.loss.name}",
            "task": f"task {cell.task.name}",
            "network": f"network {cell.network.name} of {cell.task.name}",
            "recipe": "recipe",
        }
        params = cell.params()
        for section, owner in owners.items():
            for key, value in self.neutral.get(owner, {}).items():
                params.setdefault(f"{section}.{key}", value)
        return params

    def task_params(self, cell: Cell) -> dict[str, Any]:
        """Return the parameters of a cell's task, with neutral values for those that it lacks."""
        return self.neutral.get(f"task {cell.task.name}", {}) | dict(cell.task.params)

    def label(self, cell: Cell) -> str:
        """Return the task, loss, network, recipe and seed of a cell, in one line."""
        parts = [readable(part) for part in self.labels[cell.id] if part]
        return ", ".join([*parts, f"seed {cell.seed}"])

    def joined(self, earlier: Plan) -> Plan:
        """Return this plan with the cells of an earlier one.

        An earlier cell is left out where this plan has its variant with other code or data. So are
        the cells of an earlier search that this plan repeats. Raises UsageError where only one of
        the two plans has a search.
        """
        if (self.search is None) != (earlier.search is None):
            raise UsageError(
                f"one {self.name} had a search for settings and one had none: give another --root"
            )
        versions = {cell.variant_key: cell.version for cell in self.cells}
        kept = []
        for cell in earlier.cells:
            is_new_variant = cell.variant_key not in versions
            if is_new_variant or versions[cell.variant_key] == cell.version:
                kept.append(cell)
        search = self.search
        if search and earlier.search:
            searched = {_searched_part(cell) for cell in self.cells}
            kept = [cell for cell in kept if _searched_part(cell) not in searched]
            search = search.joined(earlier.search, {cell.id for cell in kept})
        cells = {cell.id: cell for cell in [*kept, *self.cells]}
        return replace(
            self,
            cells=list(cells.values()),
            tasks=earlier.tasks | self.tasks,
            search=search,
            neutral=earlier.neutral | self.neutral,
        )


def _searched_part(cell: Cell) -> tuple[str, str, str]:
    """Return the names of what settings are searched for: task, loss and network."""
    return cell.task.name, cell.loss.name, cell.network.name
