"""The signals that stop a command, and how a Ctrl-C of the user is told from a KeyboardInterrupt of other code."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

STOPPING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
"""The signals that stop a command; a terminal that is closed sends the last one."""
INTERRUPTED = 130
"""Exit code after one of them, as shells have it for Ctrl-C."""


@contextmanager
def watched() -> Iterator[Callable[[], bool]]:
    """Watch for SIGINT inside the block, which acts as before.

    Yields:
        A function that returns whether SIGINT has come since the block began. Outside the main thread, where signals
        cannot be watched, it always does: there a KeyboardInterrupt is never taken for somebody else's.
    """
    came = threading.current_thread() is not threading.main_thread()
    before = signal.getsignal(signal.SIGINT)
    if came or not callable(before):
        yield lambda: came
        return

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal came
        came = True
        before(number, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield lambda: came
    finally:
        signal.signal(signal.SIGINT, before)
