"""How a spec becomes a plan: every combination of its losses, tasks, recipes and seeds is a cell.

A parameter given as a list is an axis: there are cells for each of its values, and for all combinations of axes. A
value in the list of a recipe may be a table of several settings: three rules of clipping are then one axis of any name.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from milbench.api.marks import Mark
from milbench.api.metric_info import METRICS
from milbench.api.plan import Cell, Plan, TaskInfo, labels
from milbench.api.registry import check_params, constructor_parameters, losses, tasks
from milbench.api.validation import validated
from milbench.engine.contrasts import check_losses, resolve
from milbench.engine.marks import PassMark, check_metrics, task_of
from milbench.engine.search_space import settings_of
from milbench.engine.spec import CHANGED, Params, Spec, parse_seeds
from milbench.errors import UsageError, as_usage, unknown

if TYPE_CHECKING:
    from milbench.api.task import Task

MOST_VARIANTS, MOST_CELLS = 10_000, 1_000_000
"""How many combinations of axes and cells there may be: more are a slip, and would not fit into memory."""


def check_contrasts(spec: Spec) -> None:
    """Raise UsageError where a contrast names a loss that a spec does not compare, or parameters that none has.

    It is for a spec as its file has it, before flags leave out some of its losses.
    """
    if spec.contrasts:
        found = [(losses().entry(name).name, params) for name, params in _variants(losses(), spec.losses, spec.loss)]
        check_losses(spec.contrasts, found, f"spec {spec.name}")


def make_plan(spec: Spec, data_dir: Path | None, device: str = "cpu") -> Plan:
    """Expand a spec into its cells, with every name, parameter and data set checked.

    Args:
        spec: from `make_spec` or `read_spec`.
        data_dir: the folder of the data; None: the default one.
        device: on which the cells are computed, for the precision `auto`.

    Raises:
        UsageError: a name, a parameter or the data of a task are wrong, or losses of different supervision are compared
            without `spec.supervision`.
    """
    if data_dir is not None:
        with as_usage():  # not around `check_data`, in which an OSError may be a defect of a plug-in
            data_dir.exists()
    loss_fields = [_loss_fields(name, params) for name, params in _variants(losses(), spec.losses, spec.loss)]
    _check_supervision(spec)
    _check_order(spec)
    _check_metrics(spec)
    for one in spec.published:
        one.check()
    found = _expanded(spec, loss_fields, data_dir, device)
    named = labels(found.cells.values())
    # Searched settings are no part of a variant: what is compared has those that the search has chosen.
    of_variants = {cell: (loss, task, "") for cell, (loss, task, _) in named.items()} if spec.tune else named
    contrasts, left_out = resolve(spec.contrasts, found.cells.values(), of_variants, spec.source.endswith(CHANGED))
    return Plan(
        name=spec.name,
        title=spec.title,
        source=spec.source,
        cells=list(found.cells.values()),
        tasks=found.infos,
        labels=named,
        preset=spec.preset,
        notes=[*spec.notes, *left_out, *([_precision_note(device)] if found.auto else [])],
        differences=[d.model_dump() for d in spec.differences],
        selection=spec.selection,
        margin=spec.margin,
        compare_by=spec.compare_by,
        contrasts=contrasts,
        folds=found.folds,
        overlaps=found.overlaps,
        spec=spec.digest,
        part=spec.part,
        marks=found.marks,
    )


@dataclass
class _Expanded:
    """What the tasks of a spec come to; cells, folds and overlaps by the content hash of the cell."""

    cells: dict[str, Cell] = field(default_factory=dict)
    infos: dict[str, TaskInfo] = field(default_factory=dict)
    folds: dict[str, tuple[int, int]] = field(default_factory=dict)
    overlaps: dict[str, float] = field(default_factory=dict)
    marks: list[Mark] = field(default_factory=list)
    auto: bool = False
    """Whether some recipe has the precision `auto`."""


def _expanded(spec: Spec, loss_fields: list[Params], data_dir: Path | None, device: str) -> _Expanded:
    """Return the cells of every task of a spec and of its marks, and what is known of each task.

    Raises:
        UsageError: as `make_plan`.
    """
    out = _Expanded()
    planned: set[str] = set()
    for name, params, mark in _tests(spec):
        task = tasks().create(name, params)
        task_fields = _task_fields(name, params, task, data_dir)
        if mark is not None:
            marks = mark.marks(task_fields["task"], task_fields["task_params"])
            out.marks += [one for one in marks if one not in out.marks]  # parameters of a mark may be an axis as well
        if repr(task_fields) in planned:
            continue
        planned.add(repr(task_fields))
        beside = [one.entry() for one in spec.published if one.task == task.name]
        info = TaskInfo.of(task, task_fields["task_params"]).compared_by(spec.compare_by).beside(beside)
        out.infos[task.name] = info.beyond(out.infos.get(task.name))
        recipes = _recipes(spec, task)
        out.auto |= any(recipe["precision"] == "auto" for recipe in recipes)
        recipes = [_resolved(recipe, device) for recipe in recipes]
        cells = _cells(spec, task, recipes, loss_fields, task_fields, MOST_CELLS - len(out.cells))
        out.cells |= cells
        out.folds |= dict.fromkeys(cells, (task.folds.count, task.folds.repeats)) if task.folds else {}
        overlap = task.overlap(data_dir)
        out.overlaps |= dict.fromkeys(cells, overlap) if overlap else {}
    return out


def _tests(spec: Spec) -> Iterator[tuple[str, Params, PassMark | None]]:
    """Yield every task with its parameters, those of the spec first and then those of each mark."""
    for name, params in _variants(tasks(), spec.tasks, spec.task):
        yield name, params, None
    for mark in spec.marks:
        given = task_of(mark, spec.tasks, tasks())
        if given is not None:
            name = tasks().entry(given).name
            for _, params in _variants(tasks(), [given], {name: spec.task.get(name, {}) | mark.params}):
                yield given, params, mark


def _cells(
    spec: Spec, task: Task, recipes: list[Params], loss_fields: list[Params], task_fields: Params, most: int
) -> dict[str, Cell]:
    """Return the cells of one task by their content hashes: every recipe with every loss and seed.

    Raises:
        UsageError: they are more than `most`.
    """
    seeds = _seeds_of(spec, task)
    if (count := len(recipes) * len(loss_fields) * len(seeds)) > most:
        total = count + MOST_CELLS - most
        raise UsageError(f"{total:,} cells are too many for one comparison, expected at most {MOST_CELLS:,}")
    cells: dict[str, Cell] = {}
    for recipe, of_loss in itertools.product(recipes, loss_fields):
        first = Cell(**of_loss, **task_fields, recipe=recipe, seed=seeds[0])
        cells |= {cell.id: cell for cell in first.with_seeds(seeds)}
    return cells


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
    """Raise UsageError where losses of different supervision are compared and the spec does not list their kinds."""
    found = {losses().cls(name).supervision: losses().entry(name).name for name in spec.losses}
    if len(found) > 1 and not set(found) <= set(spec.supervision):
        listed = ", ".join(f"{name} has {supervision} supervision" for supervision, name in found.items())
        kinds = ",".join(found)
        raise UsageError(
            f"the losses do not have the same supervision: {listed}; if that is meant, add --supervision {kinds}"
        )


def _check_order(spec: Spec) -> None:
    """Raise UsageError where a loss learns from the order of instances on a task whose instances have none."""
    ordered = next((name for name in spec.losses if losses().cls(name).target_kind == "order"), None)
    without = next((name for name in spec.tasks if not tasks().cls(name).instances_are_ordered), None)
    if ordered is not None and without is not None:
        loss, task = losses().entry(ordered).name, tasks().entry(without).name
        raise UsageError(
            f"{loss} learns from the order of the instances, and those of {task} have none; it needs a task with "
            "instances_are_ordered = True, such as sound-events or house-numbers"
        )


def _check_metrics(spec: Spec) -> None:
    """Raise UsageError where a metric of the spec is none that milbench knows or a task of it has as its primary."""
    known = {*METRICS, *(tasks().cls(name).primary for name in spec.tasks)}
    of_contrasts = [(f"margin of contrast {c.name!r}", [*c.margin]) for c in spec.contrasts]
    for where, names in (("margin", [*spec.margin]), ("compare_by", spec.compare_by), *of_contrasts):
        for name in names:
            if name not in known:
                raise unknown(f"metric in {where}", name, known)
    check_metrics(spec.marks, known)


def _loss_fields(name: str, params: Params) -> Params:
    """Return the fields of a cell that a loss determines."""
    entry, cls = losses().entry(name), losses().cls(name)
    return {
        "loss": entry.name,
        "loss_params": params,
        "loss_file": entry.origin if entry.is_file else "",
        "loss_revision": f"{cls.revision}{entry.source_digest}",
        "supervision": cls.supervision,
    }


def _task_fields(name: str, params: Params, task: Task, data_dir: Path | None) -> Params:
    """Return the fields of a cell that a task determines, with the digest of its data."""
    entry, defaults = tasks().entry(name), constructor_parameters(type(task))
    return {
        "task": entry.name,
        "task_params": {k: v for k, v in params.items() if k not in task.added_later or v != defaults[k].default},
        "task_file": entry.origin if entry.is_file else "",
        "task_revision": f"{task.revision}{entry.source_digest}{task.uses}",
        "data": task.check_data(data_dir),
    }


def _recipes(spec: Spec, task: Task) -> list[Params]:
    """Return the recipes of a task: its own with the changes of the spec, one for every combination of axes."""
    common = {key: value for key, value in spec.recipe.items() if not isinstance(value, dict)}
    return [
        changed_recipe(task.recipe().model_dump(), settings_of(changes))
        for changes in _axes(common | spec.recipe.get(task.name, {}))
    ]


def _resolved(recipe: Params, device: str) -> Params:
    """Return a recipe with the precision that `auto` is on a device."""
    import torch

    from milbench.engine.precision import auto_precision

    return recipe | {"precision": auto_precision(torch.device(device))} if recipe["precision"] == "auto" else recipe


def _precision_note(device: str) -> str:
    import torch

    from milbench.engine.precision import auto_precision
    from milbench.store.provenance import device_name

    chosen = auto_precision(torch.device(device))
    does = "multiplies" if chosen == "bfloat16" else "does not multiply"
    return f"Precision auto is {chosen} here: {device_name(device)} {does} bfloat16."


def changed_recipe(defaults: Params, changes: Params) -> Params:
    """Return a recipe, such as that of a task, with changes; "none" stands for None.

    Another optimiser comes with settings of its own, and a rule for the length of a gradient, or none, replaces the one
    before.

    Raises:
        UsageError: a change is unknown or wrong, or has no effect.
    """
    from milbench.api.recipe import ADDED_LATER, Recipe
    from milbench.engine.optimizers import CLIPPING, SETTINGS, check_recipe, optimizers

    changes = {k: None if v == "none" else v for k, v in changes.items()}
    other = changes.get("optimizer", defaults["optimizer"])
    settings = SETTINGS.get(other, {}) if other != defaults["optimizer"] and isinstance(other, str) else {}
    replaced = CLIPPING if CLIPPING.keys() & changes else {}
    recipe: Recipe = validated("the recipe", Recipe, {**ADDED_LATER, **defaults, **settings, **replaced, **changes})
    check_recipe(recipe)
    origin = optimizers().entry(recipe.optimizer).source_digest.removeprefix(" of ")
    return recipe.model_copy(update={"optimizer_origin": origin}).model_dump()


def _variants(registry: Any, chosen: Sequence[str], sections: dict[str, Params]) -> Iterator[tuple[str, Params]]:
    """Yield the entries with their complete parameters, one for every combination of axes."""
    for given in dict.fromkeys(chosen):
        entry = registry.entry(given)
        cls = registry.cls(given)
        for params in _axes(sections.get(entry.name, {})):
            yield given, check_params(f"{registry.kind} {entry.name}", cls, settings_of(params))


def _axes(params: Params) -> Iterator[Params]:
    for key, value in params.items():
        if value == []:
            raise UsageError(f"{key} = [] is an axis without values")
    values = [v if isinstance(v, list) else [v] for v in params.values()]
    if (count := math.prod(map(len, values))) > MOST_VARIANTS:
        axes = ", ".join(key for key, value in params.items() if isinstance(value, list))
        raise UsageError(f"the axes {axes} have {count:,} combinations, expected at most {MOST_VARIANTS:,}")
    for combination in itertools.product(*values):
        yield dict(zip(params, combination, strict=True))
