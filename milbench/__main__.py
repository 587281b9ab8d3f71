"""`python -m milbench` is `milbench`."""

import signal

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(
        signal.SIGINT, signal.SIG_DFL
    )  # Ctrl-C while the modules below are imported: no traceback

from milbench.cli.main import main

if __name__ == "__main__":
    main()
