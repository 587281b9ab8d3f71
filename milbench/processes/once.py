"""Compute a single call in this process and end.

    python -m milbench.processes once FD

This is for systems on which a process with PyTorch cannot be forked. It is slower than a host that
forks, since each call imports PyTorch. The process leads a process group. It kills the group when
its call ends, at its time limit, and when the launcher ends, so that it leaves no process behind.
"""

import os
import signal
import threading
from multiprocessing.connection import Connection
from typing import NoReturn

from milbench.processes.host import Answer, compute


def serve_once(launcher: Connection) -> NoReturn:
    """Compute one call of the launcher, answer it and end."""
    call = launcher.recv()

    def ask_for_limit(seconds: float) -> None:
        timer = threading.Timer(seconds, end_late)
        timer.daemon = True
        timer.start()

    def end_late() -> None:
        launcher.send(Answer(call.ticket, None, "", is_late=True))
        _end()

    threading.Thread(target=_end_with, args=(launcher,), daemon=True).start()
    outcome = compute(call, ask_for_limit)
    launcher.send(Answer(call.ticket, outcome, "", is_late=False))
    _end()


def _end_with(launcher: Connection) -> None:
    """End this process when the launcher closes the connection, at the latest when it ends."""
    try:
        launcher.recv()
    except (EOFError, OSError):
        _end()


def _end() -> NoReturn:
    """Kill the group of this process: itself and the processes that it has started."""
    os.killpg(0, signal.SIGKILL)
    # This is never reached, but type checkers do not know that.
    raise SystemExit(1)
