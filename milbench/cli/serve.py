"""`milbench ui`: MLflow's own pages on the store."""

from __future__ import annotations

from typing import Annotated

import typer

from milbench.cli import options
from milbench.errors import UsageError


def ui(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the web server.")] = 5000,
    root: options.RootOption = options.HERE,
) -> int:
    """Serve MLflow's own pages on the store, until Ctrl-C."""
    from milbench.store.reader import StoreReader

    store = StoreReader(options.existing_workspace(root))
    if not store.is_local:
        raise UsageError(f"the store is on a server of its own: open {store.uri}")
    return store.serve(port)
