"""`python -m milbench` is `milbench`."""

import os
import signal
import sys
from contextlib import suppress
from typing import NoReturn

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # Ctrl-C while the modules below are imported: no traceback
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from milbench.cli import main as command_line


def main() -> NoReturn:
    """Run the command line, and end the process with its exit code at once.

    Threads and exit handlers that plug-ins have started are not waited for: they could hold the
    command for ever.
    """
    code: object = 1
    try:
        command_line.main()
    except SystemExit as stop:
        code = stop.code
    except BaseException:  # noqa: BLE001 a defect, which Python would show likewise
        sys.excepthook(*sys.exc_info())
    for stream in (sys.stdout, sys.stderr):
        # The reader of a pipe may have gone, and a plug-in may have replaced a stream.
        with suppress(Exception):
            stream.flush()
    os._exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
