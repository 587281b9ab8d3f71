"""Hide the secrets of addresses: a user's name, a password or a token in them.

These functions use no URL parser: passwords may hold any character, and parsers disagree about `/`,
`@` and `?` in them. Everything before the last `@` counts as secret, and so does everything after
the first `?`, `#` or `;` that follows it. The percent-encoded forms of these characters count as
well, since a library may decode them.
"""

import functools
import hashlib
import http.client
import os
import re
import socket
from collections.abc import Iterator

HIDDEN = "***"
AT = r"@|%40"
QUERY = r"[?#;]|%3F|%23|%3B"
"""A pattern of the character with which a query, a fragment or a parameter begins."""
IN_TEXT = r"[A-Za-z][\w+.-]*://(?:(?:(?!\w://).)*(?:@|%40))?[^\s'\"<>]*"
"""A pattern of an address in a text.

Everything up to the last `@` of a line belongs to the address, as a password may hold spaces and
quotes.
"""
ROUNDS = 200_000
"""Rounds of the digest of an address: each guess of a password costs about 0.1 seconds."""


def without_secrets(address: str) -> str:
    """Return an address with *** in place of what may be secret.

    Examples:
        >>> without_secrets("http://user:s3cr@t/x@host:80/path?token=abc")
        'http://***@host:80/path?***'
        >>> without_secrets("http://host:80/path")
        'http://host:80/path'
    """
    scheme, rest = _scheme_and_rest(address)
    owner, host_and_path, query = _parts(rest)
    if owner:
        owner = f"{HIDDEN}@"
    if query:
        first = query[0] if query[0] in "?#;" else ""
        query = f"{first}{HIDDEN}"
    return f"{scheme}{owner}{host_and_path}{query}"


def has_secrets(address: str) -> bool:
    """Return whether an address has a part that may be secret."""
    return without_secrets(address) != address


def page_of(address: str) -> str:
    """Return an address that a browser can open, without what may be secret."""
    scheme, rest = _scheme_and_rest(address)
    _, host_and_path, _ = _parts(rest)
    return scheme + host_and_path


def _parts(rest: str) -> tuple[str, str, str]:
    """Split what follows the scheme of an address into three parts, of which the second is public.

    They are the owner with its `@`, the host and path, and the query with its first character.
    """
    ends = [match.end() for match in re.finditer(AT, rest, re.IGNORECASE)]
    start = ends[-1] if ends else 0
    # The last `@` may belong to a query, as in host/path?user=me@home&token=abc. What follows it
    # is then the rest of that query, whose next parameter begins with & or =.
    begins_query = f"{QUERY}|[&=]|%26|%3D" if ends else QUERY
    query = re.search(begins_query, rest[start:], re.IGNORECASE)
    stop = start + query.start() if query else len(rest)
    return rest[:start], rest[start:stop], rest[stop:]


def _scheme_and_rest(address: str) -> tuple[str, str]:
    """Split an address after its scheme, such as "https://", or return "" and the address."""
    match = re.match(r"[A-Za-z][\w+.-]*://", address)
    scheme = match[0] if match else ""
    return scheme, address[len(scheme) :]


def hide_in(text: str) -> str:
    """Return a text with *** in place of what may be secret in addresses within it."""
    return re.sub(IN_TEXT, lambda match: without_secrets(match[0]), text)


@functools.cache
def address_digest(address: str) -> str:
    """Return a digest that tells addresses apart.

    It is slow to compute on purpose, so that guessing a password from it is slow too.
    """
    return hashlib.pbkdf2_hmac("sha256", address.encode(), b"address of MLflow", ROUNDS).hex()[:32]


def safe_reason(error: BaseException) -> str:
    """Return why an address with secrets could not be reached.

    Libraries quote addresses in their messages, whole, in parts or decoded. So the text is ours,
    and repeats nothing of theirs.
    """
    for one in _error_and_causes(error):
        reason = _known_reason(one)
        if reason:
            return reason
    return type(error).__name__


def _known_reason(error: BaseException) -> str:
    """Return the reason behind an error of a known kind, "" for any other error."""
    if isinstance(error, socket.gaierror):
        return "the name of the host is not known"
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    # Dotted words only: what looks like the name of a module can hold no address.
    if isinstance(error, ImportError) and re.fullmatch(r"[\w.]+", error.name or ""):
        return f"the Python module {error.name} is not installed"
    status = re.search(r"\b(?:error code|status code:?|failed with code) ([45]\d\d)\b", str(error))
    if status:
        number = int(status[1])
        return f"it answers {number} {http.client.responses.get(number, '')}".rstrip()
    return ""


def _error_and_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, then the errors that it holds or came from, the nearest first."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        current = waiting.pop(0)
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        # urllib and urllib3 keep the cause as `reason`, SQLAlchemy as `orig`, and others as an
        # argument.
        held = [getattr(current, "reason", None), getattr(current, "orig", None), *current.args]
        related = [current.__cause__, current.__context__, *held]
        waiting.extend(one for one in related if isinstance(one, BaseException))
