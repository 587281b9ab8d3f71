"""What belongs to a whole process: signals, and state that is restored after foreign code has run."""

import os
import signal
import sys
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

TERMINAL_SIGNALS = {signal.SIGINT, signal.SIGHUP}
"""Signals that a terminal sends to every process of a group."""

STOPPING = TERMINAL_SIGNALS | {signal.SIGTERM, signal.SIGUSR1}
"""Signals that stop a command in order: from a terminal, from `kill`, and SIGUSR1, Slurm's warning of a time limit."""

_is_inside = False
"""Whether a block of `process_as_before` is running."""

_added_places: set[str] = set()
"""What the imports of plug-ins have added to `sys.path`."""


def path_of_session() -> list[str]:
    """Return `sys.path` without what plug-ins have added, so that none of them depends on another one's folders."""
    return [place for place in sys.path if place not in _added_places]


def note_added_places(before: Collection[str]) -> None:
    """Remember the entries of `sys.path` that were not in `before` as added by a plug-in."""
    _added_places.update(set(sys.path) - set(before))


def end_if_forked(process: int) -> None:
    """End this process unless its id is `process`. If it is not, foreign code has forked, and this is the child.

    The child must not go on with what the parent does, such as training in its folder.
    """
    if os.getpid() != process:
        os._exit(1)


@contextmanager
def process_as_before() -> Iterator[bool]:
    """Restore working directory, environment variables, warning filters and recursion limit after the block.

    What the block adds to `sys.path` stays, since a plug-in may import from there later. It moves
    to the end, where it hides nothing. Yields True for the outermost block; a block inside another
    one yields False and restores nothing.
    """
    global _is_inside  # noqa: PLW0603 it belongs to the process, as what is restored does
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
        added = [place for place in sys.path if place not in search_path]
        sys.path[:] = [*search_path, *added]
        sys.setrecursionlimit(recursion_limit)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Block the signals that stop a command for the block. Processes that start in it inherit that."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
