"""The exception for a user's mistake, which the command line shows as one line with exit code 2."""

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
INTERRUPTED = 130  # exit code after a signal that stops a command, as shells have it for Ctrl-C


class UsageError(ValueError):
    """A mistake in what the user gave. The message is one line that names it and what was expected."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


LONGEST = 500
"""Characters of the message of an error that are shown."""


def message(error: BaseException) -> str:
    """Return the message of an error, also of one of a plug-in that fails when it is asked for."""
    return str(traceback.TracebackException.from_exception(error))


def in_one_line(text: str) -> str:
    """Return a text in one line, which is cut where it is very long: a message may hold a whole tensor."""
    words = " ".join(text.split())
    return words if len(words) <= LONGEST else f"{words[:LONGEST]}…"


def disk_failure(error: BaseException | None) -> str:
    """Return in one line how the disk has failed, "" for an error of another kind."""
    if isinstance(error, OSError) and error.errno in (
        errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.EIO
    ):  # fmt: skip
        return f"cannot write {error.filename or 'a file'}: {error.strerror}"
    return ""


def unknown(
    kind: str, name: str, choices: Iterable[str], suggestions: Iterable[str] = ()
) -> UsageError:
    """Return the error that `name` is no `kind`, such as "loss", with all choices, and the closest of both lists."""
    choices = sorted(choices)
    similar = hint(name, [*choices, *suggestions])
    return UsageError(
        f"unknown {kind} {name!r}{similar} (there are: {', '.join(choices) or 'none'})"
    )


def one_of(subject: str, value: Word, choices: Iterable[str]) -> Word:
    """Return a value that is one of the choices. Raises UsageError, with the closest one, where it is not."""
    choices = tuple(choices)
    if value not in choices:
        raise unknown(subject, str(value), choices)
    return value


def positive(subject: str, value: Number, *, least: int | None = None) -> Number:
    """Return a finite number above 0, or a whole one from `least` on. Raises UsageError where it is not."""
    if least is not None and (
        not isinstance(value, Integral) or isinstance(value, bool) or value < least
    ):
        raise UsageError(f"{subject} must be a whole number from {least} on, got {value!r}")
    if not (isinstance(value, Real) and 0 < value < math.inf):
        raise UsageError(f"{subject} must be a number above 0, got {value!r}")
    return value


def closest(name: str, choices: Iterable[str]) -> str | None:
    """Return the choice that is spelled most like a name, None where none is near."""
    by_lower = {choice.lower(): choice for choice in choices}
    return next(
        (
            by_lower[key]
            for key in difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.5)
        ),
        None,
    )


def hint(name: str, choices: Iterable[str]) -> str:
    """Return the end of a message with the closest choice, "" where none is near."""
    similar = closest(name, choices)
    return f"; did you mean {similar!r}?" if similar else ""


@contextmanager
def as_usage() -> Iterator[None]:
    """Turn the failed access to a file or folder that the user named into a UsageError, in a block or as a decorator.

    Only the access belongs in the block: a ValueError or any other error of a program is a defect, to be shown with its
    traceback.
    """
    try:
        yield
    except OSError as error:
        place = f": {error.filename}" if error.filename else ""
        raise UsageError(f"{error.strerror or error}{place}"[:500]) from error
