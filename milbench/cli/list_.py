"""`milbench list`: what the store and the registries hold."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from milbench.cli import options
from milbench.engine.folders import Root
from milbench.errors import UsageError


def list_(
    what: Annotated[
        Literal["losses", "tasks", "optimizers", "networks", "specs", "runs"],
        typer.Argument(help="What to list; runs are comparisons."),
    ],
    root: options.RootOption = options.HERE,
) -> int:
    """List what there is to choose from, and what was run.

    Losses, tasks, optimizers and networks of installed packages are in the lists.

    Example: milbench list losses
    """
    from rich.table import Table

    from milbench._utils.console import console

    table = Table()
    if what == "runs":
        _add_comparisons(table, root)
    elif what == "specs":
        _add_specs(table)
    elif what == "losses" or what == "tasks":
        _add_classes(table, what)
    else:
        _add_functions(table, what)
    console.print(table, markup=False)
    return 0


def _add_comparisons(table: Any, root: Path) -> None:
    place = Root(root)
    for heading in ("comparison", "cells", "done", "launched"):
        table.add_column(heading)
    for name in place.names():
        plan = place.plan(name)
        done = sum(place.cell(cell.id).is_done for cell in plan.cells)
        table.add_row(name, str(len(plan.cells)), str(done), plan.launched)


def _add_specs(table: Any) -> None:
    from milbench.engine.spec import built_in_specs, read_spec

    for heading in ("spec", "what it compares"):
        table.add_column(heading)
    for name in built_in_specs():
        table.add_row(name, read_spec(name).title)


def _add_classes(table: Any, what: Literal["losses", "tasks"]) -> None:
    from milbench.api.registry import constructor_parameters, losses, tasks

    registry: Any = losses() if what == "losses" else tasks()
    for heading in (registry.kind, "what it is", "parameters", "from"):
        table.add_column(heading)
    for name in registry.names():
        try:
            cls = registry.cls(name)
        except UsageError as error:
            table.add_row(name, f"broken: {error}", "", registry.entry(name).origin)
            continue
        defaults = ", ".join(f"{p.name}={p.default}" for p in constructor_parameters(cls).values())
        table.add_row(name, _summary(cls.__doc__), defaults, registry.entry(name).origin)


def _add_functions(table: Any, what: Literal["optimizers", "networks"]) -> None:
    from milbench.engine.optimizers import optimizers
    from milbench.networks.registry import networks

    registry: Any = optimizers() if what == "optimizers" else networks()
    for heading in (registry.kind, "what it is", "from"):
        table.add_column(heading)
    for name in registry.names():
        try:
            function = registry.function(name)
            summary = _summary(getattr(function, "func", function).__doc__)  # of a partial its function's
        except UsageError as error:
            summary = f"broken: {error}"
        table.add_row(name, summary, registry.entry(name).origin)


def _summary(docstring: str | None) -> str:
    return ((docstring or "").strip().splitlines() or [""])[0]
