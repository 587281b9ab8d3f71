"""Checks of a plan: its losses must be comparable, and every name in its spec must exist."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from milbench.contracts.metric_info import METRICS
from milbench.contracts.parameters import constructor_parameters
from milbench.contracts.published import Published
from milbench.contracts.recipe import Recipe
from milbench.contracts.registry import losses, tasks
from milbench.contracts.resolver import resolve
from milbench.errors import UsageError, unknown
from milbench.experiment.cell import Cell
from milbench.experiment.choices import LossChoice
from milbench.experiment.display_names import labels
from milbench.experiment.questions import Contrast
from milbench.experiment.spec import Spec

if TYPE_CHECKING:
    from milbench.contracts.supervision import Supervision
    from milbench.contracts.task import Task


def check_supervision(
    choices: Iterable[LossChoice],
    task_classes: Iterable[type[Task]],
    meant: Collection[Supervision],
) -> None:
    """Raise UsageError where losses have different supervision, unless all of it is in `meant`.

    A loss that learns from the order of the instances also needs tasks whose instances have one.
    """
    # Supervision -> one of the losses that have it.
    kinds: dict[Supervision, str] = {choice.supervision: choice.name for choice in choices}
    if len(kinds) > 1 and not set(kinds) <= set(meant):
        listed = ", ".join(f"{name} has {kind} supervision" for kind, name in kinds.items())
        raise UsageError(
            f"the losses do not have the same supervision: {listed}; "
            f"if that is meant, add -p supervision={','.join(kinds)}"
        )
    for task in task_classes:
        if "order" in kinds and not task.instances_are_ordered:
            raise UsageError(
                f"{kinds['order']} learns from the order of the instances, "
                f"and those of {task.name} have none; it needs a task with "
                "instances_are_ordered = True, as those of sequences have it"
            )


def check_metrics(
    spec: Spec, task_classes: Iterable[type[Task]], *, flags_changed_spec: bool
) -> None:
    """Raise UsageError where the spec names a metric that does not exist.

    A margin is the largest difference in a metric that does not matter. Its metric must also be one
    by which losses are compared.
    """
    primary = list(dict.fromkeys(task.primary for task in task_classes))
    known = {*METRICS, *primary}
    for owner, name in _named_metrics(spec):
        if name not in known:
            raise unknown(f"metric of {owner}", name, known)
    # Losses are compared by the first metric; the others of `compare_by` are shown beside it.
    compared = spec.compare_by[:1] or primary
    for name in spec.margin:
        # A flag may have changed by which metric losses are compared.
        if name not in compared and not flags_changed_spec:
            raise UsageError(
                f"margin: losses are not compared by {name}; "
                f"use {' or '.join(compared)}, or compare_by = [{name!r}]"
            )


def _named_metrics(spec: Spec) -> Iterator[tuple[str, str]]:
    """Yield, for each metric that a spec names, the part of the spec and the metric."""
    for name in spec.margin:
        yield "margin", name
    for name in spec.compare_by:
        yield "compare_by", name
    for value in spec.published:
        yield "[[published]]", value.metric
    for mark in spec.marks:
        for bound in mark.bounds:
            yield f"mark {mark.name!r}", bound.metric


def check_published(published: Iterable[Published]) -> None:
    """Raise UsageError where a published value names no task, or an unknown parameter.

    The parameters are those of its protocol, which says how the source has trained, such as
    recipe.lr or task.size.
    """
    for value in published:
        if not value.task:
            raise UsageError(
                f"[[published]] {(value.method or value.loss)!r} needs the task of its value"
            )
        names = _names_in_protocol(value)
        for name in value.protocol:
            # Parameters of the loss and the network are not checked, since every network has other
            # ones. Where a cell lacks a parameter, it is not compared (`Published.deviations`).
            is_of_loss = bool(value.loss) and name.startswith(("loss.", "network."))
            if name not in names and not is_of_loss:
                raise unknown("parameter in the protocol of [[published]]", name, names)


def _names_in_protocol(value: Published) -> list[str]:
    """Return the names that the protocol of a published value may have.

    A method that milbench lacks is shown beside all losses, so its protocol may name only
    parameters of the task.
    """
    parameters = constructor_parameters(tasks().get(resolve(tasks(), value.task)))
    names = [f"task.{key}" for key in parameters]
    if value.loss:
        # A loss with parameters begins with its name. This raises UsageError for an unknown loss.
        resolve(losses(), value.loss.split()[0])
        names.append("network")
        names += [f"recipe.{key}" for key in Recipe.model_fields]
    return names


def check_network_sections(
    sections: Iterable[str], cells: Iterable[Cell], task_classes: Collection[type[Task]]
) -> None:
    """Raise UsageError where a section of the spec is for a network that no task has."""
    from milbench.networks.known_networks import suitable_networks

    used = {cell.network.name for cell in cells}
    for name in sections:
        if name in used or any(_has_network(task, name) for task in task_classes):
            continue
        known: set[str] = set()
        for task in task_classes:
            known.update(suitable_networks(task))
        raise unknown("network section", name, known)


def _has_network(task: type[Task], name: str) -> bool:
    """Return whether a task has, or can use, a network of a name."""
    from milbench.networks.known_networks import network_maker

    try:
        network_maker(task, name)
    except UsageError:
        return False
    return True


def check_contrasts(spec: Spec, cells: Sequence[Cell], *, flags_changed_spec: bool) -> None:
    """Raise UsageError where a contrast names a variant that does not exist.

    Where flags have changed the spec, a variant may be missing. Two contrasts of the same variants,
    and a contrast of a variant with itself, are always refused.
    """
    if not spec.contrasts:
        return
    variants_of_tasks = _variants_of_tasks(spec, cells)
    # A set of two variants, in either order -> the name of the contrast that has them.
    names: dict[frozenset[str], str] = {}
    for contrast in spec.contrasts:
        if not flags_changed_spec:
            _check_variants_exist(contrast, variants_of_tasks)
        if contrast.first == contrast.second:
            raise UsageError(
                f"contrast {contrast.name!r}: first and second are one variant, {contrast.first!r}"
            )
        pair = frozenset((contrast.first, contrast.second))
        if pair in names:
            raise UsageError(
                f"contrasts {names[pair]!r} and {contrast.name!r} have the same variants"
            )
        names[pair] = contrast.name


def _variants_of_tasks(spec: Spec, cells: Sequence[Cell]) -> list[list[str]]:
    """Return the names of what is compared on each task."""
    variants: dict[str, dict[str, None]] = {}
    for label in labels(cells).values():
        # Where settings are searched, the name of a variant has no recipe: the search chooses it.
        compared = label._replace(recipe="") if spec.tune else label
        variants.setdefault(label.task, {})[compared.variant] = None
    return [list(names) for names in variants.values()]


def _check_variants_exist(contrast: Contrast, variants_of_tasks: list[list[str]]) -> None:
    for variants in variants_of_tasks:
        for side in (contrast.first, contrast.second):
            if side not in variants:
                raise unknown(f"variant in contrast {contrast.name!r}", side, variants)
