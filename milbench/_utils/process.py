"""What belongs to a whole process: its state, restored after code that is not milbench's own has run, and signals."""

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

_is_inside = False
"""Whether a block of `process_as_before` runs."""

_added_places: set[str] = set()
"""What the imports of plug-ins have added to `sys.path`."""


def path_of_session() -> list[str]:
    """Return `sys.path` without what plug-ins have added, so that no plug-in depends on what another one added."""
    return [place for place in sys.path if place not in _added_places]


def note_added_places(before: Collection[str]) -> None:
    """Remember what `sys.path` has more than before as added by a plug-in."""
    _added_places.update(set(sys.path) - set(before))


def end_if_forked(process: int) -> None:
    """End this process unless its id is `process`: else somebody's code has forked, and this is the child.

    Whatever the parent was doing, such as a training in its folder, the child must not do it as well.
    """
    if os.getpid() != process:
        os._exit(1)


@contextmanager
def process_as_before() -> Iterator[bool]:
    """Restore after the block the working directory, environment variables, warnings filters and the recursion limit.

    What the block adds to `sys.path` stays, at the end, where it hides nothing: a plug-in may import from there later.
    Yields True for the outermost block. A block inside another one yields False and restores nothing.
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
    """Hold back the signals that stop a command for the block; processes that start in it hold them back, too."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
