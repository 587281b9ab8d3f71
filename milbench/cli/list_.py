"""`milbench list`: the contents of the registries and of the store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from inspect import Parameter
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from milbench.cli import options
from milbench.contracts.parameters import constructor_parameters, network_parameters
from milbench.contracts.registry import losses, tasks
from milbench.errors import UsageError
from milbench.store.folders import Root

if TYPE_CHECKING:
    from milbench.contracts.registry import Registry
    from milbench.contracts.task import Task
    from milbench.experiment.spec import Spec

Kind = Literal["losses", "tasks", "optimizers", "networks", "specs", "settings", "runs"]


def list_(
    kind: Annotated[
        Kind, typer.Argument(help="Settings are the keys of a spec, and runs are comparisons.")
    ],
    root: options.RootOption = options.HERE,
) -> int:
    """List losses, tasks and other choices, settings of a spec, and comparisons.

    Example: milbench list losses
    """
    from rich.table import Column, Table

    from milbench._utils.console import console
    from milbench.experiment.spec_files import settings

    kinds: dict[str, tuple[list[str | Column], Callable[[], Iterator[tuple[str, ...]]], str]] = {
        "runs": (
            ["comparison", "cells", "done", "launched"],
            partial(_comparisons, Root(root)),
            "report NAME",
        ),
        "specs": (["spec", "summary", "search"], _specs, "run SPEC --dry-run"),
        "settings": (
            ["setting", "default", Column("meaning", overflow="fold")],
            settings,
            "run demo -p KEY=VALUE",
        ),
        "networks": (
            ["network", "summary", "parameters", "suits", "from"],
            _networks,
            "run demo --network NAMES",
        ),
        "tasks": (
            ["task", "summary", "parameters", "networks", "from"],
            lambda: _entries(
                tasks(),
                lambda task: [_defaults(constructor_parameters(task)), ", ".join(task.networks)],
            ),
            "run --loss exact,noisy-or --task NAME --dry-run",
        ),
        "losses": (
            ["loss", "summary", "parameters", "from"],
            lambda: _entries(losses(), lambda loss: [_defaults(constructor_parameters(loss))]),
            "run --loss NAMES --task extended-digits",
        ),
        "optimizers": (
            ["optimizer", "summary", "from"],
            _optimizers,
            "run demo -p recipe.optimizer=NAME",
        ),
    }
    headings, rows, step = kinds[kind]
    table = Table(*headings)
    for row in rows():
        table.add_row(
            *row[:-1], *[""] * (len(headings) - len(row)), row[-1]
        )  # a broken entry has no details
    console.print(table, markup=False)
    options.say(then=("milbench", *(step if table.rows else "run demo").split()), root=root)
    return 0


def _comparisons(place: Root) -> Iterator[tuple[str, ...]]:
    options.say(*place.not_plans())
    for name in place.names():
        try:
            plan = place.plan(name)
        except UsageError as error:
            # The other comparisons are shown.
            options.say(str(error))
            continue
        done = sum(place.cell(cell.id).is_done for cell in plan.cells)
        yield name, str(len(plan.cells)), str(done), plan.launched


def _specs() -> Iterator[tuple[str, ...]]:
    from milbench.experiment.spec_files import built_in_specs, read_spec

    for name in built_in_specs():
        spec = read_spec(name)
        yield name, spec.title, _draws(spec)


def _draws(spec: Spec) -> str:
    """Return how many draws the losses of a spec have on its tasks, "" where it has no search."""
    from milbench.experiment.draws import count_draws, space_of

    if spec.tune is None:
        return ""
    spaces = [space_of(spec.tune, task, loss) for task in spec.tasks for loss in spec.losses]
    counts = [count_draws(spec.tune, space) for space in spaces]
    fewest, most = min(counts), max(counts)
    number = f"{most}" if fewest == most else f"{fewest} to {most}"
    return f"{number} draws a loss"


def _entries(
    registry: Registry[Any], details: Callable[[Any], Sequence[str]]
) -> Iterator[tuple[str, ...]]:
    """Yield name, summary, details and origin of each entry of a registry, or its name, error and origin."""
    for name in registry.names():
        origin = registry.entry(name).origin
        try:
            entry = registry.get(name)
            yield name, _summary(entry), *details(entry), origin
        except UsageError as error:
            yield name, f"broken: {error}", origin


def _optimizers() -> Iterator[tuple[str, ...]]:
    from milbench.optimizers.known_optimizers import optimizers

    return _entries(optimizers(), lambda _: [])


def _networks() -> Iterator[tuple[str, ...]]:
    """Yield name, summary, parameters, what it suits and origin of the networks of tasks, then of the others."""
    from milbench.networks.backbone import Backbone, backbones
    from milbench.networks.known_networks import networks, suited

    suited_tasks: dict[tuple[str, Any, str], list[str]] = {}
    for task, origin, cls in working_tasks():
        for makers, condition in (
            (cls.networks, ""),
            (cls.classifiers, " (losses with a class head)"),
        ):
            for name, maker in makers.items():
                suited_tasks.setdefault((name, maker, origin), []).append(f"{task}{condition}")
    for (name, maker, origin), suitable in sorted(
        suited_tasks.items(), key=lambda item: item[0][0]
    ):
        yield (
            name,
            _summary(maker),
            _defaults(network_parameters(maker)),
            ", ".join(suitable),
            origin,
        )
    yield from _entries(
        networks(),
        lambda maker: [_defaults(network_parameters(maker)), suited(maker)],
    )
    names, maker = (
        f"resnet18, ... ({len(backbones())} of torchvision)",
        partial(Backbone, "resnet18"),
    )
    yield (
        names,
        _summary(maker),
        _defaults(network_parameters(maker)),
        "tasks whose bags are images",
        "torchvision",
    )


def working_tasks() -> Iterator[tuple[str, str, type[Task]]]:
    """Yield name, origin and class of every task that can be imported."""
    for name in tasks().names():
        with suppress(UsageError):
            yield name, tasks().entry(name).origin, tasks().get(name)


def _summary(maker: Any) -> str:
    """Return the first line of the docstring of a class or function."""
    # A partial has no docstring of its own.
    function = getattr(maker, "func", maker)
    text = (function.__doc__ or "").strip()
    return str(text.partition("\n")[0])


def _defaults(parameters: Mapping[str, Parameter]) -> str:
    """Return the parameters in one line, each with its default."""
    texts = []
    for parameter in parameters.values():
        if parameter.default is parameter.empty:
            texts.append(f"{parameter.name} (required)")
        else:
            texts.append(f"{parameter.name}={parameter.default}")
    return ", ".join(texts)
