"""How worker processes are started: forked from a process that has imported torch and MLflow, where that works."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

_HERE = threading.local()
"""`starts_worker` is True in a thread while it starts a worker process."""


@cache
def worker_context() -> Any:
    """Return the context of multiprocessing in which workers are started; None: joblib's own, on Windows.

    Workers do not import the main module of the program that started them, as processes of multiprocessing do: no cell
    needs it, and a script that calls `milbench.compare` would be run once more by each of them.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return None
    context = _WorkerContext()
    context.set_forkserver_preload(["milbench.engine.preload"])
    return context


if "forkserver" in multiprocessing.get_all_start_methods():
    from multiprocessing.context import ForkServerContext, ForkServerProcess

    class _Process(ForkServerProcess):
        @staticmethod
        def _Popen(process_obj: Any) -> Any:  # noqa: N802 multiprocessing calls it so
            with _without_main_module():
                return ForkServerProcess._Popen(process_obj)  # noqa: SLF001

    class _WorkerContext(ForkServerContext):
        Process = _Process


@contextmanager
def _without_main_module() -> Iterator[None]:
    """Start processes without the main module, in this thread; other threads of the program start theirs as ever."""
    _leave_main_module_out()
    _HERE.starts_worker = True
    try:
        yield
    finally:
        _HERE.starts_worker = False


@cache
def _leave_main_module_out() -> None:
    """Let multiprocessing say nothing of the main module to workers. It has no setting for that."""
    from multiprocessing import spawn

    prepare = spawn.get_preparation_data

    def prepared(name: str) -> dict[str, Any]:
        data = prepare(name)
        if getattr(_HERE, "starts_worker", False):
            data = {key: value for key, value in data.items() if not key.startswith("init_main_from_")}
        return data

    spawn.get_preparation_data = prepared
