"""Start the command line: `python -m milbench` does the same as `milbench`."""

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
    """Run the command line, and end the process at once with its exit code.

    Python would wait for threads and exit handlers, and those of a plug-in could keep the command
    running for ever.
    """
    code = 1
    try:
        command_line.main()
    except SystemExit as stop:
        code = _exit_code(stop)
    except BaseException:  # noqa: BLE001 any other error is a defect, whose traceback is shown
        # Python itself would print it at its end, which `os._exit` below skips.
        sys.excepthook(*sys.exc_info())
    for stream in (sys.stdout, sys.stderr):
        # The reader of a pipe may have gone, or a plug-in may have replaced a stream.
        with suppress(Exception):
            stream.flush()
    os._exit(code)


def _exit_code(stop: SystemExit) -> int:
    """Return the exit code that Python gives to a SystemExit, and print its text if it has one."""
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
