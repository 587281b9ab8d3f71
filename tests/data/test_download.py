"""Downloads from a real server on this machine: with and without Range, broken off, and with a wrong range."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from milbench.data import download as module
from milbench.data.download import download
from milbench.errors import UsageError

CONTENT = bytes(range(256)) * 1000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@dataclass
class Server:
    """Serves `content` at every address and records the ranges that were requested."""

    content: bytes = CONTENT
    ranges: bool = True
    breaks_after: int | None = None
    """Bytes that a connection carries before it breaks."""
    wrong_range: str | None = None
    says_length: bool = True
    requested: list[str | None] = field(default_factory=list)
    url: str = ""

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        range_header = request.headers.get("Range")
        self.requested.append(range_header)
        if request.path.endswith("nothing"):
            request.send_error(404)
            return
        match = re.fullmatch(r"bytes=(\d+)-", range_header or "") if self.ranges else None
        start = int(match[1]) if match else 0
        request.send_response(206 if match else 200)
        if self.says_length:
            request.send_header("Content-Length", str(len(self.content) - start))
        if match:
            request.send_header(
                "Content-Range", self.wrong_range or f"bytes {start}-{len(self.content) - 1}/{len(self.content)}"
            )
        request.end_headers()
        end = None if self.breaks_after is None else start + self.breaks_after
        request.wfile.write(self.content[start:end])


@pytest.fixture
def server() -> Iterator[Server]:
    plan = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            plan.answer(self)

        def log_message(self, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        plan.url = f"http://127.0.0.1:{running.server_port}/train.tar.gz"
        yield plan
        running.shutdown()


def get(server: Server, path: Path) -> list[int]:
    reported: list[int] = []
    download(server.url, path, len(CONTENT), SHA256, reported.append)
    assert path.read_bytes() == CONTENT
    return reported


def test_a_whole_download_reports_its_progress(server: Server, tmp_path: Path) -> None:
    reported = get(server, tmp_path / "x")
    assert reported == sorted(reported)
    assert reported[-1] == len(CONTENT)
    assert server.requested == [None]
    get(server, tmp_path / "x")
    assert server.requested == [None]  # what is there and whole is not requested again


def test_a_broken_download_goes_on_where_it_was(server: Server, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(CONTENT[:1000])
    server.breaks_after = 100_000
    get(server, tmp_path / "x")
    assert server.requested == ["bytes=1000-", "bytes=101000-", "bytes=201000-"]


def test_a_server_without_ranges_sends_everything_again(server: Server, tmp_path: Path) -> None:
    server.ranges = False
    (tmp_path / "x").write_bytes(b"something else")
    get(server, tmp_path / "x")
    assert server.requested == ["bytes=14-"]


def test_a_file_that_is_too_long_is_downloaded_again(server: Server, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(CONTENT + b"more")
    get(server, tmp_path / "x")
    assert server.requested == [None]


@pytest.mark.parametrize("content", [CONTENT[:5000], CONTENT + b"more"], ids=["too short", "too long"])
def test_a_server_that_says_no_length_and_sends_something_else_is_given_up(
    server: Server, tmp_path: Path, content: bytes
) -> None:
    """As a portal does that asks to log in."""
    server.content, server.ranges, server.says_length = content, False, False
    with pytest.raises(OSError, match=r"train\.tar\.gz: its answer has another size than expected"):
        get(server, tmp_path / "x")
    assert len(server.requested) <= module.ATTEMPTS + 1


def test_what_arrived_stays_when_the_server_gives_up(server: Server, tmp_path: Path) -> None:
    server.breaks_after = 0
    (tmp_path / "x").write_bytes(CONTENT[:10])
    with pytest.raises(OSError, match=r"train.tar.gz"):
        get(server, tmp_path / "x")
    assert len(server.requested) == module.ATTEMPTS
    assert (tmp_path / "x").read_bytes() == CONTENT[:10]


def test_other_contents_are_removed(server: Server, tmp_path: Path) -> None:
    server.content = CONTENT[:-1] + b"!"
    found = hashlib.sha256(server.content).hexdigest()
    with pytest.raises(UsageError, match=f"not what was expected: SHA-256 {SHA256}, but found {found}"):
        get(server, tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_another_size_is_refused_before_anything_is_loaded(server: Server, tmp_path: Path) -> None:
    server.content = CONTENT + b"more"
    with pytest.raises(UsageError, match="has 256,004 bytes, expected 256,000"):
        get(server, tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_a_range_that_was_not_requested_is_refused(server: Server, tmp_path: Path) -> None:
    server.wrong_range = f"bytes 0-{len(CONTENT) - 1}/{len(CONTENT)}"
    (tmp_path / "x").write_bytes(CONTENT[:10])
    with pytest.raises(UsageError, match="when bytes from 10 were requested"):
        get(server, tmp_path / "x")


def test_a_missing_file_and_a_missing_server(server: Server, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing: the server answered 404"):
        download(server.url + "/nothing", tmp_path / "x", 1, SHA256, print)
    with pytest.raises(OSError, match="refused"):
        download("http://127.0.0.1:9/train.tar.gz", tmp_path / "x", 1, SHA256, print)
    with pytest.raises(UsageError, match="no address of a web server"):
        download("file:///etc/passwd", tmp_path / "x", 1, SHA256, print)
