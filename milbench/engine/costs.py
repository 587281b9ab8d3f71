"""The costs of a cell: the time of a training step and of the loss alone, and memory."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median

import torch
from torch import Tensor

from milbench.api.bags import Bags
from milbench.api.loss import Loss
from milbench.engine.cell import Row

FEWEST_CALLS, WINDOW = 7, 0.1
"""How often, and for how many seconds at least, the loss alone is computed."""


def costs_of(history: Sequence[Row], loss: Loss, logits: Tensor, bags: Bags, target: Tensor | None) -> dict[str, float]:
    """Return the costs of a trained cell; logits (B, C+1, *positions) and target are those of a training batch.

    Seconds of a step (median of epochs, and the least), of the loss forward and backward on a batch (median of calls,
    and the least, which other work on the machine disturbs least) and of the training; peak bytes.
    """
    logits = logits.detach().requires_grad_()
    loss.validate = False

    def forward_and_backward() -> None:
        value = loss(logits, bags.labels, bags.mask, target).mean()
        torch.autograd.grad(value, [logits, *loss.parameters()], allow_unused=True)

    steps = [value for _, metric, value in history if metric == "cost/step_seconds"]
    calls = _time_calls(forward_and_backward, logits.device)
    return {
        "step_seconds": median(steps),
        "step_seconds_min": min(steps),
        "loss_seconds": median(calls),
        "loss_seconds_min": min(calls),
        "train_seconds": sum(value for _, metric, value in history if metric == "cost/train_seconds"),
        "peak_bytes": memory_peak(logits.device),
    }


def _time_calls(compute: Callable[[], object], device: torch.device) -> list[float]:
    """Return how long calls take until a GPU has finished too, after one that is not counted."""

    def call() -> float:
        start = time.perf_counter()
        compute()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - start

    call()
    seconds: list[float] = []
    while len(seconds) < FEWEST_CALLS or sum(seconds) < WINDOW:
        seconds.append(call())
    return seconds


def reset_memory_peak(device: torch.device) -> None:
    """Restart the count of `memory_peak` where the system can, so that cells of one process are measured one by one."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    elif sys.platform == "linux":
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")


def memory_peak(device: torch.device) -> float:
    """Return the most bytes in use: of PyTorch on a GPU, of the resident process on a CPU, NaN if not known."""
    if device.type == "cuda":
        return float(torch.cuda.max_memory_allocated(device))
    if sys.platform == "linux":
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return 1024.0 * int(line.split()[1])
    try:
        import resource
    except ImportError:  # on Windows
        return float("nan")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(peak if sys.platform == "darwin" else 1024 * peak)
