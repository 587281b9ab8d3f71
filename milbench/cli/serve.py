"""`milbench ui`: MLflow's own pages on the store."""

from __future__ import annotations

import socket
from typing import Annotated

import typer

from milbench.cli import options
from milbench.errors import UsageError
from milbench.store.existing import existing_workspace


def ui(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the web server.")] = 5000,
    root: options.RootOption = options.HERE,
) -> int:
    """Serve MLflow's own pages on the store, until Ctrl-C."""
    from milbench._utils.console import console
    from milbench.store.reader import StoreReader

    store = StoreReader(existing_workspace(root))
    if not store.is_local:
        raise UsageError(f"the store is on a server of its own: open {store.address}")
    with _listener(port) as listener:
        console.print(f"MLflow's pages: http://127.0.0.1:{port}, until Ctrl-C")
        store.serve(listener)
    return 0


def _listener(port: int) -> socket.socket:
    """Return a socket that listens on a port of this machine."""
    try:
        return socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise UsageError(f"cannot listen on --port {port}: {error.strerror}; name a port that is free") from None
