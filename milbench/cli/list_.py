"""`milbench list`: the contents of the registries and of the store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
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
    from rich.table import Column

    from milbench.contracts.registry import Registry
    from milbench.contracts.task import Task
    from milbench.experiment.spec import Spec

Kind = Literal["losses", "tasks", "optimizers", "networks", "specs", "settings", "runs"]


@dataclass(frozen=True)
class _Listing:
    """How one kind of list is shown."""

    headings: list[str | Column]
    rows: Callable[[], Iterator[tuple[str, ...]]]
    step: str
    """The next command to suggest, without `milbench`."""
    remarks: Callable[[], Sequence[str]] = tuple
    """Returns lines to print below the list; without it there are none."""


def list_(
    kind: Annotated[
        Kind, typer.Argument(help="Settings are the keys of a spec, and runs are comparisons.")
    ],
    root: options.RootOption = options.HERE,
) -> int:
    """List losses, tasks and other choices, settings of a spec, and comparisons.

    Example: milbench list losses
    """
    from rich.table import Table

    from milbench._utils.console import console

    listing = _listings(Root(root))[kind]
    table = Table(*listing.headings)
    for *texts, origin in listing.rows():
        # A broken entry has no details. Empty texts keep its origin in the last column.
        missing = len(listing.headings) - len(texts) - 1
        details = [""] * missing
        table.add_row(*texts, *details, origin)
    step = listing.step if table.rows else "run demo"
    console.print(table, markup=False)
    options.say(*listing.remarks())
    options.say(then=("milbench", *step.split()), root=root)
    return 0


def _listings(store: Root) -> dict[Kind, _Listing]:
    """Return how each kind of list is shown. Nothing is computed before it is asked for."""
    from rich.table import Column

    from milbench.experiment.spec_files import describe_settings

    return {
        "runs": _Listing(
            headings=["comparison", "cells", "done", "launched"],
            rows=partial(_comparisons, store),
            step="report NAME",
        ),
        "specs": _Listing(
            headings=["spec", "summary", "search"], rows=_specs, step="run SPEC --dry-run"
        ),
        "settings": _Listing(
            headings=["setting", "default", Column("meaning", overflow="fold")],
            rows=describe_settings,
            step="run demo -p KEY=VALUE",
        ),
        "networks": _Listing(
            headings=["network", "summary", "parameters", "suits", "from"],
            rows=_networks,
            step="run demo --network NAMES",
        ),
        "tasks": _Listing(
            headings=["task", "summary", "parameters", "networks", "from"],
            rows=_tasks,
            step="run --loss exact,noisy-or --task NAME --dry-run",
        ),
        "losses": _Listing(
            headings=["loss", "summary", "parameters", "from"],
            rows=_losses,
            step="run --loss NAMES --task extended-digits",
            remarks=_which_loss,
        ),
        "optimizers": _Listing(
            headings=["optimizer", "summary", "from"],
            rows=_optimizers,
            step="run demo -p recipe.optimizer=NAME",
        ),
    }


def _comparisons(store: Root) -> Iterator[tuple[str, ...]]:
    """Yield, for each comparison, its name, cells, done cells and the time of its last launch."""
    options.say(*store.not_plans())
    for name in store.names():
        try:
            plan = store.plan(name)
        except UsageError as error:
            # The other comparisons can still be shown.
            options.say(str(error))
            continue
        done = sum(store.cell(cell.id).is_done for cell in plan.cells)
        yield name, str(len(plan.cells)), str(done), plan.launched


def _specs() -> Iterator[tuple[str, ...]]:
    """Yield name, title and search of each built-in spec."""
    from milbench.experiment.spec_files import built_in_specs, read_spec

    for name in built_in_specs():
        spec = read_spec(name)
        yield name, spec.title, _draws(spec)


def _draws(spec: Spec) -> str:
    """Return how many draws the losses of a spec have on its tasks, "" if it has no search."""
    from milbench.experiment.draws import count_draws, space_of

    if spec.tune is None:
        return ""
    spaces = [space_of(spec.tune, task, loss) for task in spec.tasks for loss in spec.losses]
    counts = [count_draws(spec.tune, space) for space in spaces]
    fewest = min(counts)
    most = max(counts)
    number = str(most) if fewest == most else f"{fewest} to {most}"
    return f"{number} draws a loss"


def _tasks() -> Iterator[tuple[str, ...]]:
    def details(task: Any) -> list[str]:
        return [_defaults(constructor_parameters(task)), ", ".join(task.networks)]

    return _entries(tasks(), details)


def _losses() -> Iterator[tuple[str, ...]]:
    def details(loss: Any) -> list[str]:
        return [_defaults(constructor_parameters(loss))]

    return _entries(losses(), details)


def _which_loss() -> list[str]:
    """Return in lines which loss to try first on which bags."""
    from milbench.advice import advice, tried_first

    lines = ["Which loss to try first:"]
    for entry in advice().entries:
        line = f"  {entry.bags}: {tried_first(entry)}"
        lines.append(line.replace("`", ""))
    lines.append("In brackets behind a loss is its head: -p loss.noisy-or.head=softmax")
    lines.append("Why, what shows it and what is not known: docs/which-loss.md")
    return lines


def _entries(
    registry: Registry[Any], details: Callable[[Any], Sequence[str]]
) -> Iterator[tuple[str, ...]]:
    """Yield name, summary, details and origin of each entry of a registry.

    An entry that cannot be imported has its error in place of summary and details.
    """
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
    """Yield name, summary, parameters, what it suits and origin of each network.

    The networks that tasks define come first.
    """
    from milbench.networks.backbone import Backbone, backbones
    from milbench.networks.known_networks import networks, suited

    # Tasks may have different networks of the same name, and share networks.
    suited_tasks: dict[tuple[str, Any, str], list[str]] = {}
    for task, origin, cls in working_tasks():
        for name, maker in cls.networks.items():
            suited_tasks.setdefault((name, maker, origin), []).append(task)
        for name, maker in cls.classifiers.items():
            suitable = f"{task} (losses with a class head)"
            suited_tasks.setdefault((name, maker, origin), []).append(suitable)
    for name, maker, origin in sorted(suited_tasks, key=lambda network: network[0]):
        suits = ", ".join(suited_tasks[name, maker, origin])
        yield name, _summary(maker), _defaults(network_parameters(maker)), suits, origin

    def details(maker: Any) -> list[str]:
        return [_defaults(network_parameters(maker)), suited(maker)]

    yield from _entries(networks(), details)
    # One row stands for all networks of torchvision, whose parameters are the same.
    names = f"resnet18, ... ({len(backbones())} of torchvision)"
    backbone = partial(Backbone, "resnet18")
    parameters = _defaults(network_parameters(backbone))
    yield names, _summary(backbone), parameters, "tasks whose bags are images", "torchvision"


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
