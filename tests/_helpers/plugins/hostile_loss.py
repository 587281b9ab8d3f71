"""A plug-in with a loss that diverges, or that harms its own process in one of many ways."""

import os
import re
import signal
import sys
import time
import warnings
from collections.abc import Callable

import psutil
import torch
from torch import Tensor

from milbench import Loss


class OddError(Exception):
    """An error whose message cannot be had: `str` of it fails."""

    def __str__(self) -> str:
        raise RuntimeError


def change_the_process() -> None:
    """Change settings of the whole process, which a loss should leave alone."""
    print("printed in a step")
    os.chdir("/")
    os.environ["LEFT_BEHIND"] = "1"
    sys.path.insert(0, "/nowhere")
    sys.setrecursionlimit(400)
    warnings.simplefilter("error")
    torch.set_default_dtype(torch.float64)
    torch.set_float32_matmul_precision("medium")
    if "pytest" not in sys.modules:
        # This would break all later tests in the process of pytest.
        torch.optim.Optimizer.zero_grad = None  # type: ignore[assignment, method-assign]


def hang() -> None:
    """Never return, but leave the cores to other processes."""
    while True:
        time.sleep(0.01)


def hold_the_interpreter() -> None:
    """Match a regular expression that takes years, and hold Python's global lock all the time."""
    re.match(r"(a+)+$", "a" * 60 + "b")


def start_child() -> None:
    """Fork a process that never ends, and print its number."""
    child = os.fork()
    if child == 0:
        hang()
    print(child)


def fail_on_the_gpu() -> None:
    """Fail as torch does after a failed assertion inside a GPU kernel."""
    raise RuntimeError("CUDA error: device-side assert triggered")


def raise_odd_error() -> None:
    raise OddError


def interrupt() -> None:
    raise KeyboardInterrupt


def kill_dask_worker() -> None:
    """Kill the grandparent of this process, which on a cluster is a worker of Dask.

    Then wait: this process ends when the worker has ended. Without waiting, a small cell would be
    done before that.
    """
    os.kill(psutil.Process().parent().ppid(), signal.SIGKILL)
    hang()


# Value of the parameter `how` -> what the loss does.
STRIKES: dict[str, Callable[[], object]] = {
    "assert": fail_on_the_gpu,
    "change": change_the_process,
    "child": start_child,
    "exit 5": lambda: sys.exit(5),
    "fork": os.fork,
    "hang": hang,
    "hold": hold_the_interpreter,
    "interrupt": interrupt,
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "kill worker": kill_dask_worker,
    "leave": lambda: os._exit(0),
    "odd": raise_odd_error,
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
}


class HostileLoss(Loss):
    """A loss that does something hostile at the second step of a cell.

    So the check of the first batch before a launch, which is one step, passes. `leave` and `change`
    strike in this check already.

    Args:
        how: one of STRIKES, or "diverge".
    """

    name = "hostile"

    def __init__(self, how: str = "diverge") -> None:
        super().__init__()
        self.how = how
        # How often the loss was called in training.
        self.calls = 0

    def bag_loss(self, logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        if logits.requires_grad:
            self.calls += 1
        value = logits.square().mean(dim=(1, 2))
        behaves = self.calls < 2 and self.how not in ("leave", "change")
        if behaves:
            return value
        if self.how == "diverge":
            return value * float("nan")
        STRIKES[self.how]()
        return value

    def scores(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        return torch.zeros_like(logits[:, :-1, 0])
