"""How a spec becomes a plan: every combination of its losses, tasks, networks, recipes and seeds is a cell.

A parameter given as a list is an axis: there are cells for each of its values, and for all combinations of axes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from milbench._utils.digests import file_digest
from milbench.api.metric_info import METRICS
from milbench.api.parameters import check_params, check_values, constructor_parameters, network_parameters
from milbench.api.plan import Cell, Contrast, Label, Plan, TaskInfo, labels, task_key
from milbench.api.registry import losses, tasks
from milbench.api.resolver import resolve
from milbench.api.validation import validated
from milbench.data.catalog import found_file
from milbench.engine.spec import DEFAULT, NamedContrast, Params, PassMark, Spec, as_list, parse_seeds
from milbench.errors import UsageError, as_usage, unknown

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
    sections = {name: {k: v for k, v in table.items() if k != "networks"} for name, table in spec.loss.items()}
    of_losses = [_loss_fields(name, params) for name, params, _ in _variants(losses(), spec.losses, sections)]
    _check_supervision(spec)
    _check_order(spec)
    _check_metrics(spec)
    cells, infos, notes = dict[str, Cell](), dict[str, TaskInfo](), list[str]()
    for name, params, short_name, mark in _tests(spec):
        task: Task = tasks().get(name)(**params)
        key = task_key(task.name, params)
        if key not in infos:
            infos[key] = _info(spec, task, params)
            seeds = _seeds_of(spec, task)
            trained = [
                of_loss | of_network | {"recipe": recipe}
                for of_loss in of_losses
                for of_network, suited in _networks(spec, task, of_loss)
                for recipe in _recipes(spec, task, suited)
            ]
            if not precision and any(fields["recipe"]["precision"] == "auto" for fields in trained):
                precision, note = _auto_precision(device, spec)
                notes.append(note)
            if (count := len(trained) * len(seeds)) > MOST_CELLS:
                raise UsageError(f"{count:,} cells are too many for one comparison, expected at most {MOST_CELLS:,}")
            of_task = _task_fields(name, params, task, spec) | {"task_name": short_name}
            for fields, seed in itertools.product(trained, seeds):
                if fields["recipe"]["precision"] == "auto":
                    fields["recipe"] |= {"precision": precision}
                cell = Cell(**fields, **of_task, seed=seed)
                cells[cell.id] = cell
        infos[key].marks.extend(bound for bound in (mark.marks() if mark else []) if bound not in infos[key].marks)
    _check_networks(spec, cells.values())
    cell_labels = labels(cells.values())
    # Searched settings are no part of a variant: what is compared has those that the search has chosen.
    of_variants = {cell: label._replace(recipe="") for cell, label in cell_labels.items()} if spec.tune else cell_labels
    contrasts, left_out = _contrasts(spec, cells.values(), of_variants)
    notes = [*spec.notes, *left_out, *notes]
    return Plan(spec.model_dump(mode="json"), [*cells.values()], infos, notes, contrasts, precision=precision)


def _tests(spec: Spec) -> Iterator[tuple[str, Params, str, PassMark | None]]:
    """Yield every task with its parameters, its short name and a mark, those of the spec first, without one."""
    for variant in _variants(tasks(), spec.tasks, spec.task):
        yield (*variant, None)
    spellings = {resolve(tasks(), spelling): spelling for spelling in spec.tasks}
    for mark in spec.marks:
        name = resolve(tasks(), mark.task)
        if name in spellings:  # else a flag has left it out
            section = spec.task.get(name, {})
            tables = [table | mark.params for table in as_list(section)]
            for variant in _variants(tasks(), [spellings[name]], {name: tables}):
                yield (*variant, mark)


def _variants(registry: Any, requested: Sequence[str], sections: Params) -> Iterator[tuple[str, Params, str]]:
    """Yield the entries with complete parameters, for every combination of axes, and a short name, "" for none."""
    for name in dict.fromkeys(resolve(registry, spelling) for spelling in requested):
        cls, tables, names = registry.get(name), sections.get(name, {}), [""]
        if isinstance(tables, list):
            names = [str(table.get("name", "")) for table in tables]
            tables = [{key: value for key, value in table.items() if key != "name"} for table in tables]
        if twice := next((short_name for short_name in names if short_name and names.count(short_name) > 1), None):
            raise UsageError(f"two variants of {registry.kind} {name} are named {twice!r}")
        for table, short_name in zip(as_list(tables), names, strict=True):
            for params in _axes(table):
                yield name, check_params(f"{registry.kind} {name}", cls, params), short_name


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
    entry, cls = losses().entry(name), losses().get(name)
    return {
        "loss": entry.name, "loss_params": params, "loss_file": entry.source, "supervision": cls.supervision,
        "loss_revision": f"{cls.revision}{entry.source_digest}",
    }  # fmt: skip


def _task_fields(name: str, params: Params, task: Task, spec: Spec) -> Params:
    entry = tasks().entry(name)
    return {
        "task": entry.name, "task_params": params, "task_file": entry.source,
        "task_revision": f"{task.revision}{entry.source_digest}",
        "data": task.check_data(spec.run.data_dir),
    }  # fmt: skip


def _networks(spec: Spec, task: Task, of_loss: Params) -> Iterator[tuple[Params, Params]]:
    """Yield the fields of the networks that a loss is trained with on a task, for every combination of axes.

    Beside them are the settings of the recipe that suit the network.
    """
    from milbench.networks.registry import network_maker, network_name, source_of, unwrapped

    head = losses().create(of_loss["loss"], of_loss["loss_params"]).head
    for requested in as_list(spec.loss.get(of_loss["loss"], {}).get("networks", spec.networks)):
        name = network_name(task, requested, head)
        maker = network_maker(task, name, head)
        revision, file = source_of(task, name, head)
        for params in _axes(_section(spec, name, network_parameters(maker))):
            complete = check_values(f"network {name}", network_parameters(maker), params)
            weights = complete.get("weights")
            digest = _weights_digest(weights, spec) if isinstance(weights, str) and weights else ""
            of_network = {
                "network": name, "network_params": complete, "network_file": file,
                "network_revision": revision + digest,
                "network_is_default": requested == DEFAULT,
            }  # fmt: skip
            yield of_network, dict(getattr(unwrapped(maker), "recipe", {}))


def _section(spec: Spec, network: str, parameters: Container[str]) -> Params:
    """Return the settings of a network, without those that only another task's network of this name knows."""
    namesakes = [tasks().get(resolve(tasks(), task)).networks.get(network) for task in spec.tasks]
    elsewhere = {key for maker in namesakes if maker for key in network_parameters(maker)}
    section = spec.network.get(network, {})
    return {key: value for key, value in section.items() if key in parameters or key not in elsewhere}


