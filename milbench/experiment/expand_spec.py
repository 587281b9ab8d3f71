"""From a spec to choices: the losses, tasks, networks and recipes that it names.

A parameter given as a list is an axis: there is a choice for each of its values, and for all
combinations of axes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from milbench._utils.digests import file_digest
from milbench.contracts.parameters import (
    check_params,
    check_values,
    network_parameters,
    with_neutral,
    without_neutral,
)
from milbench.contracts.recipe import Recipe
from milbench.contracts.registry import Registry, losses, tasks
from milbench.contracts.resolver import resolve
from milbench.contracts.validation import validated
from milbench.data.catalog import find_file
from milbench.errors import UsageError, as_usage
from milbench.experiment.choices import LossChoice, NetworkChoice, Params, TaskChoice
from milbench.experiment.questions import Mark
from milbench.experiment.spec import DEFAULT, Settings, Spec, as_list, for_task

if TYPE_CHECKING:
    from milbench.contracts.loss import Loss
    from milbench.contracts.network import NetworkMaker
    from milbench.contracts.task import Task

MOST_CELLS = 100_000
"""The most cells, and combinations of axes. A spec with more is refused as a mistake."""


def chosen_losses(spec: Spec) -> list[LossChoice]:
    """Return every loss of a spec, with each combination of its parameters.

    Raises UsageError where a loss or a parameter is wrong.
    """
    chosen = []
    for name in _names(losses(), spec.losses):
        # The table of a loss may also name its networks, which are no parameter of the loss.
        table = {key: value for key, value in spec.loss.get(name, {}).items() if key != "networks"}
        entry = losses().entry(name)
        cls = losses().get(name)
        for params in _complete(losses(), name, table):
            choice = LossChoice(
                name=entry.name,
                params=params,
                revision=f"{cls.revision}{entry.record.digest}",
                source=entry.source,
                supervision=cls.supervision,
            )
            chosen.append(choice)
    return chosen


def chosen_tasks(spec: Spec) -> list[TaskChoice]:
    """Return each task of a spec, with each combination of its parameters.

    Tasks that only a pass mark of the spec needs come last. No data are read: `TaskChoice.data` is
    still empty. Raises UsageError where a task or a parameter is wrong.
    """
    choices: list[TaskChoice] = []
    for name in _names(tasks(), spec.tasks):
        choices += _choices_of_task(name, spec.variants_of(name), spec.has_named_variants(name))
    for _, marked in _marked_tasks(spec):
        choices += marked
    by_key: dict[str, TaskChoice] = {}
    for choice in choices:
        # The task of a pass mark may be a task of the spec too. Of two equal choices the first one
        # stays: it is that of the spec, which may have a short name.
        by_key.setdefault(choice.key, choice)
    return list(by_key.values())


def marks_of_tasks(spec: Spec) -> dict[str, list[Mark]]:
    """Return `TaskChoice.key` of a task -> the pass marks of the spec for that task."""
    marks: dict[str, list[Mark]] = {}
    for mark, choices in _marked_tasks(spec):
        for key in dict.fromkeys(choice.key for choice in choices):
            marks.setdefault(key, []).append(mark)
    return marks


def _marked_tasks(spec: Spec) -> Iterator[tuple[Mark, list[TaskChoice]]]:
    """Yield each pass mark of the spec with the tasks that it is for."""
    names = _names(tasks(), spec.tasks)
    for mark in spec.marks:
        name = resolve(tasks(), mark.task)
        # A flag may have left the task out.
        if name in names:
            tables = [table | mark.params for table in spec.variants_of(name)]
            yield mark, list(_choices_of_task(name, tables, spec.has_named_variants(name)))


def _choices_of_task(
    name: str, tables: Sequence[Settings], are_named: bool
) -> Iterator[TaskChoice]:
    """Yield a task with each combination of the parameters in each of the tables.

    If the tables are named, the entry `name` of a table is a short name of the task.
    """
    short_names = [""] * len(tables)
    if are_named:
        short_names = [str(table.get("name", "")) for table in tables]
        tables = [_without_name(table) for table in tables]
    for short_name in short_names:
        if short_name and short_names.count(short_name) > 1:
            raise UsageError(f"two variants of task {name} are named {short_name!r}")
    entry = tasks().entry(name)
    cls = tasks().get(name)
    for table, short_name in zip(tables, short_names, strict=True):
        for params in _complete(tasks(), name, table):
            yield TaskChoice(
                name=entry.name,
                params=params,
                revision=f"{cls.revision}{entry.record.digest}",
                source=entry.source,
                short_name=short_name,
            )


def _without_name(table: Settings) -> Settings:
    return {key: value for key, value in table.items() if key != "name"}


def _names(registry: Registry[Any], references: Sequence[str]) -> list[str]:
    """Return the names that references stand for, each once."""
    return list(dict.fromkeys(resolve(registry, reference) for reference in references))


def _complete(registry: Registry[Any], name: str, table: Settings) -> Iterator[Params]:
    """Yield the parameters of a loss or task for every combination of axes, as a cell keeps them.

    All parameters are there, except those that were added after cells had been stored and have
    their neutral value.
    """
    cls = registry.get(name)
    for params in combinations(table):
        complete = check_params(f"{registry.kind} {name}", cls, params)
        yield without_neutral(cls, complete)


def combinations(table: Settings) -> Iterator[Settings]:
    """Yield the table with every combination of the values of its axes.

    Raises UsageError for an axis without values, and for too many combinations.
    """
    axes = [key for key, value in table.items() if isinstance(value, list)]
    for key in axes:
        if not table[key]:
            raise UsageError(f"{key} = [] is an axis without values")
    count = math.prod(len(table[key]) for key in axes)
    if count > MOST_CELLS:
        raise UsageError(
            f"the axes {', '.join(axes)} have {count:,} combinations, "
            f"expected at most {MOST_CELLS:,}"
        )
    values = [as_list(value) for value in table.values()]
    for combination in itertools.product(*values):
        yield dict(zip(table, combination, strict=True))


def new_loss(choice: LossChoice) -> Loss:
    """Return a new loss of a choice. It is not built, since planning needs no training bags."""
    loss: Loss = losses().create_for_cell(choice.name, choice.params)
    return loss


def new_task(choice: TaskChoice) -> Task:
    """Return a new task of a choice. No data are read."""
    task: Task = tasks().create_for_cell(choice.name, choice.params)
    return task


def chosen_networks(
    spec: Spec,
    task: Task,
    loss: LossChoice,
    task_classes: Iterable[type[Task]],
    data_dir: Path | None,
) -> list[NetworkChoice]:
    """Return every network of a spec for a loss on a task, with each combination of its parameters.

    `task_classes` are those of all tasks of the comparison, whose networks may have the same names.
    Raises UsageError where a network is wrong, or does not suit the loss or the task.
    """
    from milbench.networks.known_networks import network_maker, network_name, network_source

    head = new_loss(loss).head
    chosen = []
    for reference in spec.networks_for(loss.name):
        name = network_name(task, reference, head)
        maker = network_maker(task, name, head)
        revision, source = network_source(task, name, head)
        parameters = network_parameters(maker)
        settings = spec.network.get(name, {})
        table = _own_settings(settings, parameters, _namesakes(name, task_classes))
        for params in combinations(table):
            complete = check_values(f"network {name}", parameters, params)
            choice = NetworkChoice(
                name=name,
                params=without_neutral(maker, complete),
                revision=revision + _revision_of_weights(complete, data_dir),
                source=source,
                is_default=reference == DEFAULT,
            )
            chosen.append(choice)
    return chosen


def _namesakes(name: str, classes: Iterable[type[Task]]) -> list[NetworkMaker]:
    """Return the networks of this name that tasks define themselves."""
    return [task.networks[name] for task in classes if name in task.networks]


def _own_settings(
    settings: Settings, parameters: Mapping[str, Any], namesakes: Iterable[NetworkMaker]
) -> Settings:
    """Return the settings of a network.

    Those that only another task's network of the same name has are left out.
    """
    elsewhere: set[str] = set()
    for namesake in namesakes:
        elsewhere |= network_parameters(namesake).keys()
    only_elsewhere = elsewhere - parameters.keys()
    return {key: value for key, value in settings.items() if key not in only_elsewhere}


def _revision_of_weights(params: Params, data_dir: Path | None) -> str:
    """Return what a file of initial weights adds to the revision of a network, else ""."""
    weights = params.get("weights")
    if not isinstance(weights, str) or not weights:
        return ""
    path = find_file(weights, data_dir, "network.weights")
    with as_usage():
        return f" weights {file_digest(path, 'sha256')[:16]}"


def chosen_recipes(spec: Spec, task: Task) -> list[Recipe]:
    """Return the recipe of a task with each combination of the changes of a spec."""
    recipe = task.recipe()
    changes = for_task(spec.recipe, task.name)
    return [changed_recipe(recipe, combination) for combination in combinations(changes)]


def changed_recipe(recipe: Recipe, changes: Settings) -> Recipe:
    """Return a recipe with changes. Raises UsageError where a change is unknown or wrong.

    The text "none" stands for None. Where the optimiser changes, the defaults of the new one are
    set before the other changes.
    """
    from milbench.optimizers.known_optimizers import OPTIMIZER_DEFAULTS, check_recipe, optimizers

    given = dict(changes)
    for key, value in changes.items():
        # Of the rules for the length of gradients, one is named none.
        if value == "none" and key != "gradient_norm":
            given[key] = None
    optimizer = given.get("optimizer", recipe.optimizer)
    defaults: Settings = {}
    if isinstance(optimizer, str) and optimizer != recipe.optimizer:
        defaults = OPTIMIZER_DEFAULTS.get(optimizer, {})
    values = {**recipe.model_dump(), **defaults, **given}
    changed: Recipe = validated("the recipe", Recipe, values)
    check_recipe(changed)
    origin = optimizers().entry(changed.optimizer).record.digest.removeprefix(" of ")
    return changed.model_copy(update={"optimizer_origin": origin})


def changed_loss(choice: LossChoice, changes: Settings) -> LossChoice:
    """Return a loss with other values of some of its parameters.

    Raises UsageError where a parameter is unknown or its value is wrong.
    """
    cls = losses().get(choice.name)
    complete = {**with_neutral(cls, choice.params), **changes}
    checked = check_params(f"loss {choice.name}", cls, complete)
    return replace(choice, params=without_neutral(cls, checked))
