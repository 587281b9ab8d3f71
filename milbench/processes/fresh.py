"""Call functions in fresh processes, each of which computes one call and ends."""

from __future__ import annotations

import atexit
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from functools import cache
from multiprocessing.connection import Pipe
from pathlib import Path
from typing import IO, Any, TypeVar

import cloudpickle

from milbench._utils.process import path_of_session, uninterrupted
from milbench.processes import host
from milbench.processes.host import Answer, Call, Surroundings
from milbench.processes.system import describe_end

T = TypeVar("T")

CAN_FORK = sys.platform == "linux"
"""Whether a process that has imported PyTorch may be forked. On macOS its libraries do not survive that."""

PATIENCE = 10.0
"""Seconds to wait for a host that is asked to end, or has closed its connection."""


class ProcessDied(Exception):  # noqa: N818 it is named for what has happened
    """Raised where the process of a call ended without a result; its text says how, as "it ended with exit code 7"."""


class TookTooLong(ProcessDied):
    """Raised where the process of a call was killed because its time was over."""


class FreshProcesses(Executor):
    """An executor that computes each call in a fresh process, whose libraries have so many threads.

    All calls that were submitted are computed at once. A future raises what its function raised, or ProcessDied.
    Functions, arguments and results are sent by cloudpickle, so that those of a notebook or a script can be sent too.
    """

    def __init__(self, threads: int = 1, *, can_fork: bool = CAN_FORK) -> None:
        self._threads = threads
        self._can_fork = can_fork
        self._lock = threading.Lock()
        self._hosts: list[_Host] = []

    def submit(self, function: Callable[..., T], /, *arguments: Any) -> Future[T]:  # type: ignore[override]
        """Start a call in a process of its own."""
        content = cloudpickle.dumps((function, arguments))
        with self._lock:
            self._hosts = [host for host in self._hosts if not host.has_ended]
            # A host that forks computes all calls, any other one computes one.
            if not self._hosts or not self._can_fork:
                self._hosts.append(_Host(self._threads, self._can_fork))
            return self._hosts[-1].call(content)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = True) -> None:  # noqa: ARG002
        """End the processes, also those that still compute."""
        with self._lock:
            while self._hosts:
                self._hosts.pop().close()


class _Host:
    """The host process of a launcher, and the calls that it has not answered."""

    def __init__(self, threads: int, can_fork: bool) -> None:
        self._waiting: dict[int, Future[Any]] = {}
        self._tickets = 0
        self._complaints: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 closed with the host
        self._connection, end_of_host = Pipe()
        environment = {"PYTHONUNBUFFERED": "1", **dict.fromkeys(host.THREADS, str(threads))}
        how = "host" if can_fork else "once"
        self._name = "the process that started it" if can_fork else "it"
        command = [sys.executable, "-m", host.__package__, how, str(end_of_host.fileno())]
        # A session of its own: what a terminal sends to this process does not reach the host.
        with uninterrupted():
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._complaints,
                env=os.environ | environment,
                pass_fds=[end_of_host.fileno()],
                start_new_session=True,
            )
        end_of_host.close()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        atexit.register(self.close)

    @property
    def has_ended(self) -> bool:
        """Whether no answer will come from it."""
        return not self._reader.is_alive()

    def call(self, content: bytes) -> Future[Any]:
        """Send a pickled call and return the future of its result."""
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        self._tickets += 1
        ticket = self._tickets
        self._waiting[ticket] = future
        try:
            self._connection.send(Call(ticket, _surroundings(), content))
        except (ConnectionError, OSError):
            if self._waiting.pop(ticket, None) is not None:
                future.set_exception(ProcessDied(self._death()))
        return future

    def close(self) -> None:
        """End the host, which then ends what it has forked."""
        atexit.unregister(self.close)
        # Closing alone would not wake the reader, which waits for an answer.
        with suppress(OSError), socket.socket(fileno=os.dup(self._connection.fileno())) as ending:
            ending.shutdown(socket.SHUT_RDWR)
        with uninterrupted():
            try:
                self._process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._reader.join()
        self._connection.close()
        self._complaints.close()

    def _read(self) -> None:
        """Hand out answers until the host has ended; a thread of its own does nothing else."""
        while True:
            try:
                answer: Answer = self._connection.recv()
            except (EOFError, OSError):
                break
            future = self._waiting.pop(answer.ticket)
            if answer.outcome is not None:
                _set_outcome(future, answer.outcome)
            elif answer.is_late:
                future.set_exception(TookTooLong("it took too long"))
            else:
                future.set_exception(ProcessDied(answer.death))
        death = self._death()
        for ticket in [*self._waiting]:
            self._waiting.pop(ticket).set_exception(ProcessDied(death))

    def _death(self) -> str:
        """Say how the host ended."""
        try:
            code = self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            return f"{self._name} does not answer"
        self._complaints.seek(0)
        lines = self._complaints.read().decode("utf-8", "replace").splitlines()
        reason = f": {lines[-1]}" if lines else ""
        return f"{self._name} {describe_end(code)}{reason}"


def _surroundings() -> Surroundings:
    # A call finds the folders of its own plug-ins alone: others may have a module of the same name.
    return Surroundings(str(Path.cwd()), dict(os.environ), path_of_session())


def _set_outcome(future: Future[Any], pickled: bytes) -> None:
    try:
        has_returned, value = cloudpickle.loads(pickled)
    except BaseException as error:
        # This thread has to go on, whatever unpickling runs.
        reason = f"{type(error).__name__}: {error}".removesuffix(": ")
        future.set_exception(RuntimeError(f"a result cannot be read: {reason}"))
        return
    if has_returned:
        future.set_result(value)
    else:
        future.set_exception(value)


@cache
def shared_processes(threads: int = 1) -> FreshProcesses:
    """Return the fresh processes that all of this program shares, for a number of threads."""
    return FreshProcesses(threads)


def call_fresh(function: Callable[..., T], *arguments: Any, limit: float | None = None) -> T:
    """Call a function in a fresh process and return its result, or raise what it raised.

    Raises ProcessDied where the process ends without a result, TookTooLong where it has none after `limit` seconds.
    """
    future: Future[T] = shared_processes().submit(_limited, limit, function, arguments)
    return future.result()


def _limited(limit: float | None, function: Callable[..., T], arguments: tuple[Any, ...]) -> T:
    """Call a function in this process, which its host kills after the limit."""
    if limit is not None:
        host.announce_limit(limit)
    return function(*arguments)
