"""Downloads by torchvision, with a time limit for connections without an answer."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from milbench._utils.files import scratch_folder
from milbench.errors import UsageError

STALLED = 30.0
"""Seconds without an answer after which a connection is given up."""


def fetch_files(source: Any, root: Path, paths: Iterable[str], download: Callable[[Path], None]) -> None:
    """Where a file is missing or damaged, download all to a temporary folder, check them and move them into place."""
    if not (source.missing(root) or source.problems(root)):
        return
    with scratch_folder(root, source.name) as folder, stalled_connections_end():
        if not (source.missing(root) or source.problems(root)):  # another process has had the lock and fetched them
            return
        download(folder)
        if bad := source.missing(folder) or source.problems(folder):
            raise UsageError(f"the download of {source.name} is not what was expected: {bad[0]}")
        for path in paths:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).replace(root / path)


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
