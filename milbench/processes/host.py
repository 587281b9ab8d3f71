"""The host: a process that has imported everything slow, and forks a fresh process for each call.

    python -m milbench.processes host FD

The launcher, the process that makes calls, starts the host. It sends calls through a socket, whose
file descriptor is FD. Each call is computed by a fork of the host. That takes some hundredths of a
second, while a new interpreter would spend seconds on importing PyTorch. The host itself only
imports modules. It uses no GPU and starts no threads, since a forked process would lack them.

Three rules make sure that no process is left behind:

- a forked process leads a process group, which is killed when the process has ended or reached its
  time limit;
- the kernel kills a forked process when the host ends;
- the host ends when the socket is closed, which happens when the launcher ends for whatever reason.
"""

from __future__ import annotations

import importlib
import os
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NoReturn

import cloudpickle

from milbench._utils.process import path_of_session
from milbench.errors import message
from milbench.processes.system import (
    adopt_orphans,
    children,
    describe_end,
    end_with_parent,
    kill_group,
)

PRELOADED = "milbench.preload"
"""The module that imports what calls need. Importing it in each call would take seconds."""

THREADS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
"""The environment variables from which numerical libraries take their number of threads."""

SET_FOR_THE_HOST = (*THREADS, "PYTHONUNBUFFERED")
"""The environment variables that the launcher sets for the host. They apply to every call."""

RESULT = b"R"
"""The first byte of a message from a forked process that holds the outcome of its call."""
LIMIT = b"L"
"""The first byte of a message from a forked process that asks to be killed after some seconds."""


@dataclass(frozen=True)
class Surroundings:
    """What a call has in common with the launcher: working folder, environment, import path."""

    folder: str
    environment: dict[str, str]
    path: list[str]
    """Where Python looks for modules."""

    @classmethod
    def current(cls) -> Surroundings:
        """Return the surroundings of this process."""
        # Folders that the launcher added for plug-ins are left out, since two of them may hold
        # modules of the same name. A call adds the folders of its own plug-ins.
        return cls(str(Path.cwd()), dict(os.environ), path_of_session())

    def restore(self) -> None:
        """Give this process these surroundings.

        It keeps the variables that were set when the host was started.
        """
        os.chdir(self.folder)
        own = {name: os.environ[name] for name in SET_FOR_THE_HOST if name in os.environ}
        os.environ.clear()
        os.environ.update(self.environment | own)
        sys.path[:] = self.path


@dataclass(frozen=True)
class Call:
    """A call that the launcher asks for."""

    ticket: int
    """The number by which the launcher recognises the answer."""
    surroundings: Surroundings
    content: bytes
    """Pickled: the function and its arguments."""


@dataclass(frozen=True)
class Answer:
    """How a call ended."""

    ticket: int
    outcome: bytes | None
    """Pickled: whether the function returned, and its result or its error.

    None where the process died.
    """
    death: str
    """How the process ended, such as "it ended with exit code 7"."""
    is_late: bool
    """Whether the process was killed at its time limit."""


@dataclass
class _Forked:
    """A process that computes a call."""

    process: int
    ticket: int
    connection: Connection | None
    """Receives what the process sends; None once the process has closed its end."""
    outcome: bytes | None = None
    """As in `Answer`; None until the process has sent it."""
    deadline: float | None = None
    """When its time limit ends, by time.monotonic(); None without a limit."""
    is_late: bool = False
    """Whether it was killed at its time limit."""


