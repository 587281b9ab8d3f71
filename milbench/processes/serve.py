"""What `python -m milbench.processes` does: answer the calls of the launcher that has started this process."""

import signal
import sys
from multiprocessing.connection import Connection

from milbench.processes.host import serve_by_forks
from milbench.processes.once import serve_once


def main() -> None:
    """Serve as the words of the command say: `host FD`, or `once FD`."""
    how, descriptor = sys.argv[1:]
    # The launcher blocks signals while it starts this process, which has inherited that.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, set(signal.Signals))
    launcher = Connection(int(descriptor))
    if how == "once":
        serve_once(launcher)
    serve_by_forks(launcher)
