"""What `python -m milbench.processes` does: answer the calls of its launcher."""

import signal
import sys
from multiprocessing.connection import Connection

from milbench.processes.host import serve_by_forks
from milbench.processes.once import serve_once


def main() -> None:
    """Answer calls as the arguments of the command say.

    The arguments are `host FD` for many calls, and `once FD` for a single call. FD is the file
    descriptor of the launcher's socket.
    """
    how, descriptor = sys.argv[1:]
    # The launcher blocks signals while it starts this process, which inherits the blocked signals.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, set(signal.Signals))
    launcher = Connection(int(descriptor))
    if how == "once":
        serve_once(launcher)
    else:
        serve_by_forks(launcher)