def _weights_digest(weights: str, spec: Spec) -> str:
    path = found_file(weights, spec.run.data_dir, "network.weights")
    if not path.is_file():
        raise UsageError(f"network.weights = {weights}: there is no such file")
    with as_usage():
        return f" weights {file_digest(path, 'sha256')[:16]}"


def _check_networks(spec: Spec, cells: Iterable[Cell]) -> None:
    """Raise UsageError where a section of the spec is for a network that no task has."""
    from milbench.networks.registry import network_maker, suitable_networks

    used = {cell.network for cell in cells}
    of_tasks = [tasks().get(resolve(tasks(), task)) for task in spec.tasks]
    for name in spec.network.keys() - used:
        if name == DEFAULT:
            raise UsageError("settings of a network stand under its name, not under 'default'")
        for task in of_tasks:
            with suppress(UsageError):
                network_maker(task, name)
                break
        else:
            raise unknown("network section", name, {n for task in of_tasks for n in suitable_networks(task)})


def _info(spec: Spec, task: Task, params: Params) -> TaskInfo:
    primary = spec.compare_by[0] if spec.compare_by else task.primary
    literature = [
        entry.entry()
        for entry in spec.published
        if entry.task == task.name and all(params.get(k) == v for k, v in entry.params.items())
    ]
    return TaskInfo(
        primary=primary,
        chance=task.chance if primary == task.primary else None,  # guessing is known for the task's own metric alone
        amount=task.amount,
        published=[*task.published, *literature],
        folds=(task.folds.count, task.folds.repeats or 0) if task.folds else None,
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
    if task.folds.repeats and seeds[-1] >= task.folds.seeds:
        folds = f"{task.folds.repeats} x {task.folds.count} folds"
        raise UsageError(f"seed {seeds[-1]}: the {folds} of {task.name} are the seeds 0-{task.folds.seeds - 1}")
    return seeds


def _check_supervision(spec: Spec) -> None:
    names = [resolve(losses(), requested) for requested in spec.losses]
    kinds = {losses().get(name).supervision: name for name in names}
    if len(kinds) > 1 and not set(kinds) <= set(spec.supervision):
        listed = ", ".join(f"{name} has {supervision} supervision" for supervision, name in kinds.items())
        raise UsageError(
            f"the losses do not have the same supervision: {listed}; if that is meant, add "
            f"-p supervision={','.join(kinds)}"
        )


def _check_order(spec: Spec) -> None:
    loss_names, task_names = [resolve(losses(), n) for n in spec.losses], [resolve(tasks(), n) for n in spec.tasks]
    ordered = next((name for name in loss_names if losses().get(name).supervision == "order"), None)
    without = next((name for name in task_names if not tasks().get(name).instances_are_ordered), None)
    if ordered is not None and without is not None:
        suitable = [name for name in tasks().names() if _is_ordered(name)]
        raise UsageError(
            f"{ordered} learns from the order of the instances, and those of {without} have none; it needs a task with "
            f"instances_are_ordered = True, such as {' or '.join(suitable[:2])}"
        )


def _is_ordered(task: str) -> bool:
    try:
        return tasks().get(task).instances_are_ordered
    except UsageError:  # a plug-in that cannot be imported
        return False


def _check_metrics(spec: Spec) -> None:
    metrics = {*METRICS, *(tasks().get(resolve(tasks(), name)).primary for name in spec.tasks)}
    for entry in spec.published:
        parameters = constructor_parameters(tasks().get(resolve(tasks(), entry.task)))
        for name in entry.params:
            if name not in parameters:
                raise unknown(f"parameter of task {entry.task} in [[published]]", name, parameters)
    for owner, names in (
        ("margin", [*spec.margin]),
        ("compare_by", spec.compare_by),
        ("[[published]]", [entry.metric for entry in spec.published]),
        *((f"margin of contrast {contrast.name!r}", [*contrast.margin]) for contrast in spec.contrasts),
        *((f"mark {mark.name!r}", [*mark.at_most, *mark.at_least]) for mark in spec.marks),
    ):
        for name in names:
            if name not in metrics:
                raise unknown(f"metric of {owner}", name, metrics)


def _contrasts(spec: Spec, cells: Iterable[Cell], labels: Mapping[str, Label]) -> tuple[list[Contrast], list[str]]:
    """Return the contrasts of a spec with their variants on every task, by the labels of cells.

    One that does not name two variants is an error, unless flags have changed what the spec compares: it is left out
    then, with a remark.
    """
    of_tasks: dict[str, dict[str, None]] = {}
    for cell in cells if spec.contrasts else ():
        of_tasks.setdefault(labels[cell.id].task, {})[labels[cell.id].variant] = None
    contrasts, notes = list[Contrast](), list[str]()
    for contrast in spec.contrasts:
        try:
            variants = {task: _pair(contrast, variants_of_task) for task, variants_of_task in of_tasks.items()}
        except UsageError as error:
            if not spec.changed:
                raise
            notes.append(f"The contrast {contrast.name!r} was left out, since flags changed what is compared: {error}.")
            continue
        for earlier in contrasts:
            if any(set(earlier.variants[task]) == set(pair) for task, pair in variants.items()):
                raise UsageError(f"contrasts {earlier.name!r} and {contrast.name!r} have the same variants")
        contrasts.append(Contrast(contrast.name, contrast.margin, variants))
    return contrasts, notes


def _pair(contrast: NamedContrast, variants: Iterable[str]) -> tuple[str, str]:
    for side in (contrast.first, contrast.second):
        if side not in variants:
            raise unknown(f"variant in contrast {contrast.name!r}", side, variants)
    if contrast.first == contrast.second:
        raise UsageError(f"contrast {contrast.name!r}: first and second are one variant, {contrast.first!r}")
    return contrast.first, contrast.second


def _recipes(spec: Spec, task: Task, of_network: Params) -> list[Params]:
    """Return the recipes of a task with a network, changed by the spec, one for every combination of axes."""
    defaults = changed_recipe(task.recipe().model_dump(), of_network)
    common = {key: value for key, value in spec.recipe.items() if not isinstance(value, dict)}
    return [changed_recipe(defaults, changes) for changes in _axes(common | spec.recipe.get(task.name, {}))]


def changed_recipe(defaults: Params, changes: Params) -> Params:
    """Return a recipe, such as that of a task, with changes that have an effect; "none" stands for None.

    Another optimiser comes with settings of its own.
    """
    from milbench.api.recipe import Recipe
    from milbench.optimizers.registry import SETTINGS, check_recipe, optimizers

    changes = {k: None if v == "none" and k != "gradient_norm" else v for k, v in changes.items()}
    optimizer = changes.get("optimizer", defaults["optimizer"])
    settings = SETTINGS.get(optimizer, {}) if optimizer != defaults["optimizer"] and isinstance(optimizer, str) else {}
    recipe: Recipe = validated("the recipe", Recipe, {**defaults, **settings, **changes})
    check_recipe(recipe)
    origin = optimizers().entry(recipe.optimizer).source_digest.removeprefix(" of ")
    return recipe.model_copy(update={"optimizer_origin": origin}).model_dump()
