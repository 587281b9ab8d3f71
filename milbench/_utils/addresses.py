"""Addresses that may hold a user's name, a password or a token: what of them may be shown and kept.

No parser is asked which part is the password. A password may hold any character, and parsers disagree about `/`, `@`
and `?` in it. All that stands before the last `@` counts as secret, and so does all after the first `?` or `#` that
follows it.
"""

import functools
import hashlib
import http.client
import os
import re
import socket
from collections.abc import Iterator

HIDDEN = "***"
ROUNDS = 200_000
"""Rounds of the digest of an address: they make each guess of a password cost about a tenth of a second."""


def without_secrets(address: str) -> str:
    """Return an address with *** in place of what may be secret.

    Examples:
        >>> without_secrets("http://user:s3cr@t/x@host:80/path?token=abc")
        'http://***@host:80/path?***'
        >>> without_secrets("http://host:80/path")
        'http://host:80/path'
    """
    scheme, rest = _scheme_and_rest(address)
    before, at, after = rest.rpartition("@")
    if at:
        before = HIDDEN
    query = re.search(r"[?#]", after)
    if query:
        after = f"{after[: query.start()]}{query[0]}{HIDDEN}"
    return f"{scheme}{before}{at}{after}"


def has_secrets(address: str) -> bool:
    """Return whether an address has a part that may be secret."""
    return without_secrets(address) != address


def page_of(address: str) -> str:
    """Return an address that a browser can open, without what may be secret."""
    scheme, rest = _scheme_and_rest(address)
    return scheme + re.split(r"[?#]", rest.rpartition("@")[2])[0]


def _scheme_and_rest(address: str) -> tuple[str, str]:
    match = re.match(r"[A-Za-z][\w+.-]*://", address)
    scheme = match[0] if match else ""
    return scheme, address[len(scheme) :]


def hide_in(text: str) -> str:
    """Return a text with *** in place of what may be secret in addresses within it."""
    return re.sub(r"[A-Za-z][\w+.-]*://[^\s'\"<>]+", lambda match: without_secrets(match[0]), text)


@functools.cache
def address_digest(address: str) -> str:
    """Return a digest that tells addresses apart. It is slow to compute, and so is guessing a password from it."""
    return hashlib.pbkdf2_hmac("sha256", address.encode(), b"address of MLflow", ROUNDS).hex()[:32]


def safe_reason(error: BaseException) -> str:
    """Say why an address with secrets could not be reached, in words of our own.

    Libraries quote addresses in their messages, whole, in parts or decoded, so that no word of theirs is used.
    """
    for one in _error_and_causes(error):
        reason = _known_reason(one)
        if reason:
            return reason
    return type(error).__name__


def _known_reason(error: BaseException) -> str:
    """Return the reason of an error of a kind that we know, "" for others."""
    if isinstance(error, socket.gaierror):
        return "the name of the host is not known"
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    if isinstance(error, ImportError) and re.fullmatch(r"[\w.]+", error.name or ""):
        return f"the Python module {error.name} is not installed"
    status = re.search(r"\b(?:error code|status code:?|failed with code) ([45]\d\d)\b", str(error))
    if status:
        number = int(status[1])
        return f"it answers {number} {http.client.responses.get(number, '')}".rstrip()
    return ""


def _error_and_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, then those that it holds or came from, the nearest first."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        current = waiting.pop(0)
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        # urllib and urllib3 keep the cause as `reason`, SQLAlchemy as `orig`, and others as an argument.
        held = [getattr(current, "reason", None), getattr(current, "orig", None), *current.args]
        related = [current.__cause__, current.__context__, *held]
        waiting.extend(one for one in related if isinstance(one, BaseException))
