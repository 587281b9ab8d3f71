"""The names that reports give to cells.

They contain the parameters in which the cells of a comparison differ.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

from milbench.experiment.cell import Cell, stored_recipe
from milbench.experiment.choices import Params

Texts = Mapping[str, Mapping[str, str]]
"""Parameter -> its value as text -> the text that a name shows, which may be shorter."""


class Label(NamedTuple):
    """The names of a cell in a report: task, loss, network and recipe.

    Each name is followed by the parameters that set it apart from other names of the comparison.
    (The word label means neither a label set nor a class of instances in this module.)
    """

    task: str
    loss: str
    network: str = ""
    """The network, "" where the task has only one, or the user asked for the default."""
    recipe: str = ""
    """The settings in which the recipe differs from other recipes, "" if there is only one."""

    @property
    def variant(self) -> str:
        """The loss, network and recipe: the name of what is compared on a task."""
        name = self.loss
        if self.network:
            name += f" with {self.network}"
        if self.recipe:
            name += f" ({self.recipe})"
        return name


def labels(cells: Iterable[Cell]) -> dict[str, Label]:
    """Return cell id -> its label."""
    return _Names(list(cells)).labels()


class _Names:
    """The cells of a comparison, and which parameters tell them apart."""

    def __init__(self, cells: list[Cell]) -> None:
        self.cells = cells
        self.losses = _distinguishing((cell.loss.name, cell.loss.params) for cell in cells)
        self.tasks = _distinguishing((cell.task.name, cell.task.params) for cell in cells)
        self.networks = _distinguishing((_network_key(cell), cell.network.params) for cell in cells)
        # Each recipe once, since thousands of cells share a few.
        recipes = dict.fromkeys((_network_key(cell), cell.recipe) for cell in cells)
        self.recipes = _distinguishing((key, stored_recipe(recipe)) for key, recipe in recipes)
        self.networks_by_task = _networks_by_task(cells)
        self.tables = _tables(cells)

    def labels(self) -> dict[str, Label]:
        """Return cell id -> its label."""
        return {cell.id: self._label(cell) for cell in self.cells}

    def _label(self, cell: Cell) -> Label:
        loss = cell.loss
        # A recipe has no name, only the settings in which it differs.
        settings = stored_recipe(cell.recipe)
        return Label(
            task=self._task(cell),
            loss=_qualified(loss.name, loss.params, self.losses[loss.name]),
            network=self._network(cell),
            recipe=_qualified("", settings, self.recipes[_network_key(cell)]),
        )

    def _task(self, cell: Cell) -> str:
        if cell.task.short_name:
            return cell.task.short_name
        task = cell.task.name
        name = _qualified(task, cell.task.params, self.tasks[task])
        table = self.tables.get(task, "")
        # A task on one table is named after the table, unless another task or table has that name.
        namesakes = [*self.tables.values(), *self.tasks].count(table)
        if name == task and namesakes == 1:
            return table
        return name

    def _network(self, cell: Cell) -> str:
        network = cell.network
        if len(self.networks_by_task[cell.task.name]) == 1:
            return ""
        name = _qualified(network.name, network.params, self.networks[_network_key(cell)])
        if network.is_default and name == network.name:
            return ""
        return name


def _networks_by_task(cells: Iterable[Cell]) -> dict[str, set[tuple[str, str]]]:
    """Return task -> the networks, with their parameters, of its cells."""
    networks: dict[str, set[tuple[str, str]]] = {}
    for cell in cells:
        network = (cell.network.name, repr(cell.network.params))
        networks.setdefault(cell.task.name, set()).add(network)
    return networks


def _tables(cells: Iterable[Cell]) -> dict[str, str]:
    """Return task -> the name of the user's table, for the tasks that read one."""
    tables = {}
    for cell in cells:
        table = cell.task.params.get("table")
        if table:
            tables[cell.task.name] = PurePath(table).stem
    return tables


def _network_key(cell: Cell) -> tuple[str, str]:
    """Return the task and the network of a cell, within which parameters are compared.

    The task belongs to the key, since two tasks may have different networks of one name.
    """
    return cell.task.name, cell.network.name


def _distinguishing(
    entries: Iterable[tuple[Hashable, Params]],
) -> dict[Any, dict[str, dict[str, str]]]:
    """Return name -> the parameters that tell its entries apart -> value -> text.

    An entry is a name with parameters. Several entries may have the same name.
    """
    variants: dict[Any, dict[str, Params]] = {}
    for name, params in entries:
        variants.setdefault(name, {})[repr(params)] = params
    return {name: _needed(list(different.values())) for name, different in variants.items()}


def _needed(variants: list[Params]) -> dict[str, dict[str, str]]:
    """Return the parameters that are needed to tell variants apart, with texts for their values.

    Of two parameters that tell the same variants apart, the first one is taken.
    """
    texts: dict[str, dict[str, str]] = {}
    told_apart = 1
    for key in _keys_of(variants):
        groups = _count_groups(variants, [*texts, key])
        # A parameter that tells no further variants apart would only make names longer.
        if groups > told_apart:
            told_apart = groups
            words = {_as_word(params[key]) for params in variants if key in params}
            texts[key] = _shortened(words)
    return texts


def _keys_of(variants: Iterable[Params]) -> list[str]:
    """Return the names of all parameters of variants, in the order in which they first occur."""
    keys: dict[str, None] = {}
    for params in variants:
        keys.update(dict.fromkeys(params))
    return list(keys)


def _count_groups(variants: Iterable[Params], keys: Sequence[str]) -> int:
    """Return how many groups of variants some parameters tell apart."""
    groups = set()
    for params in variants:
        values = [params.get(key, "absent") for key in keys]
        # The text of the values: lists cannot be members of a set.
        groups.add(repr(values))
    return len(groups)


def _as_word(value: object) -> str:
    """Return a value as text. Lists get no spaces, since spaces separate parameters."""
    text = str(value)
    if isinstance(value, list):
        return text.replace(", ", ",")
    return text


def _shortened(values: set[str]) -> dict[str, str]:
    """Shorten paths to their stems, unless two would be equal; return the text of each value."""
    stems = {}
    for value in values:
        is_path = "/" in value
        stems[value] = PurePath(value).stem if is_path else value
    if len(set(stems.values())) == len(values):
        return stems
    return {value: value for value in values}


def _qualified(name: str, params: Params, texts: Texts) -> str:
    """Return a name followed by those parameters that `texts` has.

    The table of a user replaces the name of the task that reads it.
    """
    words = {key: texts[key][_as_word(value)] for key, value in params.items() if key in texts}
    # A user knows the table, and the task only says how it is read.
    subject = words.pop("table", name)
    settings = [f"{key}={word}" for key, word in words.items()]
    return " ".join([subject, *settings]).strip()
