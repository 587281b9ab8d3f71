"""UsageError, for mistakes of a user, and functions that word messages of errors.

The command line reports a UsageError in one line, with exit code 2.
"""

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
"""The exit code after a signal that stops a command, as in shells after Ctrl-C."""
LONGEST_MESSAGE = 500
"""The largest number of characters of an error message that are shown."""
DISK_FAILURES = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.EIO)
"""Error numbers of a disk that cannot be written to.

It is full, over a quota, read-only, too small for a large file, or broken.
"""


class UsageError(ValueError):
    """A mistake in what the user gave.

    The message is one line, which names the mistake and what was expected.
    """

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


def message(error: BaseException) -> str:
    """Return the message of an error, even where a plug-in's error fails to give one."""
    # Unlike str(error), this survives an error whose __str__ raises.
    return str(traceback.TracebackException.from_exception(error))


def in_one_line(text: str) -> str:
    """Return a text in one line, shortened if it is very long, as a message may hold a tensor."""
    line = " ".join(text.split())
    if len(line) <= LONGEST_MESSAGE:
        return line
    return f"{line[:LONGEST_MESSAGE]}…"


def disk_failure(error: BaseException | None) -> str:
    """Return in one line how a disk failed, or "" for any other error."""
    if isinstance(error, OSError) and error.errno in DISK_FAILURES:
        return f"cannot write {error.filename or 'a file'}: {error.strerror}"
    return ""


def unknown(
    kind: str, name: str, choices: Iterable[str], suggestions: Iterable[str] = ()
) -> UsageError:
    """Return the error for an unknown name.

    The message lists all choices. It also proposes the choice or suggestion whose spelling is
    closest to the name.

    Args:
        kind: what the name should name, such as "loss".
        name: the unknown name.
        choices: the names that exist.
        suggestions: further names that may be proposed, but are not listed.
    """
    choices = sorted(choices)
    similar = hint(name, [*choices, *suggestions])
    return UsageError(
        f"unknown {kind} {name!r}{similar} (there are: {', '.join(choices) or 'none'})"
    )


def one_of(subject: str, value: Word, choices: Iterable[str]) -> Word:
    """Return a value that has to be one of the choices.

    Raises UsageError if it is not; the message begins with `subject`, and proposes the closest
    choice.
    """
    choices = tuple(choices)
    if value not in choices:
        raise unknown(subject, str(value), choices)
    return value


def positive(subject: str, value: Number, *, least: int | None = None) -> Number:
    """Return a value that has to be a finite number above 0.

    With `least`, it has to be a whole number of at least `least`, which is 1 or more.

    Raises UsageError for another value; the message begins with `subject`.
    """
    if least is not None:
        # To Python, True and False are integers.
        is_whole = isinstance(value, Integral) and not isinstance(value, bool)
        if not is_whole or value < least:
            raise UsageError(f"{subject} must be a whole number from {least} on, got {value!r}")
        return value
    if not (isinstance(value, Real) and 0 < value < math.inf):
        raise UsageError(f"{subject} must be a number above 0, got {value!r}")
    return value


def closest(name: str, choices: Iterable[str]) -> str | None:
    """Return the choice whose spelling is closest to a name, or None if none is close."""
    by_lower = {choice.lower(): choice for choice in choices}
    matches = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.5)
    if not matches:
        return None
    return by_lower[matches[0]]


def hint(name: str, choices: Iterable[str]) -> str:
    """Return the end of a message that proposes the closest choice, or "" if none is close."""
    similar = closest(name, choices)
    return f"; did you mean {similar!r}?" if similar else ""


@contextmanager
def as_usage() -> Iterator[None]:
    """Turn a failed access to a file or folder that the user named into a UsageError.

    Use it for a block, or as a decorator. Only an OSError is turned into a UsageError. Any other
    error is a defect, which is shown with its traceback. The block should hold only the access:
    other code in it could raise an OSError that is a defect.
    """
    try:
        yield
    except OSError as error:
        file = f": {error.filename}" if error.filename else ""
        raise UsageError(f"{error.strerror or error}{file}"[:LONGEST_MESSAGE]) from error
