"""What belongs to a whole process: signals, and the state to restore after code of plug-ins."""

import os
import signal
import sys
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

TERMINAL_SIGNALS = {signal.SIGINT, signal.SIGHUP}
"""Signals that a terminal sends to every process of a command."""

STOPPING = TERMINAL_SIGNALS | {signal.SIGTERM, signal.SIGUSR1}
"""Signals that stop a command in an orderly way.

They come from a terminal or from `kill`. SIGUSR1 is Slurm's warning of a time limit.
"""

_is_inside = False
"""Whether a block of `process_as_before` is running."""

_added_folders: set[str] = set()
"""What the imports of plug-ins have added to `sys.path`."""


def path_of_session() -> list[str]:
    """Return `sys.path` without what plug-ins have added.

    So no plug-in depends on the folders of another plug-in.
    """
    return [folder for folder in sys.path if folder not in _added_folders]


def note_added_folders(before: Collection[str]) -> None:
    """Remember which folders a plug-in has added to `sys.path`: those that are not in `before`."""
    _added_folders.update(set(sys.path) - set(before))


def end_if_forked(process: int) -> None:
    """End this process if its id is not `process`: it is then a child that foreign code has forked.

    The child must not go on with what the parent does, such as training in its folder.
    """
    if os.getpid() != process:
        os._exit(1)


@contextmanager
def process_as_before() -> Iterator[bool]:
    """Restore the state of the process after the block.

    It is the working directory, the environment variables, the warning filters and the recursion
    limit. What the block adds to `sys.path` stays, since a plug-in may import from there later. It
    moves to the end, where it hides nothing.

    Yields True for the outermost block. A block inside another one yields False and restores
    nothing.
    """
    global _is_inside  # noqa: PLW0603 like the state to restore, it belongs to the process
    if _is_inside:
        yield False
        return
    folder = Path.cwd()
    environment = dict(os.environ)
    search_path = [*sys.path]
    recursion_limit = sys.getrecursionlimit()
    _is_inside = True
    try:
        with warnings.catch_warnings():
            yield True
    finally:
        _is_inside = False
        os.chdir(folder)
        for name in os.environ.keys() - environment.keys():
            del os.environ[name]
        os.environ.update(environment)
        added = [folder for folder in sys.path if folder not in search_path]
        sys.path[:] = [*search_path, *added]
        sys.setrecursionlimit(recursion_limit)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold back the signals that stop a command until the block has ended.

    Processes that start in the block hold them back as well.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
