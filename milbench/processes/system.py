"""What Linux offers for processes and their children that Python's standard library lacks."""

import ctypes
import os
import signal
from pathlib import Path

# From linux/prctl.h.
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def end_with_parent(parent: int) -> None:
    """Let the kernel kill this process as soon as its parent has ended."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # If the parent ended before that call, the kernel does nothing. This process then has another
    # parent.
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends.

    So `children` sees every descendant sooner or later.
    """
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def children() -> list[int]:
    """Return the process ids of the children of this process, which must have a single thread."""
    process = os.getpid()
    # Linux lists the children that a thread has started. The first thread of a process has the
    # same id as the process.
    numbers = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [int(number) for number in numbers]


def kill_group(process: int) -> None:
    """Kill a process and every other process of the group that it leads."""
    try:
        os.killpg(process, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        # The group is empty, or what is left of it belongs to another user.
        return


def describe_end(exit_code: int) -> str:
    """Say how a process ended, such as "ended with exit code 7".

    A negative exit code is minus the number of the signal that killed the process.
    """
    if exit_code >= 0:
        return f"ended with exit code {exit_code}"
    try:
        name = signal.Signals(-exit_code).name
    except ValueError:
        name = f"signal {-exit_code}"
    return f"was killed by {name}"


def _prctl(option: int, value: int) -> None:
    # None stands for all libraries that this process has loaded, such as the C library.
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