class Host:
    """Forks a process for each call that arrives, and answers when the process has ended."""

    def __init__(self, launcher: Connection) -> None:
        self.launcher = launcher
        self.process = os.getpid()
        self.running: dict[int, _Forked] = {}
        """Process id -> the process."""
        # Python writes a byte into this socket whenever a child has ended, which wakes `serve`.
        self.ended, self.ended_writer = socket.socketpair()
        self.ended.setblocking(False)
        self.ended_writer.setblocking(False)
        # Python writes the byte only for a signal that has a handler.
        signal.signal(signal.SIGCHLD, _ignore)
        signal.set_wakeup_fd(self.ended_writer.fileno(), warn_on_full_buffer=False)

    def serve(self) -> None:
        """Answer calls until the launcher closes the connection.

        Then kill every process that still computes.
        """
        try:
            while True:
                connections = self._open_connections()
                seconds = self._seconds_to_deadline()
                for ready in wait([self.launcher, self.ended, *connections], seconds):
                    if ready is self.launcher:
                        self._fork(self.launcher.recv())
                    elif ready is self.ended:
                        # The bytes are discarded: `_reap` asks the kernel which children have
                        # ended.
                        self.ended.recv(4096)
                for forked in self.running.values():
                    self._receive(forked)
                self._reap()
                self._kill_late()
        except (EOFError, ConnectionError):
            # The launcher has closed the connection or has ended.
            return
        finally:
            for process in self.running:
                kill_group(process)
            # `_kill_strays` then also reaps the processes that were killed here: with no process
            # in `running`, every child that is left counts as a stray.
            self.running.clear()
            self._kill_strays()

    def _open_connections(self) -> list[Connection]:
        """Return the connections of processes that may still send something."""
        connections = [forked.connection for forked in self.running.values()]
        return [connection for connection in connections if connection is not None]

    def _seconds_to_deadline(self) -> float | None:
        """Return the seconds until the next deadline, None if there is none.

        The deadline of a process that was killed at its time limit is over.
        """
        deadlines = [
            forked.deadline
            for forked in self.running.values()
            if forked.deadline is not None and not forked.is_late
        ]
        if not deadlines:
            return None
        return max(0.0, min(deadlines) - time.monotonic())

    def _fork(self, call: Call) -> None:
        """Start a process that computes a call."""
        reader, writer = _pipe()
        process = os.fork()
        if process == 0:
            self._compute(call, writer)
        writer.close()
        self.running[process] = _Forked(process, call.ticket, reader)

    def _compute(self, call: Call, writer: Connection) -> NoReturn:
        """Compute a call in the forked process, send its outcome and end."""
        try:
            # This process now leads a session and a group, which `kill_group` kills as a whole.
            os.setsid()
            end_with_parent(self.process)
            # Without this the host would adopt the orphans of this call, and kill them as strays as
            # soon as another call ends. They may live as long as the call is computed.
            adopt_orphans()
            self._drop_state_of_host()

            def ask_for_limit(seconds: float) -> None:
                # "d" is the format of a floating-point number in double precision.
                writer.send_bytes(LIMIT + struct.pack("d", seconds))

            outcome = compute(call, ask_for_limit)
            writer.send_bytes(RESULT + outcome)
            _flush()
        except BaseException:
            os._exit(1)
        # A usual exit would run the exit handlers of the host, and wait for threads of plug-ins.
        os._exit(0)

    def _drop_state_of_host(self) -> None:
        """Restore signal handlers in a forked process, and close its copies of the connections.

        A connection counts as closed only when no process holds an end of it any more.
        """
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        self.launcher.close()
        self.ended.close()
        self.ended_writer.close()
        for connection in self._open_connections():
            connection.close()

    def _receive(self, forked: _Forked) -> None:
        """Read what a process has sent so far."""
        if forked.connection is None:
            return
        try:
            while forked.connection.poll():
                content = forked.connection.recv_bytes()
                if content[:1] == RESULT:
                    forked.outcome = content[1:]
                else:
                    (seconds,) = struct.unpack("d", content[1:])
                    forked.deadline = time.monotonic() + seconds
        except (EOFError, OSError):
            # The process has ended, or a plug-in in it has closed the connection.
            forked.connection.close()
            forked.connection = None

    def _reap(self) -> None:
        """Answer the calls whose processes have ended."""
        process = _ended_child()
        while process is not None:
            # The group is killed before the process is reaped: afterwards another process may get
            # the same number.
            kill_group(process)
            _, status = os.waitpid(process, 0)
            # A stray is not in `running`, and nobody waits for its answer.
            forked = self.running.pop(process, None)
            if forked is not None:
                self._answer(forked, status)
            self._kill_strays()
            process = _ended_child()

    def _answer(self, forked: _Forked, status: int) -> None:
        """Send the answer to the call of a process that has ended."""
        # The process may have sent its outcome since `serve` looked.
        self._receive(forked)
        if forked.connection is not None:
            forked.connection.close()
        death = f"it {describe_end(os.waitstatus_to_exitcode(status))}"
        answer = Answer(forked.ticket, forked.outcome, death, forked.is_late)
        self.launcher.send(answer)

    def _kill_strays(self) -> None:
        """Kill children that compute no call.

        They are processes that a call has started in a group of their own, and left behind. The
        host has adopted them.
        """
        # When a stray ends, the host adopts the children of the stray: the next round kills them.
        while True:
            strays = [child for child in children() if child not in self.running]
            if not strays:
                return
            for stray in strays:
                os.kill(stray, signal.SIGKILL)
            for stray in strays:
                os.waitpid(stray, 0)

    def _kill_late(self) -> None:
        """Kill the processes that have reached their time limit."""
        now = time.monotonic()
        for forked in self.running.values():
            if forked.deadline is not None and now >= forked.deadline:
                forked.is_late = True
                kill_group(forked.process)


