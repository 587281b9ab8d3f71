"""Does harm to the store while a cell of the tiny task is computed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def in_the_second_epoch(gate: Path, action: Callable[[], None]) -> Iterator[None]:
    """Call a function in a thread when a cell with `task.gate` has come to its third epoch, and let it go on then."""
    reached, over = Path(f"{gate}.reached"), threading.Event()
    acted = threading.Event()

    def act() -> None:
        while not reached.exists():
            if over.is_set():
                return
            time.sleep(0.02)
        try:
            action()
            acted.set()
        finally:
            gate.touch()

    thread = threading.Thread(target=act)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    assert acted.is_set()
