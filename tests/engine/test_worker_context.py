"""What worker processes, and other processes of the user's program, get of its main module."""

from __future__ import annotations

import sys
import threading
from multiprocessing import spawn

import pytest

from milbench.engine.worker_context import _without_main_module


def test_workers_get_no_main_module_and_other_processes_get_it_even_at_that_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    monkeypatch.setattr(sys.modules["__main__"], "__file__", "script.py", raising=False)
    found: dict[str, dict[str, object]] = {}

    def prepare(name: str) -> None:
        found[name] = spawn.get_preparation_data(name)

    with _without_main_module():
        prepare("worker")
        other = threading.Thread(target=prepare, args=("another thread",))
        other.start()
        other.join()
    prepare("afterwards")
    for name in ("another thread", "afterwards"):
        assert str(found[name]["init_main_from_path"]).endswith("script.py")
        assert found["worker"] == {k: v for k, v in found[name].items() if k not in ("init_main_from_path", "name")} | {
            "name": "worker"
        }
