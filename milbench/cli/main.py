"""The command line: its commands and its errors.

Libraries that load slowly are imported inside the commands, so that `--help` is quick.
"""

import errno
import inspect
import io
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from milbench._utils.process import STOPPING
from milbench._version import __version__
from milbench.cli import data, export, list_, new, options, predict, report, run, status, sync
from milbench.errors import INTERRUPTED, UsageError, disk_failure, hint
from milbench.store.folders import Root

NO_ACCESS = (errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ELOOP)
"""The numbers of errors about a path that the user may not use or has to change."""
ParserError: Any = typer.BadParameter.__base__
"""The class of errors that typer's parser raises.

It has no public name, and its module depends on the version of typer.
"""

app = typer.Typer(
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"max_content_width": 100},
    help="Compare losses for multiple-instance learning from label sets.",
    epilog="Example: milbench run demo",
)
COMMANDS: dict[str, Callable[..., int]] = {
    "run": run.run,
    "reproduce": run.reproduce,
    "report": report.report,
    "export": export.export,
    "list": list_.list_,
    "status": status.status,
    "sync": sync.sync,
    "predict": predict.predict,
    "new": new.new,
}
"""The commands in the order of `milbench --help`."""
for name, command in COMMANDS.items():
    app.command(name)(command)
app.add_typer(data.app, name="data")


class _Ended(Exception):  # noqa: N818 it is named for what has happened
    """Carries an error of a command past typer. The error is its `__cause__`."""


def _guarded(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return a command that raises `_Ended` in place of EOFError and KeyboardInterrupt.

    Typer takes both of these for Ctrl-C. But an EOFError may come from a truncated file, and a
    plug-in may raise a KeyboardInterrupt itself.
    """

    @wraps(command)
    def guarded(*args: Any, **named: Any) -> Any:
        try:
            return command(*args, **named)
        except (EOFError, KeyboardInterrupt) as error:
            raise _Ended from error

    return guarded


for listed in (*app.registered_commands, *data.app.registered_commands):
    # The last paragraph of a docstring is an example, which `--help` shows below the options.
    listed.help, _, listed.epilog = (inspect.getdoc(listed.callback) or "").rpartition("\n\n")
    if listed.callback is not None:
        listed.callback = _guarded(listed.callback)
TOUR = (
    ("run demo", "see it at work: five losses read digits, some minutes on two cores"),
    ("new loss my-loss", "write my_loss.py, a loss of your own that runs as it is, and its test"),
    (
        "run --loss my_loss.py,exact --task extended-digits --seeds 0-2",
        "train with it, and with the exact likelihood",
    ),
    ("report --open", "read which of the two learns better, and how sure that is"),
)
"""What `milbench` without a command prints: commands to run one after the other, with purposes.

The first command is left out if there is a comparison.
"""


def main() -> NoReturn:
    """Run the command line.

    After a mistake of the user, it prints one line on standard error and ends with exit code 2.
    """
    _open_streams()
    try:
        code = _run()
    except UsageError as error:
        code = _refuse(str(error))
    except ParserError as error:
        # The user typed a group of commands without a command, such as milbench data. The class of
        # this error has no public name either.
        if type(error).__name__ == "NoArgsIsHelpError":
            typer.echo(error.format_message())
            code = 2
        else:
            code = _refuse(_with_suggestion(error.format_message()))
    except (typer.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    except BrokenPipeError:
        # The reader of standard output has all that it wants, as with `| head`.
        code = 0
    except OSError as error:
        failure = disk_failure(error)
        if error.filename is not None and error.errno in NO_ACCESS:
            failure = f"cannot reach {error.filename!s:.100}: {error.strerror}"
        if not failure:
            raise
        code = _refuse(failure)
    sys.exit(code if isinstance(code, int) else 0)


def _run() -> Any:
    """Run the command that the user has typed and return its exit code."""
    signals: list[int] = []
    try:
        with _interruptible(signals):
            for word in sys.argv[1:]:
                # Python turns bytes that are not UTF-8 into characters of this range.
                if re.search("[\ud800-\udfff]", word):
                    raise UsageError(f"{word} is not UTF-8: expected names and paths in UTF-8")
            return app(standalone_mode=False)
    except _Ended as ended:
        cause = ended.__cause__
        if isinstance(cause, EOFError):
            # No command is meant to end with this error, so it is shown like any other defect.
            raise cause from None
        if signals:
            return INTERRUPTED
        return _refuse(_without_signal(cause))


def _open_streams() -> None:
    """Send closed streams to the null device, and escape characters that an encoding lacks.

    A user closes a stream by `>&-`, for example. A file that is opened later would then get the
    descriptor of the stream, and workers would print into the file.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # The system gives out the lowest free descriptor, which is this one.
            opened = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(opened, True)
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(number, "w", encoding="utf-8", closefd=False))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            # Changing the stream may ask it for its position, which some pipes cannot tell.
            with suppress(OSError):
                stream.reconfigure(errors="backslashreplace")


