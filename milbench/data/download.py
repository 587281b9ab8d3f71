"""Large downloads over HTTP that are resumed after the connection broke."""

from __future__ import annotations

import hashlib
import http.client
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

from milbench.errors import UsageError

ATTEMPTS = 3
"""Connections in a row that bring no byte of the file, before a download is given up."""
STALLED = 30.0
"""Seconds without an answer after which a connection is given up."""
READ_BYTES = 1 << 20
"""Most bytes that are read and written at once."""


def download(url: str, path: Path, size: int, sha256: str, on_progress: Callable[[int], None]) -> None:
    """Download a file, or the rest of it where `path` holds its beginning.

    The bytes that arrived stay in the file when the connection breaks, and the next call requests the rest (HTTP
    Range). A server without ranges sends all of it again. A file of the right size and the wrong contents is removed.

    Args:
        url: an address of a web server.
        path: where to write.
        size: the size of the whole file, in bytes.
        sha256: the SHA-256 of the whole file, in hexadecimal.
        on_progress: called after every write with the number of bytes that the file has.

    Raises:
        UsageError: the server refuses, or has another file.
        OSError: the server cannot be reached, or the file cannot be written.
    """
    failures = 0
    while (have := path.stat().st_size if path.exists() else 0) != size:
        reason, cause = "its answer has another size than expected", None
        try:
            _request_rest(url, path, have if have < size else 0, size, on_progress)
        except (http.client.HTTPException, urllib.error.URLError, TimeoutError, ConnectionError) as error:
            reason, cause = str(getattr(error, "reason", None) or error or type(error).__name__), error
        has_grown = path.exists() and have < path.stat().st_size <= size
        failures = 0 if has_grown else failures + 1
        if failures == ATTEMPTS:
            raise OSError(f"{url}: {reason}") from cause
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256:
        path.unlink()
        raise UsageError(f"the download of {url} is not what was expected: SHA-256 {sha256}, but found {found}")


def _request_rest(url: str, path: Path, have: int, size: int, on_progress: Callable[[int], None]) -> None:
    """Append the bytes from `have` on, or overwrite the file with all bytes if the server cannot start at `have`."""
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"{url} is no address of a web server")
    headers = {"Range": f"bytes={have}-"} if have else {}
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 checked above
    try:
        response = urllib.request.urlopen(request, timeout=STALLED)  # noqa: S310
    except urllib.error.HTTPError as error:
        with error:
            raise UsageError(f"{url}: the server answered {error.code} {error.reason}") from error
    with response:
        continued = response.status == http.HTTPStatus.PARTIAL_CONTENT
        if continued and not response.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
            raise UsageError(
                f"{url}: the server sent {response.headers.get('Content-Range')} when bytes from {have} were requested"
            )
        have = have if continued else 0
        length = response.headers.get("Content-Length")
        if length is not None and have + int(length) != size:
            raise UsageError(f"{url} has {have + int(length):,} bytes, expected {size:,}")
        with path.open("ab" if continued else "wb") as file:
            for block in _blocks(response):
                file.write(block)
                have += len(block)
                on_progress(have)
                if have > size:
                    break


def _blocks(response: http.client.HTTPResponse) -> Iterator[bytes]:
    """Yield the bytes of a response. Raises IncompleteRead if there are fewer than the server announced."""
    while block := response.read1(READ_BYTES):
        yield block
    if response.length:
        raise http.client.IncompleteRead(b"", response.length)
