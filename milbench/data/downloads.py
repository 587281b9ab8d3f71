"""Downloads by torchvision, with a time limit for connections without an answer."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

STALLED = 30.0
"""Seconds without an answer after which a connection is given up."""


@contextmanager
def stalled_connections_end() -> Iterator[None]:
    """Give up connections without an answer for `STALLED` seconds: torchvision opens them without a time limit."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(STALLED)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def download(address: str, folder: Path) -> Path:
    """Download a file into a folder and return its path."""
    from torchvision.datasets.utils import download_url

    name = address.rpartition("/")[2]
    with stalled_connections_end():
        download_url(address, str(folder), name)
    return folder / name
