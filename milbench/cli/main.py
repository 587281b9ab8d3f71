"""The command line: its commands and its errors. Heavy libraries are imported inside the commands."""

from __future__ import annotations

import errno
import io
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from milbench._version import __version__
from milbench.cli import data, list_, new, predict, report, run, serve, status, tour, transfer
from milbench.errors import INTERRUPTED, UsageError, closest, disk_failure

HANGUP = getattr(signal, "SIGHUP", signal.SIGTERM)
STOPPING = {signal.SIGINT, signal.SIGTERM, HANGUP}
"""The signals that stop a command; a terminal that is closed sends the last one."""
ParserError: Any = typer.BadParameter.__base__
"""What typer's parser raises; it has no public name, and its module depends on the version of typer."""

app = typer.Typer(
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"max_content_width": 100},
    help="Compare losses for multiple-instance learning from label sets.\n\nExample: milbench run demo",
)
COMMANDS: dict[str, Callable[..., int]] = {
    "run": run.run,
    "reproduce": run.reproduce,
    "report": report.report,
    "export": transfer.export,
    "import": transfer.import_,
    "list": list_.list_,
    "status": status.status,
    "sync": status.sync,
    "ui": serve.ui,
    "predict": predict.predict,
    "figure": predict.figure,
}
"""In the order of `milbench --help`."""
for name, command in COMMANDS.items():
    app.command(name)(command)
app.add_typer(data.app, name="data")
app.add_typer(new.app, name="new")


def main() -> NoReturn:
    """Run the command line. A mistake of the user ends in one line on standard error and exit code 2."""
    _open_streams()
    _write_what_cannot_be_encoded()
    try:
        with _interruptible():
            _check_words(sys.argv[1:])
            code = app(standalone_mode=False)
    except UsageError as error:
        code = _refuse(str(error))
    except ParserError as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            typer.echo(error.format_message())
            code = 2
        else:
            code = _refuse(_with_closest(error.format_message()))
    except (typer.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    except BrokenPipeError:
        code = 0
    except OSError as error:
        if not (failure := disk_failure(error) or _no_access(error)):
            raise
        code = _refuse(failure)
    sys.exit(code if isinstance(code, int) else 0)


def _check_words(words: Iterable[str]) -> None:
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError:
            raise UsageError(f"{word} is not UTF-8: expected names and paths in UTF-8") from None


def _open_streams() -> None:
    """Discard what is printed to a stream that was closed at the start, as by `>&-`.

    A file that is opened later would get the number of the stream, and workers would write to it.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # it takes the first number that is free
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w", encoding="utf-8", closefd=False))  # noqa: SIM115


def _write_what_cannot_be_encoded() -> None:
    """Write escapes for what the encoding of the output lacks, as a terminal of an old code page does."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            with suppress(OSError):  # a pipe that cannot tell where it is
                stream.reconfigure(errors="backslashreplace")


def _no_access(error: OSError) -> str:
    if error.filename is None or error.errno not in (errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ELOOP):
        return ""
    return f"cannot reach {error.filename!s:.100}: {error.strerror}"


@contextmanager
def _interruptible() -> Iterator[None]:
    """End every command on SIGTERM, or when the terminal is closed, as on Ctrl-C, with a line that says so.

    Commands that compute cells replace this by handlers of their own while they do.
    """

    def interrupt(*_: Any) -> NoReturn:
        if before.pop(HANGUP, None) is not None:  # a shell may tell its commands once more that the terminal is closed
            signal.signal(HANGUP, signal.SIG_IGN)
        if sys.__stderr__:
            with suppress(OSError):  # the terminal may be closed
                os.write(sys.__stderr__.fileno(), b"milbench: interrupted\n")  # safe in a handler
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heeded = [number for number in STOPPING if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, interrupt) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@app.callback(invoke_without_command=True)
def top(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Compare losses for multiple-instance learning from label sets."""
    if version:
        typer.echo(f"milbench {__version__}")
        raise typer.Exit
    try:
        Path.cwd()
    except OSError:
        raise UsageError("the working directory was removed: go to another one") from None
    if context.invoked_subcommand is None:
        tour.show()


def _with_closest(message: str) -> str:
    message = message.replace("Value error, ", "")
    if option := re.match(r"No such option: --([\w-]+)", message):
        from milbench.engine.spec import setting_of

        key = setting_of(option[1].replace("-", "_"))
        return f"{message.removesuffix('.')}; it is set by -p {key}=VALUE" if key else message
    match = re.search(r"'([^']*)' is not one of (.*)\.", message)
    close = closest(match[1], re.findall(r"'(.*?)'", match[2])) if match else None
    return f"{message.removesuffix('.')}; did you mean {close!r}?" if close else message


def _refuse(message: str) -> int:
    from milbench._utils.console import plain

    typer.echo(plain(f"milbench: {' '.join(message.split())}"), err=True)
    return 2
