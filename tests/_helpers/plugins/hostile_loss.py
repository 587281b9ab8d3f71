"""A loss that diverges, or does to its process whatever a plug-in may do."""

import os
import signal
import sys
import time
from typing import Literal

import torch
from torch import Tensor

from milbench import Loss


class HostileLoss(Loss):
    """Behaves until a gradient is computed for the time that `strike` says; the first time is before any cell."""

    name = "hostile"

    def __init__(
        self,
        how: Literal["diverge", "exit 5", "interrupt", "leave", "kill", "hang", "assert"] = "diverge",
        strike: int = 2,
    ) -> None:
        super().__init__()
        self.how, self.strike, self.calls = how, strike, 0

    def bag_loss(self, logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        self.calls += logits.requires_grad
        value = logits.square().mean(dim=(1, 2))
        if self.calls < self.strike:
            return value
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
        while self.how == "hang":  # a loop that only the timer ends, though it leaves the cores to others
            time.sleep(0.01)
        return value * float("nan")

    def scores(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        return torch.zeros_like(logits[:, :-1, 0])