def _without_signal(error: BaseException | None) -> str:
    """Return the message about a KeyboardInterrupt that no signal has caused."""
    frames = traceback.extract_tb(error.__traceback__) if error else []
    line = ""
    if frames:
        line = f" ({frames[-1].filename}, line {frames[-1].lineno})"
    return f"code raised KeyboardInterrupt, though nobody pressed Ctrl-C{line}"


@contextmanager
def _interruptible(signals: list[int]) -> Iterator[None]:
    """Raise KeyboardInterrupt, and print a line, when a signal of `STOPPING` arrives.

    Among these are Ctrl-C, SIGTERM and the end of the terminal. Each signal that arrives is added
    to `signals`. While a command computes cells, it has other handlers.
    """
    handlers: dict[signal.Signals, Any] = {}

    def interrupt(number: int, _: Any) -> NoReturn:
        signals.append(number)
        # A shell may send this signal, that the terminal is closed, more than once.
        if handlers.pop(signal.SIGHUP, None) is not None:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        if sys.__stderr__:
            # The terminal may be closed. Unlike print, os.write is safe in a signal handler.
            with suppress(OSError):
                os.write(sys.__stderr__.fileno(), b"milbench: interrupted\n")
        raise KeyboardInterrupt

    for number in STOPPING:
        # The command may have been started with a signal ignored, as nohup does.
        if signal.getsignal(number) != signal.SIG_IGN:
            handlers[number] = signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in handlers.items():
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
        _show_tour()


def _show_tour() -> None:
    """Print the commands to try first."""
    has_comparisons = bool(Root(options.HERE).names())
    tour = TOUR[1:] if has_comparisons else TOUR
    options.say("Try next:", style="bold")
    for words, purpose in tour:
        options.say(f"  milbench {words}", style="cyan")
        options.say(f"      {purpose}")
    options.say("Every command: milbench --help")


def _with_suggestion(message: str) -> str:
    """Return a message of the parser with a suggestion.

    It is the closest valid choice, for example, or the flag `-p` that sets an unknown option.
    """
    # Pydantic, which checks settings, begins some messages with this.
    message = message.replace("Value error, ", "")
    option = re.match(r"No such option: --([\w-]+)", message)
    if option:
        return _without_option(message, option[1])
    if message.startswith("Missing option '--cell'"):
        return f"{message.removesuffix('.')}: milbench status shows the ids of the cells"
    choice = re.search(r"'([^']*)' is not one of (.*)\.", message)
    if choice:
        valid = re.findall(r"'(.*?)'", choice[2])
        return message.removesuffix(".") + hint(choice[1], valid)
    return message


def _without_option(message: str, name: str) -> str:
    """Return the message about an option that does not exist, with what the user may have meant."""
    has_suggestion = "Possible" in message
    if sys.argv[1].startswith("-") and not has_suggestion:
        return f"{message}; options follow the command, such as milbench run --{name}"
    if sys.argv[1] in ("run", "reproduce"):
        from milbench.experiment.flags import setting_key

        key = setting_key(name.replace("-", "_"))
        if key:
            return f"No such option: --{name}; it is set by -p {key}=VALUE"
    return message


def _refuse(message: str) -> int:
    """Print an error in one line on standard error, and return the exit code."""
    from milbench._utils.console import plain

    line = " ".join(message.split())
    typer.echo(plain(f"milbench: {line}"), err=True)
    return 2
