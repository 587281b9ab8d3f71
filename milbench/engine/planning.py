"""How a spec becomes a plan: every combination of its losses, tasks, recipes and seeds is a cell.

A parameter given as a list is an axis: there are cells for each of its values, and for all combinations of axes. A
value in the list of a recipe may be a table of several settings: three rules of clipping are then one axis of any name.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from milbench.api.metric_info import METRICS
from milbench.api.parameters import check_params, constructor_parameters
from milbench.api.plan import Cell, Contrast, Label, Plan, TaskInfo, labels, task_key
from milbench.api.registry import losses, tasks
from milbench.api.validation import validated
from milbench.engine.search_space import settings_of
from milbench.engine.spec import NamedContrast, Params, PassMark, Spec, parse_seeds
from milbench.errors import UsageError, unknown

if TYPE_CHECKING:
    from milbench.api.task import Task

MOST_CELLS = 100_000  # how many cells, and combinations of axes, there may be: more are a slip


def make_plan(spec: Spec, device: str = "cpu", precision: str = "") -> Plan:
    """Expand a spec into its cells, with every name, parameter and data set checked.

    The device decides what the precision `auto` is, unless an earlier launch has decided it.

    Raises:
        UsageError: a name, a parameter or the data of a task are wrong, or losses of different supervision are compared
            without `spec.supervision`.
    """
    of_losses = [_loss_fields(name, params) for name, params, _ in _variants(losses(), spec.losses, spec.loss)]
    _check_supervision(spec)
    _check_order(spec)
    _check_metrics(spec)
    cells, infos, notes = dict[str, Cell](), dict[str, TaskInfo](), list[str]()
    for name, params, short, mark in _tests(spec):
        task: Task = tasks().cls(name)(**params)
        key = task_key(task.name, params)
        if key not in infos:
            infos[key] = _info(spec, task, params)
            recipes = _recipes(spec, task)
            if not precision and any(recipe["precision"] == "auto" for recipe in recipes):
                precision, note = _auto_precision(device, spec)
                notes.append(note)
            recipes = [r | {"precision": precision} if r["precision"] == "auto" else r for r in recipes]
            seeds = _seeds_of(spec, task)
            if (count := len(recipes) * len(of_losses) * len(seeds)) > MOST_CELLS:
                raise UsageError(f"{count:,} cells are too many for one comparison, expected at most {MOST_CELLS:,}")
            of_task = _task_fields(name, params, task, spec) | {"task_name": short}
            for recipe, of_loss, seed in itertools.product(recipes, of_losses, seeds):
                cell = Cell(**of_loss, **of_task, recipe=recipe, seed=seed)
                cells[cell.id] = cell
        infos[key].marks.extend(one for one in (mark.marks() if mark else []) if one not in infos[key].marks)
    named = labels(cells.values())
    # Searched settings are no part of a variant: what is compared has those that the search has chosen.
    of_variants = {cell: (loss, task, "") for cell, (loss, task, _) in named.items()} if spec.tune else named
    contrasts, left_out = _contrasts(spec, cells.values(), of_variants)
    notes = [*spec.notes, *left_out, *notes]
    return Plan(spec.model_dump(mode="json"), [*cells.values()], infos, notes, contrasts, precision=precision)


def _tests(spec: Spec) -> Iterator[tuple[str, Params, str, PassMark | None]]:
    """Yield every task with its parameters, its short name and a mark, those of the spec first, without one."""
    for found in _variants(tasks(), spec.tasks, spec.task):
        yield (*found, None)
    chosen = {tasks().entry(given).name: given for given in spec.tasks}
    for mark in spec.marks:
        name = tasks().entry(mark.task).name
        if name in chosen:  # else a flag has left it out
            given = spec.task.get(name, {})
            changed = [table | mark.params for table in given] if isinstance(given, list) else given | mark.params
            for found in _variants(tasks(), [chosen[name]], {name: changed}):
                yield (*found, mark)


def _variants(registry: Any, chosen: Sequence[str], sections: Params) -> Iterator[tuple[str, Params, str]]:
    """Yield the entries with complete parameters, for every combination of axes, and a short name, "" for none."""
    for given in dict.fromkeys(chosen):
        entry, cls = registry.entry(given), registry.cls(given)
        tables, names = sections.get(entry.name, {}), [""]
        if isinstance(tables, list):
            names = [str(table.get("name", "")) for table in tables]
            tables = [{key: value for key, value in table.items() if key != "name"} for table in tables]
        if twice := next((name for name in names if name and names.count(name) > 1), None):
            raise UsageError(f"two variants of {registry.kind} {entry.name} are named {twice!r}")
        for table, name in zip(tables if isinstance(tables, list) else [tables], names, strict=True):
            for params in _axes(table):
                yield given, check_params(f"{registry.kind} {entry.name}", cls, settings_of(params)), name


def _axes(params: Params) -> Iterator[Params]:
    for key, value in params.items():
        if value == []:
            raise UsageError(f"{key} = [] is an axis without values")
    values = [v if isinstance(v, list) else [v] for v in params.values()]
    if (count := math.prod(map(len, values))) > MOST_CELLS:
        axes = ", ".join(key for key, value in params.items() if isinstance(value, list))
        raise UsageError(f"the axes {axes} have {count:,} combinations, expected at most {MOST_CELLS:,}")
    for combination in itertools.product(*values):
        yield dict(zip(params, combination, strict=True))


def _loss_fields(name: str, params: Params) -> Params:
    entry, cls = losses().entry(name), losses().cls(name)
    return {
        "loss": entry.name, "loss_params": params, "loss_file": entry.source, "supervision": cls.supervision,
        "loss_revision": f"{cls.revision}{entry.source_digest}",
    }  # fmt: skip


def _task_fields(name: str, params: Params, task: Task, spec: Spec) -> Params:
    entry = tasks().entry(name)
    return {
        "task": entry.name, "task_params": params, "task_file": entry.source,
        "task_revision": f"{task.revision}{entry.source_digest}{task.dependencies}",
        "data": task.check_data(spec.run.data_dir),
    }  # fmt: skip


def _info(spec: Spec, task: Task, params: Params) -> TaskInfo:
    first = spec.compare_by[0] if spec.compare_by else task.primary
    beside = [
        one.entry()
        for one in spec.published
        if one.task == task.name and all(params.get(k) == v for k, v in one.params.items())
    ]
    return TaskInfo(
        primary=first,
        chance=task.chance if first == task.primary else None,  # guessing is known for the task's own metric alone
        amount=task.amount,
        published=[*task.published, *beside],
        folds=(task.folds.count, task.folds.repeats) if task.folds else None,
        overlap=task.overlap(spec.run.data_dir) or (task.folds.ratio if task.folds else 0.0),
    )


def _auto_precision(device: str, spec: Spec) -> tuple[str, str]:
    """Return the precision that `auto` is on a device, and a note for the report."""
    import torch

    from milbench._utils.devices import auto_precision
    from milbench.engine.provenance import device_name

    precision = auto_precision(torch.device(device))
    does = "multiplies" if precision == "bfloat16" else "does not multiply"
    note = f"Precision auto is {precision} here: {device_name(device)} {does} bfloat16."
    if spec.run.cluster:
        note += " It holds for the cells of the cluster too, whatever its workers multiply; set recipe.precision."
    return precision, note


def _seeds_of(spec: Spec, task: Task) -> list[int]:
    """Return the seeds of a task: those of the spec, or all folds of its cross-validation where it names none."""
    if task.folds is None:
        return parse_seeds(spec.seeds)
    if spec.seeds is None:
        return list(range(task.folds.seeds))
    seeds = parse_seeds(spec.seeds)
    if seeds[-1] >= task.folds.seeds:
        folds = f"{task.folds.repeats} x {task.folds.count} folds"
        raise UsageError(f"seed {seeds[-1]}: the {folds} of {task.name} are the seeds 0-{task.folds.seeds - 1}")
    return seeds


def _check_supervision(spec: Spec) -> None:
    found = {losses().cls(name).supervision: losses().entry(name).name for name in spec.losses}
    if len(found) > 1 and not set(found) <= set(spec.supervision):
        listed = ", ".join(f"{name} has {supervision} supervision" for supervision, name in found.items())
        raise UsageError(
            f"the losses do not have the same supervision: {listed}; if that is meant, add "
            f"-p supervision={','.join(found)}"
        )


def _check_order(spec: Spec) -> None:
    ordered = next((name for name in spec.losses if losses().cls(name).supervision == "order"), None)
    without = next((name for name in spec.tasks if not tasks().cls(name).instances_are_ordered), None)
    if ordered is not None and without is not None:
        loss, task = losses().entry(ordered).name, tasks().entry(without).name
        raise UsageError(
            f"{loss} learns from the order of the instances, and those of {task} have none; it needs a task with "
            "instances_are_ordered = True, such as sound-events or house-numbers"
        )


def _check_metrics(spec: Spec) -> None:
    known = {*METRICS, *(tasks().cls(name).primary for name in spec.tasks)}
    for one in spec.published:
        parameters = constructor_parameters(tasks().cls(one.task))
        for name in one.params:
            if name not in parameters:
                raise unknown(f"parameter of task {one.task} in [[published]]", name, parameters)
    for where, names in (
        ("margin", [*spec.margin]),
        ("compare_by", spec.compare_by),
        ("[[published]]", [one.metric for one in spec.published]),
        *((f"margin of contrast {contrast.name!r}", [*contrast.margin]) for contrast in spec.contrasts),
        *((f"mark {mark.name!r}", [*mark.at_most, *mark.at_least]) for mark in spec.marks),
    ):
        for name in names:
            if name not in known:
                raise unknown(f"metric of {where}", name, known)


def _contrasts(
    spec: Spec, cells: Iterable[Cell], labels: Mapping[str, tuple[str, str, str]]
) -> tuple[list[Contrast], list[str]]:
    """Return the contrasts of a spec with their variants on every task, by the labels of cells.

    One that does not name two variants is an error, unless flags have changed what the spec compares: it is left out
    then, with a remark.
    """
    of_tasks: dict[str, dict[Label, Cell]] = {}
    for cell in cells if spec.contrasts else ():
        loss, task, recipe = labels[cell.id]
        of_tasks.setdefault(task, {}).setdefault((loss, recipe), cell)
    found, notes = list[Contrast](), list[str]()
    for contrast in spec.contrasts:
        try:
            variants = {task: _pair(contrast, known) for task, known in of_tasks.items()}
        except UsageError as error:
            if not spec.changed:
                raise
            notes.append(f"The contrast {contrast.name!r} was left out, since flags changed what is compared: {error}.")
            continue
        for other in found:
            if any(set(other.variants[task]) == set(pair) for task, pair in variants.items()):
                raise UsageError(f"contrasts {other.name!r} and {contrast.name!r} have the same variants")
        found.append(Contrast(contrast.name, contrast.margin, variants))
    return found, notes


def _pair(contrast: NamedContrast, known: Iterable[Label]) -> tuple[Label, Label]:
    names = {", ".join(filter(None, label)): label for label in known}
    for side in (contrast.first, contrast.second):
        if side not in names:
            raise unknown(f"variant in contrast {contrast.name!r}", side, names)
    if contrast.first == contrast.second:
        raise UsageError(f"contrast {contrast.name!r}: first and second are one variant, {contrast.first!r}")
    return names[contrast.first], names[contrast.second]


def _recipes(spec: Spec, task: Task) -> list[Params]:
    """Return the recipes of a task: its own with the changes of the spec, one for every combination of axes."""
    common = {key: value for key, value in spec.recipe.items() if not isinstance(value, dict)}
    return [
        changed_recipe(task.recipe().model_dump(), settings_of(changes))
        for changes in _axes(common | spec.recipe.get(task.name, {}))
    ]


def changed_recipe(defaults: Params, changes: Params) -> Params:
    """Return a recipe, such as that of a task, with changes that have an effect; "none" stands for None.

    Another optimiser comes with settings of its own, and a rule for the length of a gradient, or none, replaces the one
    before.
    """
    from milbench.api.recipe import Recipe
    from milbench.optimizers.clipping import CLIPPING
    from milbench.optimizers.registry import SETTINGS, check_recipe, optimizers

    changes = {k: None if v == "none" else v for k, v in changes.items()}
    other = changes.get("optimizer", defaults["optimizer"])
    settings = SETTINGS.get(other, {}) if other != defaults["optimizer"] and isinstance(other, str) else {}
    replaced = CLIPPING if CLIPPING.keys() & changes else {}
    recipe: Recipe = validated("the recipe", Recipe, {**defaults, **settings, **replaced, **changes})
    check_recipe(recipe)
    origin = optimizers().entry(recipe.optimizer).source_digest.removeprefix(" of ")
    return recipe.model_copy(update={"optimizer_origin": origin}).model_dump()
