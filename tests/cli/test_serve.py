from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from tests._helpers.command_line import TINY, Milbench


def test_the_ui_serves_the_store(milbench: Milbench, root: Path) -> None:
    milbench("run", "--loss", "exact", "--task", TINY)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-m", "milbench", "ui", "--port", str(port), "--root", str(root)],
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(800):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2) as answer:
                    assert answer.read() == b"OK"
                break
            except OSError:
                time.sleep(0.25)
        else:
            pytest.fail("the server did not answer")
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(timeout=30)
