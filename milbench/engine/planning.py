"""How a spec becomes a plan: every combination of its losses, tasks, networks, recipes and seeds is a cell.

A parameter given as a list is an axis: there are cells for each of its values, and for all combinations of axes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from milbench._utils.digests import file_digest
from milbench.api.metric_info import METRICS
from milbench.api.parameters import (
    check_params,
    check_values,
    constructor_parameters,
    network_parameters,
    neutral_values,
    with_neutral,
    without_neutral,
)
from milbench.api.plan import CELL_FORMAT, Cell, Plan, TaskInfo, labels, task_key
from milbench.api.questions import Mark
from milbench.api.recipe import Recipe
from milbench.api.registry import Registry, losses, tasks
from milbench.api.resolver import resolve
from milbench.api.validation import validated
from milbench.data.catalog import find_file
from milbench.engine.spec import DEFAULT, Params, Spec, as_list, for_task, parse_seeds
from milbench.errors import UsageError, as_usage, unknown

if TYPE_CHECKING:
    from milbench.api.task import Task

MOST_CELLS = 100_000  # of cells, and of combinations of axes: more are a slip


class _Problem(NamedTuple):
    """A task with certain parameters, on which every variant is trained with every seed."""

    task: Task
    fields: Params  # of its cells, that describe it
    seeds: list[int]
    info: TaskInfo


def make_plan(spec: Spec, device: str = "cpu", precision: str = "") -> Plan:
    """Expand a spec into its cells, with every name, parameter and data set checked.

    The device decides what the precision `auto` is, unless an earlier launch has decided it. Raises UsageError where
    one of them is wrong, or losses of different supervision are compared without `spec.supervision`.
    """
    _check_supervision(spec)
    _check_metrics(spec)
    _check_published(spec)
    problems, losses = _problems(spec), _losses(spec)
    variants = {key: _variants(spec, problem.task, losses) for key, problem in problems.items()}
    recipes = [variant["recipe"] for of_task in variants.values() for variant in of_task]
    auto = [recipe for recipe in recipes if recipe["precision"] == "auto"]
    notes = [
        *spec.notes,
        *(r for p in problems.values() for r in p.task.remarks(spec.run.data_dir, p.seeds)),
    ]
    if auto and not precision:
        precision, note = _auto_precision(device, spec)
        notes.append(note)
    for recipe in auto:
        recipe["precision"] = precision
    every_cell = (
        cell for key, problem in problems.items() for cell in _cells(problem, variants[key])
    )
    cells = [*{cell.id: cell for cell in every_cell}.values()]
    _check_networks(spec, cells)
    _check_contrasts(spec, cells)
    infos = {key: problem.info for key, problem in problems.items()}
    return Plan(
        spec.model_dump(mode="json"),
        cells,
        infos,
        [*dict.fromkeys(notes)],
        precision=precision,
        neutral=_neutral(cells),
    )


def _problems(spec: Spec) -> dict[str, _Problem]:
    """Return every task with every combination of its parameters, and what marks ask there, by `Cell.task_key`."""
    problems: dict[str, _Problem] = {}
    for name, params, short_name, mark in tasks_with_marks(spec):
        if (key := task_key(name, params)) not in problems:
            task: Task = tasks().create_for_cell(name, params)
            data = task.check_data(spec.run.data_dir)
            fields, seeds = (
                _fields(tasks(), name, params) | {"task_name": short_name, "data": data},
                _seeds(spec, task),
            )
            problems[key] = _Problem(task, fields, seeds, _info(spec, task, params, data))
        if mark and mark not in (marks := problems[key].info.marks):
            marks.append(mark)
    return problems


def _losses(spec: Spec) -> list[Params]:
    """Return the fields of a cell that describe its loss, for every loss and combination of axes."""
    sections = {
        name: {k: v for k, v in table.items() if k != "networks"}
        for name, table in spec.loss.items()
    }
    return [
        _fields(losses(), name, params) | {"supervision": losses().get(name).supervision}
        for name, params, _ in _combinations(losses(), spec.losses, sections)
    ]


def _variants(spec: Spec, task: Task, losses: Sequence[Params]) -> list[Params]:
    """Return the fields of a cell that describe loss, network and recipe, for all that are compared on a task."""
    axes = [*_axes(for_task(spec.recipe, task.name))]
    return [
        loss | network | {"recipe": changed_recipe(task.recipe().model_dump(), changes)}
        for loss in losses
        for network in _networks(spec, task, loss)
        for changes in axes
    ]


def _cells(problem: _Problem, variants: Sequence[Params]) -> Iterator[Cell]:
    if (count := len(variants) * len(problem.seeds)) > MOST_CELLS:
        raise UsageError(
            f"{count:,} cells are too many for one comparison, expected at most {MOST_CELLS:,}"
        )
    for fields, seed in itertools.product(variants, problem.seeds):
        yield Cell(**fields, **problem.fields, seed=seed, format=CELL_FORMAT)


def _neutral(cells: Iterable[Cell]) -> dict[str, dict[str, Any]]:
    """Return `Plan.neutral`: the neutral values of what was added later to the parts of the cells."""
    from milbench.networks.registry import network_maker

    makers: dict[str, Any] = {"recipe": Recipe}
    one_of_each = {(cell.task, cell.loss, cell.network): cell for cell in cells}
    for cell in one_of_each.values():
        task = tasks().get(cell.task)
        loss = losses().create_for_cell(cell.loss, cell.loss_params)
        makers[f"task {cell.task}"] = task
        makers[f"loss {cell.loss}"] = type(loss)
        makers[f"network {cell.network} of {cell.task}"] = network_maker(
            task, cell.network, loss.head
        )
    neutral = {owner: neutral_values(maker) for owner, maker in makers.items()}
    return {owner: values for owner, values in neutral.items() if values}


def tasks_with_marks(spec: Spec) -> Iterator[tuple[str, Params, str, Mark | None]]:
    """Yield each task with its parameters and short name, without a mark, then that of each mark with the mark."""
    for variant in _combinations(tasks(), spec.tasks, spec.task):
        yield (*variant, None)
    references = {resolve(tasks(), reference): reference for reference in spec.tasks}
    for mark in spec.marks:
        name = resolve(tasks(), mark.task)
        if name in references:  # else a flag has left it out
            tables = [table | mark.params for table in as_list(spec.task.get(name, {}))]
            for variant in _combinations(tasks(), [references[name]], {name: tables}):
                yield (*variant, mark)


def _combinations(
    registry: Any, references: Sequence[str], sections: Params
) -> Iterator[tuple[str, Params, str]]:
    """Yield the entries with complete parameters, for every combination of axes, and a short name or ""."""
    for name in dict.fromkeys(resolve(registry, reference) for reference in references):
        cls, tables, names = registry.get(name), sections.get(name, {}), [""]
        if isinstance(tables, list):
            names = [str(table.get("name", "")) for table in tables]
            tables = [
                {key: value for key, value in table.items() if key != "name"} for table in tables
            ]
        if duplicate := next(
            (short_name for short_name in names if short_name and names.count(short_name) > 1), None
        ):
            raise UsageError(f"two variants of {registry.kind} {name} are named {duplicate!r}")
        for table, short_name in zip(as_list(tables), names, strict=True):
            for params in _axes(table):
                complete = check_params(f"{registry.kind} {name}", cls, params)
                yield name, without_neutral(cls, complete), short_name


def _axes(params: Params) -> Iterator[Params]:
    for key, value in params.items():
        if value == []:
            raise UsageError(f"{key} = [] is an axis without values")
    values = [v if isinstance(v, list) else [v] for v in params.values()]
    if (count := math.prod(map(len, values))) > MOST_CELLS:
        axes = ", ".join(key for key, value in params.items() if isinstance(value, list))
        raise UsageError(
            f"the axes {axes} have {count:,} combinations, expected at most {MOST_CELLS:,}"
        )
    for combination in itertools.product(*values):
        yield dict(zip(params, combination, strict=True))


def _fields(registry: Registry[Any], name: str, params: Params) -> Params:
    """Return the fields of a cell that describe its loss or its task."""
    entry, kind = registry.entry(name), registry.kind
    revision = f"{registry.get(name).revision}{entry.record.digest}"
    return {
        kind: entry.name,
        f"{kind}_params": params,
        f"{kind}_file": entry.source,
        f"{kind}_revision": revision,
    }


def _networks(spec: Spec, task: Task, loss: Params) -> Iterator[Params]:
    """Yield the fields of each network, and combination of axes, for a loss on a task."""
    from milbench.networks.registry import network_maker, network_name, network_source

    head = losses().create_for_cell(loss["loss"], loss["loss_params"]).head
    for requested in as_list(spec.loss.get(loss["loss"], {}).get("networks", spec.networks)):
        name = network_name(task, requested, head)
        maker = network_maker(task, name, head)
        revision, file = network_source(task, name, head)
        parameters = network_parameters(maker)
        # What only another task's network of this name knows is not for this one.
        namesakes = [
            tasks().get(resolve(tasks(), requested)).networks.get(name) for requested in spec.tasks
        ]
        elsewhere = {
            key for namesake in namesakes if namesake for key in network_parameters(namesake)
        }
        section = {
            k: v
            for k, v in spec.network.get(name, {}).items()
            if k in parameters or k not in elsewhere
        }
        for params in _axes(section):
            complete = check_values(f"network {name}", parameters, params)
            fields = {
                "network": name, "network_params": without_neutral(maker, complete),
                "network_file": file, "network_revision": revision,
                "network_is_default": requested == DEFAULT,
            }  # fmt: skip
            if isinstance(weights := complete.get("weights"), str) and weights:
                path = find_file(weights, spec.run.data_dir, "network.weights")
                with as_usage():
                    fields["network_revision"] += f" weights {file_digest(path, 'sha256')[:16]}"
            yield fields


def _check_networks(spec: Spec, cells: Iterable[Cell]) -> None:
    """Raise UsageError where a section of the spec is for a network that no task has."""
    from milbench.networks.registry import network_maker, suitable_networks

    task_classes = [tasks().get(resolve(tasks(), task)) for task in spec.tasks]
    for name in spec.network.keys() - {cell.network for cell in cells}:
        for task in task_classes:
            with suppress(UsageError):
                network_maker(task, name)
                break
        else:
            raise unknown(
                "network section",
                name,
                {n for task in task_classes for n in suitable_networks(task)},
            )


def _info(spec: Spec, task: Task, params: Params, data: str) -> TaskInfo:
    """Return what a report has to know of a task."""
    primary = spec.compare_by[0] if spec.compare_by else task.primary
    # What guessing reaches is known for the task's own metric alone.
    chance = task.chance if primary == task.primary else None
    complete = with_neutral(type(task), params)
    of_spec = [value for value in spec.published if resolve(tasks(), value.task) == task.name]
    published = [*task.published, *of_spec]
    folds_of_info = None
    folds = task.folds(spec.run.data_dir)
    overlap = task.overlap(spec.run.data_dir)
    if folds is not None:
        folds_of_info = (folds.count, folds.repeats or 0)
        # One part of the data is tested on for each count - 1 that are trained on.
        overlap = overlap or 1 / (folds.count - 1)
    return TaskInfo(
        primary=primary,
        chance=chance,
        amount=task.amount,
        published=[value for value in published if value.belongs_to(complete, data)],
        folds=folds_of_info,
        overlap=overlap or 0.0,
        is_tested=task.is_tested,
    )


def _auto_precision(device: str, spec: Spec) -> tuple[str, str]:
    """Return the precision that `auto` is on a device, and a note for the report."""
    import torch

    from milbench._utils.devices import auto_precision, device_name

    precision, reason = auto_precision(torch.device(device))
    note = f"Precision auto is {precision} here: {device_name(device)} {reason}."
    if spec.run.cluster:
        note += " It holds for the cells of the cluster too; set recipe.precision."
    return precision, note


def _seeds(spec: Spec, task: Task) -> list[int]:
    """Return the seeds of a task: those of the spec, or all folds of its cross-validation where it names none."""
    folds = task.folds(spec.run.data_dir)
    if folds is not None and spec.seeds is None:
        return list(range(folds.seeds))
    seeds = parse_seeds(spec.seeds)
    if folds is not None and folds.repeats is not None and seeds[-1] >= folds.seeds:
        raise UsageError(
            f"seed {seeds[-1]}: the {folds.repeats} x {folds.count} folds of {task.name} are the "
            f"seeds 0-{folds.seeds - 1}"
        )
    return seeds


def _check_supervision(spec: Spec) -> None:
    kinds = {
        losses().get(name).supervision: name
        for name in (resolve(losses(), loss) for loss in spec.losses)
    }
    if len(kinds) > 1 and not set(kinds) <= set(spec.supervision):
        listed = ", ".join(
            f"{name} has {supervision} supervision" for supervision, name in kinds.items()
        )
        mend = f"if that is meant, add -p supervision={','.join(kinds)}"
        raise UsageError(f"the losses do not have the same supervision: {listed}; {mend}")
    for task in (tasks().get(resolve(tasks(), task)) for task in spec.tasks):
        if "order" in kinds and not task.instances_are_ordered:
            raise UsageError(
                f"{kinds['order']} learns from the order of the instances, and those of {task.name} have none; it "
                "needs a task with instances_are_ordered = True, as those of sequences have it"
            )


def _check_metrics(spec: Spec) -> None:
    primary = dict.fromkeys(tasks().get(resolve(tasks(), name)).primary for name in spec.tasks)
    metrics, compared = {*METRICS, *primary}, spec.compare_by[:1] or [*primary]
    for owner, name in (
        *(("margin", name) for name in spec.margin),
        *(("compare_by", name) for name in spec.compare_by),
        *(("[[published]]", entry.metric) for entry in spec.published),
        *((f"mark {mark.name!r}", name) for mark in spec.marks for name, *_ in mark.bounds),
    ):
        if name not in metrics:
            raise unknown(f"metric of {owner}", name, metrics)
        if owner == "margin" and name not in compared and not spec.changed:
            choices = " or ".join(compared)
            raise UsageError(
                f"{owner}: losses are not compared by {name}; use {choices}, or compare_by = [{name!r}]"
            )


def _check_published(spec: Spec) -> None:
    """Raise UsageError where the protocol of a published value names a parameter that no cell has."""
    for published in spec.published:
        if not published.task:
            raise UsageError(
                f"[[published]] {(published.method or published.loss)!r} needs the task of its value"
            )
        parameters = constructor_parameters(tasks().get(resolve(tasks(), published.task)))
        names = [
            f"task.{key}" for key in parameters
        ]  # all that decides where the value of a method is shown
        if published.loss:
            resolve(losses(), published.loss.split()[0])
            names += ["network", *(f"recipe.{key}" for key in Recipe.model_fields)]
        for name in published.protocol:
            if name not in names and not (
                published.loss and name.startswith(("loss.", "network."))
            ):
                raise unknown("parameter in the protocol of [[published]]", name, names)


def _check_contrasts(spec: Spec, cells: Sequence[Cell]) -> None:
    """Raise UsageError where a contrast names a variant that does not exist, unless flags may have left it out."""
    variants: dict[str, dict[str, None]] = {}
    for label in labels(cells).values() if spec.contrasts else ():
        # Searched settings are no part of a variant: what is compared has those that the search has chosen.
        variants.setdefault(label.task, {})[
            (label._replace(recipe="") if spec.tune else label).variant
        ] = None
    names: dict[frozenset[str], str] = {}
    for contrast in spec.contrasts:
        pair, name = (contrast.first, contrast.second), contrast.name
        missing = [
            (side, available)
            for available in variants.values()
            for side in pair
            if side not in available
        ]
        if missing and not spec.changed:
            raise unknown(f"variant in contrast {name!r}", *missing[0])
        if contrast.first == contrast.second:
            raise UsageError(
                f"contrast {name!r}: first and second are one variant, {contrast.first!r}"
            )
        if (earlier := names.setdefault(frozenset(pair), name)) != name:
            raise UsageError(f"contrasts {earlier!r} and {name!r} have the same variants")


def changed_recipe(defaults: Params, changes: Params) -> Params:
    """Return a recipe with changes, as a cell keeps it. Another optimiser comes with settings of its own.

    Of the changes "none" is None. The defaults are the recipe of a task or of a cell.
    """
    from milbench.optimizers.registry import SETTINGS, check_recipe, optimizers

    defaults = with_neutral(Recipe, defaults)
    changes = {k: None if v == "none" and k != "gradient_norm" else v for k, v in changes.items()}
    optimizer = changes.get("optimizer", defaults["optimizer"])
    settings = (
        SETTINGS.get(optimizer, {})
        if optimizer != defaults["optimizer"] and isinstance(optimizer, str)
        else {}
    )
    recipe: Recipe = validated("the recipe", Recipe, {**defaults, **settings, **changes})
    check_recipe(recipe)
    origin = optimizers().entry(recipe.optimizer).record.digest.removeprefix(" of ")
    complete = recipe.model_copy(update={"optimizer_origin": origin}).model_dump()
    return without_neutral(Recipe, complete)
