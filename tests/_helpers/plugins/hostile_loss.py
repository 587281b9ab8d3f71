"""A loss that does to its process whatever a plug-in may do."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from milbench import Loss

How = Literal["exit 0", "exit 5", "interrupt", "leave", "kill", "terminate", "hang", "sleep", "stop", "assert"]


class HostileLoss(Loss):
    """Behaves until a gradient is computed for the time that `strike` says; the first time is before any cell."""

    name = "hostile"

    def __init__(self, how: How = "exit 0", strike: int = 2) -> None:
        super().__init__()
        self.how, self.strike, self.calls = how, strike, 0

    def bag_loss(self, logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        self.calls += logits.requires_grad
        if self.calls >= self.strike:
            self._strike()
        return logits.square().mean(dim=(1, 2))

    def _strike(self) -> None:
        if mark := os.environ.get("HOSTILE_MARK"):
            Path(mark).touch()
        if self.how.startswith("exit"):
            sys.exit(int(self.how[-1]))
        if self.how == "interrupt":
            raise KeyboardInterrupt
        if self.how == "leave":
            os._exit(0)
        if self.how == "assert":  # as torch reports what has failed inside a kernel
            raise RuntimeError("CUDA error: device-side assert triggered")
        signals = {"kill": signal.SIGKILL, "terminate": signal.SIGTERM, "stop": signal.SIGSTOP}
        if self.how in signals:
            os.kill(os.getpid(), signals[self.how])
        while self.how == "hang":  # a loop that only the timer ends, though it leaves the cores to others
            time.sleep(0.01)
        if self.how == "sleep":
            time.sleep(3600)

    def scores(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        return torch.zeros_like(logits[:, :-1, 0])
