"""Large downloads over HTTP that go on where they were broken off."""

from __future__ import annotations

import hashlib
import http.client
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

from milbench.errors import UsageError

ATTEMPTS = 3
"""Without a single byte in between, before a download is given up."""
STALLED = 30.0
"""Seconds without an answer after which a connection is given up."""
READ_BYTES = 1 << 20

Progress = Callable[[int], None]
"""Called with the number of bytes that are there."""


def download(url: str, path: Path, size: int, sha256: str, progress: Progress) -> None:
    """Download `size` bytes to `path`, after those that it has already.

    What arrived stays in the file when the connection breaks, so that the next call asks for the rest (HTTP Range); a
    server that cannot give the rest gives all of it again. A file that has all bytes and other contents is removed.
    Raises UsageError where the server refuses or has something else, OSError where it cannot be reached or the file
    cannot be written.
    """
    failures = 0
    while (have := path.stat().st_size if path.exists() else 0) != size:
        try:
            _ask_for_rest(url, path, have if have < size else 0, size, progress)
        except (http.client.HTTPException, urllib.error.URLError, TimeoutError, ConnectionError) as error:
            failures = 0 if path.exists() and path.stat().st_size > have else failures + 1
            if failures == ATTEMPTS:
                raise OSError(f"{url}: {getattr(error, 'reason', None) or error or type(error).__name__}") from error
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256:
        path.unlink()
        raise UsageError(f"the download of {url} is not what was expected: SHA-256 {sha256}, but found {found}")


def _ask_for_rest(url: str, path: Path, have: int, size: int, progress: Progress) -> None:
    """Append what the server has from byte `have` on, or write all of it where it does not know how to begin there."""
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"{url} is no address of a web server")
    headers = {"Range": f"bytes={have}-"} if have else {}
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 checked above
    try:
        response = urllib.request.urlopen(request, timeout=STALLED)  # noqa: S310
    except urllib.error.HTTPError as error:
        with error:
            raise UsageError(f"{url}: the server says {error.code} {error.reason}") from error
    with response:
        continued = response.status == http.HTTPStatus.PARTIAL_CONTENT
        if continued and not response.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
            raise UsageError(f"{url}: the server sent {response.headers.get('Content-Range')} when asked from {have}")
        have = have if continued else 0
        length = response.headers.get("Content-Length")
        if length is not None and have + int(length) != size:
            raise UsageError(f"{url} has {have + int(length):,} bytes, expected {size:,}")
        with path.open("ab" if continued else "wb") as file:
            for chunk in _chunks(response):
                file.write(chunk)
                have += len(chunk)
                progress(have)
                if have > size:
                    break


def _chunks(response: http.client.HTTPResponse) -> Iterator[bytes]:
    """Yield what arrives. Raises IncompleteRead where less does than was promised."""
    while chunk := response.read1(READ_BYTES):
        yield chunk
    if response.length:
        raise http.client.IncompleteRead(b"", response.length)
