"""Processes that are forked from one which has imported torch, MLflow and milbench: that takes many seconds."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import subprocess
import threading
from collections.abc import Callable
from multiprocessing import forkserver, util
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

FORKS = multiprocessing.get_context("forkserver")
"""Starts processes that have imported MLflow's server, and what milbench's workers import."""
FORKS.set_forkserver_preload(["mlflow.server.fastapi_app", "milbench.engine.preload", "tests._helpers.short_timings"])
# A process has one fork server, and milbench asks for one as well: whoever comes first, it is to know all of these.
forkserver.set_forkserver_preload = lambda modules: None  # type: ignore[assignment]


class Forked:
    """A call of a function in a process with a session of its own, in the manner of subprocess.Popen.

    Args:
        function: of a module, which the process imports.
        args: its arguments.
        unread: whether nobody reads what it writes: its pipes are broken, as after `| head` has ended.
    """

    def __init__(self, function: Callable[..., object], *args: object, unread: bool = False) -> None:
        pipes = [FORKS.Pipe(duplex=False) for _ in range(2)]
        writers = [writer for _, writer in pipes]
        self._process = FORKS.Process(target=_call, args=(function, args, writers, Path.cwd(), dict(os.environ)))
        self._process.start()
        for end in [*writers, *([reader for reader, _ in pipes] if unread else [])]:
            end.close()
        self._said = ["", ""]
        self._readers = [
            threading.Thread(target=self._read, args=(i, r), daemon=True)
            for i, (r, _) in enumerate(pipes)
            if not unread
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, number: int, pipe: Connection) -> None:
        with os.fdopen(os.dup(pipe.fileno()), encoding="utf-8") as text:
            self._said[number] = text.read()
        pipe.close()

    @property
    def pid(self) -> int:
        return self._process.pid or 0

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(str(self._process), timeout or 0)
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait until nobody writes to its streams any more, and until it has ended; return what was written."""
        for reader in self._readers:
            reader.join(timeout)
            if reader.is_alive():
                raise subprocess.TimeoutExpired(str(self._process), timeout or 0)
        self.wait(timeout)
        out, err = self._said
        return out, err

    def kill(self) -> None:
        self._process.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.communicate()


def _call(
    function: Callable[..., object], args: Any, pipes: list[Connection], folder: Path, environment: dict[str, str]
) -> None:
    """Call the function in a process that is as one which was just started by the test."""
    os.setsid()
    for number, pipe in enumerate(pipes, 1):
        os.dup2(pipe.fileno(), number)
        pipe.close()
    for name in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    _fork_a_fork_server()
    function(*args)


def _fork_a_fork_server() -> None:
    """Start this process's own fork server as a copy of it, which has nothing left to import."""
    own: Any = forkserver._forkserver
    own._forkserver_pid = own._forkserver_address = own._forkserver_alive_fd = None  # that of the tests is another's
    own._preload_modules = []
    spawn = util.spawnv_passfds
    util.spawnv_passfds = _fork  # type: ignore[assignment]
    try:
        own.ensure_running()
    finally:
        util.spawnv_passfds = spawn


def _fork(program: str, words: list[str], passed: list[int]) -> int:
    """Run a Python program, the last of the words, in a copy of this process that has these open files alone."""
    child = os.fork()
    if child:
        return child
    try:
        for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # as milbench.engine.preload does
            signal.signal(name, signal.SIG_IGN)
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        for last, next_ in zip([2, *sorted(passed)], [*sorted(passed), limit], strict=True):
            os.closerange(last + 1, next_)
        exec(words[-1], {})
    finally:
        os._exit(0)
