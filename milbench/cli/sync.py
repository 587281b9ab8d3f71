"""`milbench sync`: copy to MLflow the results of a comparison that it lacks."""

from pathlib import Path
from typing import Annotated

import typer

from milbench.cli import options
from milbench.errors import UsageError
from milbench.store.folders import Root


def sync(
    name: options.ComparisonArgument = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Copy every comparison of the store.")
    ] = False,
    log_models: Annotated[
        bool, typer.Option("--log-models", help="Log every network as an MLflow model.")
    ] = False,
    root: options.RootOption = options.HERE,
) -> int:
    """Copy to MLflow the results of a comparison that it lacks.

    Exit code 1 if something could not be copied.

    Example: milbench sync demo
    """
    from milbench.store.mirror import page_address, shown_address, synchronise

    store = Root(root)
    if everything and name is not None:
        raise UsageError(f"--all and {name} exclude each other: every comparison, or one")
    names = store.names() if everything else []
    if not names:
        # The named comparison, or the one launched last. If the store has no comparison, `plan`
        # raises an error, also with --all.
        names = [store.plan(name).name]

    options.say(*store.not_plans())
    problems = synchronise(store, names, log_models=log_models)
    if problems:
        again = ["milbench", "sync"]
        again += ["--all"] if everything else names
        if log_models:
            again.append("--log-models")
        options.say(*problems, then=again, root=root)
        return 1

    page = page_address()
    pages = ["open", page] if page else command_for_pages(store)
    options.say(f"MLflow is up to date: {', '.join(names)} ({shown_address(store)})", then=pages)
    return 0


def command_for_pages(store: Root) -> list[str]:
    """Return the command that serves the pages of MLflow about a store."""
    from sqlalchemy.engine import URL

    database = store.database
    artifacts = store.artifacts
    here = Path.cwd()
    # Relative paths make a shorter command.
    if store.path.is_relative_to(here):
        database = database.relative_to(here)
        artifacts = artifacts.relative_to(here)
    address = URL.create("sqlite", database=str(database)).render_as_string()
    backend = ["--backend-store-uri", address]
    return ["mlflow", "ui", *backend, "--artifacts-destination", str(artifacts)]