_ask_for_limit: Callable[[float], None] | None = None
"""Asks for this process to be killed after some seconds; None if it computes no call."""


def compute(call: Call, ask_for_limit: Callable[[float], None]) -> bytes:
    """Compute a call in this process and return its pickled outcome, see `Answer`.

    The function may set itself a time limit by `announce_limit`. That calls `ask_for_limit`, which
    must make sure that the process is killed after this number of seconds.
    """
    global _ask_for_limit  # noqa: PLW0603 a process computes one call
    _ask_for_limit = ask_for_limit
    try:
        call.surroundings.restore()
        function, arguments = cloudpickle.loads(call.content)
        value = function(*arguments)
        has_returned = True
    except BaseException as error:
        value = error
        has_returned = False
    try:
        outcome: bytes = cloudpickle.dumps((has_returned, value))
        if not has_returned:
            # Errors of many classes can be pickled, but then not unpickled. It is better to notice
            # that in this process than in the launcher.
            cloudpickle.loads(outcome)
    except Exception as error:
        problem = RuntimeError(f"{_shown(value, has_returned)} cannot be sent: {error}")
        outcome = cloudpickle.dumps((False, problem))
    return outcome


def _shown(value: Any, has_returned: bool) -> str:
    """Return the type of a result, or the type and the message of an error."""
    kind = type(value).__name__
    if has_returned:
        return kind
    return f"{kind}: {message(value)}".removesuffix(": ")


def announce_limit(seconds: float) -> None:
    """Have this process killed if it has not ended `seconds` from now.

    This does nothing in a process that computes no call.
    """
    if _ask_for_limit is not None:
        _ask_for_limit(seconds)


def _ended_child() -> int | None:
    """Return a child that has ended and is not reaped yet, None if there is none."""
    try:
        # WNOWAIT leaves the child as it is, to be reaped later.
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return None if ended is None else ended.si_pid


def _pipe() -> tuple[Connection, Connection]:
    """Return the two ends of a pipe: one to read from, one to write to."""
    reader, writer = os.pipe()
    return Connection(reader, writable=False), Connection(writer, readable=False)


def _flush() -> None:
    """Write out what was printed and is still buffered, since `os._exit` would lose it."""
    for stream in (sys.stdout, sys.stderr):
        # A plug-in may have replaced a stream by an object without `flush`.
        flush: Callable[[], Any] | None = getattr(stream, "flush", None)
        if flush is not None:
            flush()


def _ignore(*_: Any) -> None:
    """Do nothing: the wakeup socket announces that a child has ended."""


def _stop(*_: Any) -> NoReturn:
    """End the host by an exception, so that it first kills the processes that it has forked."""
    raise SystemExit(1)


def serve_by_forks(launcher: Connection) -> NoReturn:
    """Import what calls need, and answer the calls of a launcher until it closes the connection."""
    signal.signal(signal.SIGTERM, _stop)
    # What a call leaves behind becomes a child of the host, which finds it as a stray.
    adopt_orphans()
    importlib.import_module(PRELOADED)
    Host(launcher).serve()
    # Nothing is left to be closed, and a usual exit would spend a second on PyTorch.
    os._exit(0)
