"""A loss that diverges, or does to its process whatever a plug-in may do."""

import os
import signal
import sys
import time
import warnings
from typing import Literal

import torch
from torch import Tensor

from milbench import Loss


class OddError(Exception):
    def __str__(self) -> str:
        raise RuntimeError


def change_the_process() -> None:
    print("printed in a step")
    os.chdir("/")
    os.environ["LEFT_BEHIND"] = "1"
    sys.path.insert(0, "/nowhere")
    sys.setrecursionlimit(400)
    warnings.simplefilter("error")
    torch.set_default_dtype(torch.float64)
    torch.set_float32_matmul_precision("medium")
    if "pytest" not in sys.modules:  # what only another process is safe from
        torch.optim.Optimizer.zero_grad = None  # type: ignore[assignment, method-assign]


class HostileLoss(Loss):
    """Behaves in the check before any cell, and strikes in the cell; `leave` and `change` strike in the check."""

    name = "hostile"

    def __init__(
        self,
        how: Literal[
            "diverge", "exit 5", "interrupt", "leave", "kill", "hang", "assert", "odd", "change"
        ] = "diverge",
    ) -> None:
        super().__init__()
        self.how, self.calls = how, 0

    def bag_loss(self, logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        self.calls += logits.requires_grad
        value = logits.square().mean(dim=(1, 2))
        if self.calls < 2 and self.how not in ("leave", "change"):
            return value
        if self.how == "change":
            change_the_process()
            return value
        if self.how == "odd":
            raise OddError
        if self.how == "exit 5":
            sys.exit(5)
        if self.how == "interrupt":
            raise KeyboardInterrupt
        if self.how == "leave":
            os._exit(0)
        if self.how == "assert":  # as torch reports what has failed inside a kernel
            raise RuntimeError("CUDA error: device-side assert triggered")
        if self.how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        while (
            self.how == "hang"
        ):  # a loop that only the timer ends, though it leaves the cores to others
            time.sleep(0.01)
        return value * float("nan")

    def scores(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        return torch.zeros_like(logits[:, :-1, 0])
