"""`python -m milbench` is `milbench`."""

import os
import signal
import sys
from contextlib import suppress
from typing import NoReturn

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # Ctrl-C while the modules below are imported ends the process without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from milbench.cli import main as command_line


def main() -> NoReturn:
    """Run the command line, and end the process with its exit code at once.

    Threads and exit handlers of plug-ins are not waited for: they could keep the command running
    for ever.
    """
    code = 1
    try:
        command_line.main()
    except SystemExit as stop:
        code = _exit_code(stop)
    except BaseException:  # noqa: BLE001 any other error is a defect, whose traceback is shown
        # Python itself would do this when it ends, but `os._exit` below leaves it no time to.
        sys.excepthook(*sys.exc_info())
    for stream in (sys.stdout, sys.stderr):
        # The reader of a pipe may have gone, or a plug-in may have replaced a stream.
        with suppress(Exception):
            stream.flush()
    os._exit(code)


def _exit_code(stop: SystemExit) -> int:
    """Return the exit code that Python gives to a SystemExit, and print the text of one that has a text."""
    if stop.code is None:
        return 0
    if isinstance(stop.code, int):
        return stop.code
    # A plug-in may have replaced the stream.
    with suppress(Exception):
        print(stop.code, file=sys.stderr)
    return 1


if __name__ == "__main__":
    main()
