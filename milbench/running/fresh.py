"""Call a function in a process of its own, which it may end, crash or hold."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

# Both ends are processes of this program, and the files between them lie in a folder of its own.
import cloudpickle  # noqa: TID251

T = TypeVar("T")

_SERVE = "from milbench.running.fresh import _serve; _serve()"


class ProcessDied(Exception):  # noqa: N818 it is named for what has happened
    """Raised when a process ended without a result. The message says how: "exit code 7"."""


def call_fresh(function: Callable[..., T], *arguments: Any, limit: float = 60.0) -> T:
    """Return what a function returns in a fresh process, or raise what it raises there.

    The function and its arguments are sent by cloudpickle. Raises ProcessDied where the process ends
    before the function does, and where that takes longer than `limit` seconds.
    """
    with tempfile.TemporaryDirectory(prefix="milbench-") as scratch:
        folder = Path(scratch)
        (folder / "call").write_bytes(cloudpickle.dumps((function, arguments)))
        exit_code = _run(folder, limit)
        answer = folder / "answer"
        if not answer.exists():
            raise ProcessDied(_describe(exit_code, limit))
        has_raised, value = cloudpickle.loads(answer.read_bytes())
    if has_raised:
        raise value
    return value  # type: ignore[no-any-return]


def _run(folder: Path, limit: float) -> int | None:
    """Run the process of a call and return its exit code, None where it took too long."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", _SERVE, str(folder)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # Ctrl-C is for the calling process, which then kills this one.
        start_new_session=True,
    )
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        return None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _describe(exit_code: int | None, limit: float) -> str:
    """Say how a process ended without an answer."""
    if exit_code is None:
        return f"took longer than {limit:g} seconds"
    if exit_code < 0:
        return f"killed by {signal.Signals(-exit_code).name}"
    return f"exit code {exit_code}"


def _serve() -> None:
    """Call the function that the caller has left in a folder, leave the answer there, and end."""
    folder = Path(sys.argv[1])
    function, arguments = cloudpickle.loads((folder / "call").read_bytes())
    try:
        answer: tuple[bool, Any] = (False, function(*arguments))
    except BaseException as error:  # noqa: BLE001 the caller raises it
        answer = (True, error)
    unfinished = folder / "unfinished"
    unfinished.write_bytes(cloudpickle.dumps(answer))
    unfinished.replace(folder / "answer")
    # Threads and exit handlers that the function has started are not waited for.
    os._exit(0)
