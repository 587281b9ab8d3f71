"""What belongs to a process: what is as before after code that is not milbench's own has run, and signals."""

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
"""Signals that end a command in order: of a terminal, of `kill`, and SIGUSR1, by which Slurm announces the end."""
_around = False
_added_places: set[str] = set()
"""What the imports of plug-ins have added to `sys.path`."""


def path_of_session() -> list[str]:
    """Return `sys.path` without what plug-ins have added: they do not depend on each other."""
    return [place for place in sys.path if place not in _added_places]


def note_added_places(before: Collection[str]) -> None:
    """Take what `sys.path` has more than before for what a plug-in has added."""
    _added_places.update(set(sys.path) - set(before))


def end_if_forked(process: int) -> None:
    """End this process if it is not the one that it was: somebody's code has forked, and this is the child.

    Whatever the parent was doing, such as a training in its folder, the child must not do it as well.
    """
    if os.getpid() != process:
        os._exit(1)


@contextmanager
def process_as_before() -> Iterator[bool]:
    """Restore after the block the working directory, environment variables, warnings filters and the recursion limit.

    Of `sys.path` what is new stays, at the end, where it hides nothing: a plug-in may import from there later. Yields
    whether there is no such block around this one, which would restore all of it.
    """
    global _around  # noqa: PLW0603 of the process, as what is restored
    if _around:
        yield False
        return
    folder, environment, path, limit = (
        Path.cwd(),
        dict(os.environ),
        [*sys.path],
        sys.getrecursionlimit(),
    )
    _around = True
    try:
        with warnings.catch_warnings():
            yield True
    finally:
        _around = False
        os.chdir(folder)
        for name in os.environ.keys() - environment.keys():
            del os.environ[name]
        os.environ.update(environment)
        sys.path[:] = [*path, *(place for place in sys.path if place not in path)]
        sys.setrecursionlimit(limit)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold back the signals that stop a command until the block ends, and from what starts in it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
