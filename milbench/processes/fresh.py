"""Call functions in fresh processes, each of which computes one call and ends.

This module runs in the launcher, the process that makes the calls. The modules `host` and `once`
run in the processes that it starts.
"""

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
from typing import IO, Any, TypeVar

import cloudpickle

from milbench._utils.process import uninterrupted
from milbench.processes.host import THREADS, Answer, Call, Surroundings, announce_limit
from milbench.processes.system import describe_end

T = TypeVar("T")

CAN_FORK = sys.platform == "linux"
"""Whether a process that has imported PyTorch may be forked.

On macOS its libraries do not work after a fork.
"""

PROGRAM = "milbench.processes"
"""The package that `python -m` runs, see `milbench/processes/__main__.py`."""

PATIENCE = 10.0
"""Seconds to wait for a host to end, after it was asked to end or has closed its connection."""


class ProcessDied(Exception):  # noqa: N818 it is named for what has happened
    """Raised when the process of a call ends without a result.

    The text of the error says how, such as "it ended with exit code 7".
    """


class TookTooLong(ProcessDied):
    """Raised when the process of a call is killed at its time limit."""


class FreshProcesses(Executor):
    """An executor that computes each call in a fresh process.

    Numerical libraries have `threads` threads in each process. All submitted calls run at the same
    time. A future raises what its function raised, or ProcessDied. Functions, arguments and results
    are sent by cloudpickle, so a notebook or a script may define them.
    """

    def __init__(self, threads: int = 1, *, can_fork: bool = CAN_FORK) -> None:
        self._threads = threads
        self._can_fork = can_fork
        self._lock = threading.Lock()
        self._hosts: list[_HostProcess] = []

    def submit(  # type: ignore[override]
        self, function: Callable[..., T], /, *arguments: Any
    ) -> Future[T]:
        """Start a call in a process of its own."""
        content = cloudpickle.dumps((function, arguments))
        with self._lock:
            self._hosts = [host for host in self._hosts if not host.has_ended]
            # One host forks a process for every call. Where processes cannot be forked, each call
            # needs a host of its own.
            if not self._hosts or not self._can_fork:
                self._hosts.append(_HostProcess(self._threads, self._can_fork))
            return self._hosts[-1].call(content)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = True) -> None:  # noqa: ARG002
        """End the processes, even those that still compute.

        The arguments are those of `Executor`, and are ignored.
        """
        with self._lock:
            while self._hosts:
                self._hosts.pop().close()


class _HostProcess:
    """A host process, as seen by its launcher, and the calls that it has not answered yet."""

    def __init__(self, threads: int, can_fork: bool) -> None:
        self._unanswered: dict[int, Future[Any]] = {}
        """Ticket of a call -> its future.

        The reader thread and callers both remove entries, which is safe since `pop` is atomic.
        """
        self._last_ticket = 0
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 closed with the host
        # Messages call the process of a call "it". That is a process that the host has forked, or
        # the host itself where processes cannot be forked.
        self._host_in_messages = "the process that started it" if can_fork else "it"
        self._connection, end_of_host = Pipe()
        environment = {"PYTHONUNBUFFERED": "1", **dict.fromkeys(THREADS, str(threads))}
        how = "host" if can_fork else "once"
        command = [sys.executable, "-m", PROGRAM, how, str(end_of_host.fileno())]
        # In a session of its own the host does not get the signals of a terminal, such as Ctrl-C.
        with uninterrupted():
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._stderr,
                env=os.environ | environment,
                pass_fds=[end_of_host.fileno()],
                start_new_session=True,
            )
        end_of_host.close()
        self._reader = threading.Thread(target=self._hand_out_answers, daemon=True)
        self._reader.start()
        atexit.register(self.close)

    @property
    def has_ended(self) -> bool:
        """Whether the host will send no more answers."""
        return not self._reader.is_alive()

    def call(self, content: bytes) -> Future[Any]:
        """Send a pickled call and return the future of its result."""
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        self._last_ticket += 1
        ticket = self._last_ticket
        self._unanswered[ticket] = future
        try:
            self._connection.send(Call(ticket, Surroundings.current(), content))
        except OSError:
            # The host has ended. The reader thread may have failed this call already.
            if self._unanswered.pop(ticket, None) is not None:
                future.set_exception(ProcessDied(self._describe_death()))
        return future

    def close(self) -> None:
        """End the host, which then kills what it has forked."""
        atexit.unregister(self.close)
        # The reader thread waits for an answer. Closing the connection would not wake it, but
        # shutting the connection down does, and only a socket can be shut down. The socket closes
        # its file descriptor at the end, so it gets a copy of the connection's.
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
        self._stderr.close()

    def _hand_out_answers(self) -> None:
        """Pass answers to their futures until the host has ended. The reader thread runs this."""
        while True:
            try:
                answer: Answer = self._connection.recv()
            except (EOFError, OSError):
                break
            future = self._unanswered.pop(answer.ticket)
            if answer.outcome is not None:
                _set_outcome(future, answer.outcome)
            elif answer.is_late:
                future.set_exception(TookTooLong("it took too long"))
            else:
                future.set_exception(ProcessDied(answer.death))
        death = self._describe_death()
        for ticket in [*self._unanswered]:
            self._unanswered.pop(ticket).set_exception(ProcessDied(death))

    def _describe_death(self) -> str:
        """Say how the host ended, with the last line that it wrote to standard error."""
        try:
            code = self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            return f"{self._host_in_messages} does not answer"
        self._stderr.seek(0)
        lines = self._stderr.read().decode("utf-8", "replace").splitlines()
        reason = f": {lines[-1]}" if lines else ""
        return f"{self._host_in_messages} {describe_end(code)}{reason}"


def _set_outcome(future: Future[Any], pickled: bytes) -> None:
    """Give a future what its function returned or raised."""
    try:
        has_returned, value = cloudpickle.loads(pickled)
    except BaseException as error:
        # Unpickling may run any code, and must not end this thread.
        reason = f"{type(error).__name__}: {error}".removesuffix(": ")
        future.set_exception(RuntimeError(f"a result cannot be read: {reason}"))
        return
    if has_returned:
        future.set_result(value)
    else:
        future.set_exception(value)


@cache
def shared_processes(threads: int = 1) -> FreshProcesses:
    """Return the executor that this program shares, for processes with this number of threads."""
    return FreshProcesses(threads)


def call_fresh(function: Callable[..., T], *arguments: Any, limit: float | None = None) -> T:
    """Call a function in a fresh process and return its result, or raise what it raised.

    Raises ProcessDied if the process ends without a result, TookTooLong if it has none after
    `limit` seconds.
    """
    future: Future[T] = shared_processes().submit(_limited, limit, function, arguments)
    try:
        return future.result()
    except TookTooLong:
        raise TookTooLong(f"it took longer than {limit:g} seconds") from None


def _limited(limit: float | None, function: Callable[..., T], arguments: tuple[Any, ...]) -> T:
    """Call a function in this process, which is killed after `limit` seconds."""
    if limit is not None:
        announce_limit(limit)
    return function(*arguments)
