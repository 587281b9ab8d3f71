"""`milbench list`: what the store and the registries hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import typer

from milbench.cli import options
from milbench.engine.folders import Root
from milbench.errors import UsageError

Kind = Literal["losses", "tasks", "optimizers", "networks", "specs", "runs"]


def list_(
    what: Annotated[Kind, typer.Argument(help="What to list; runs are comparisons.")],
    root: options.RootOption = options.HERE,
) -> int:
    """List what there is to choose from, and what was run.

    Losses, tasks, optimizers and networks of installed packages are in the lists.

    Example: milbench list losses
    """
    from rich.table import Table

    from milbench._utils.console import console

    if what == "runs":
        table, rows = Table("comparison", "cells", "done", "launched"), _comparisons(Root(root))
    elif what == "specs":
        table, rows = Table("spec", "what it compares"), _specs()
    else:
        parameters = ["parameters"] if what in ("losses", "tasks") else []
        table, rows = Table({"losses": "loss"}.get(what, what[:-1]), "what it is", *parameters, "from"), _entries(what)
    for row in rows:
        table.add_row(*row)
    console.print(table, markup=False)
    return 0


def _comparisons(place: Root) -> Iterator[tuple[str, ...]]:
    for name in place.names():
        plan = place.plan(name)
        done = sum(place.cell(cell.id).is_done for cell in plan.cells)
        yield name, str(len(plan.cells)), str(done), plan.launched


def _specs() -> Iterator[tuple[str, ...]]:
    from milbench.engine.spec import built_in_specs, read_spec

    for name in built_in_specs():
        yield name, read_spec(name).title


def _entries(what: Kind) -> Iterator[tuple[str, ...]]:
    from milbench.api.parameters import constructor_parameters
    from milbench.api.registry import losses, tasks
    from milbench.networks.registry import networks
    from milbench.optimizers.registry import optimizers

    registry: Any = {"losses": losses, "tasks": tasks, "optimizers": optimizers, "networks": networks}[what]()
    of_classes = what in ("losses", "tasks")
    for name in registry.names():
        defaults = ""
        try:
            found = registry.cls(name) if of_classes else registry.function(name)
            doc = getattr(found, "func", found).__doc__ or ""  # of a partial its function's
            summary = doc.strip().partition("\n")[0]
            if of_classes:
                parameters = constructor_parameters(found).values()
                defaults = ", ".join(
                    f"{p.name} (required)" if p.default is p.empty else f"{p.name}={p.default}" for p in parameters
                )
        except UsageError as error:
            summary = f"broken: {error}"
        yield (name, summary, *([defaults] if of_classes else []), registry.entry(name).origin)
