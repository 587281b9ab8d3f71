"""Mistakes of a user, which the command line reports in one line with exit code 2, and the wording of messages."""

import difflib
import errno
import math
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from numbers import Integral, Real
from typing import TypeVar

Word = TypeVar("Word", bound=str)
Number = TypeVar("Number", int, float)
INTERRUPTED = 130
"""The exit code after a signal that stops a command, the same as shells return after Ctrl-C."""
LONGEST_MESSAGE = 500
"""How many characters of the message of an error are shown."""
DISK_FAILURES = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.EIO)
"""Error numbers of a disk that is full, over a quota, read-only or broken, or of a file that is too large for it."""


class UsageError(ValueError):
    """A mistake in what the user gave. The message is one line that names it and what was expected."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


def message(error: BaseException) -> str:
    """Return the message of an error, even where a plug-in's error fails to give one."""
    # Unlike str(error), this survives an error whose __str__ raises.
    return str(traceback.TracebackException.from_exception(error))


def in_one_line(text: str) -> str:
    """Return a text in one line, shortened if it is very long: a message may hold a whole tensor."""
    line = " ".join(text.split())
    if len(line) <= LONGEST_MESSAGE:
        return line
    return f"{line[:LONGEST_MESSAGE]}…"


def disk_failure(error: BaseException | None) -> str:
    """Return in one line how the disk failed, "" for any other error."""
    if isinstance(error, OSError) and error.errno in DISK_FAILURES:
        return f"cannot write {error.filename or 'a file'}: {error.strerror}"
    return ""


def unknown(
    kind: str, name: str, choices: Iterable[str], suggestions: Iterable[str] = ()
) -> UsageError:
    """Return the error that there is no `kind`, such as "loss", called `name`.

    The message lists all choices. It also proposes what is closest to the name. That may be a
    choice, or one of `suggestions`, which the message does not list.
    """
    choices = sorted(choices)
    similar = hint(name, [*choices, *suggestions])
    return UsageError(
        f"unknown {kind} {name!r}{similar} (there are: {', '.join(choices) or 'none'})"
    )


def one_of(subject: str, value: Word, choices: Iterable[str]) -> Word:
    """Return a value that has to be one of the choices. Raises UsageError with the closest choice if it is not."""
    choices = tuple(choices)
    if value not in choices:
        raise unknown(subject, str(value), choices)
    return value


def positive(subject: str, value: Number, *, least: int | None = None) -> Number:
    """Return a value that has to be a finite number above 0.

    With `least`, which is 1 or more, it has to be a whole number that is not smaller. Raises
    UsageError if it is not.
    """
    if least is not None:
        # True and False are integers to Python.
        is_whole = isinstance(value, Integral) and not isinstance(value, bool)
        if not is_whole or value < least:
            raise UsageError(f"{subject} must be a whole number from {least} on, got {value!r}")
        return value
    if not (isinstance(value, Real) and 0 < value < math.inf):
        raise UsageError(f"{subject} must be a number above 0, got {value!r}")
    return value


def closest(name: str, choices: Iterable[str]) -> str | None:
    """Return the choice whose spelling is closest to a name, None if none is close."""
    by_lower = {choice.lower(): choice for choice in choices}
    matches = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.5)
    if not matches:
        return None
    return by_lower[matches[0]]


def hint(name: str, choices: Iterable[str]) -> str:
    """Return the end of a message that proposes the closest choice, "" if none is close."""
    similar = closest(name, choices)
    return f"; did you mean {similar!r}?" if similar else ""


@contextmanager
def as_usage() -> Iterator[None]:
    """Turn a failed access to a file or folder that the user named into a UsageError, for a block or as a decorator.

    Only an OSError is turned. A ValueError or any other error is a defect, which is shown with its
    traceback. So only the access itself belongs in the block.
    """
    try:
        yield
    except OSError as error:
        place = f": {error.filename}" if error.filename else ""
        raise UsageError(f"{error.strerror or error}{place}"[:LONGEST_MESSAGE]) from error
