"""The costs of a cell: the time of a training step and of the loss alone, and memory."""

import re
import resource
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median

import torch
from torch import Tensor

from milbench.contracts.bags import Bags
from milbench.contracts.criterion import bag_losses
from milbench.contracts.loss import Loss
from milbench.store.cell_folder import Row

FEWEST_CALLS = 7
"""How often the loss alone is computed, at least."""
LEAST_SECONDS = 0.1
"""For how many seconds the loss alone is computed, at least."""


def costs_of(
    history: Sequence[Row], loss: Loss, logits: Tensor, bags: Bags, target: Tensor | None
) -> dict[str, float]:
    """Return the costs of a trained cell; logits (B, C+1, *positions) and target are those of a training batch.

    Seconds of a step (median of epochs, and the least), of the loss forward and backward on a batch
    (median of calls, and the least, which other work on the machine disturbs least) and of the
    training; peak bytes.
    """
    logits = logits.detach().requires_grad_()

    def forward_and_backward() -> float:
        start = time.perf_counter()
        values = bag_losses(loss, logits, bags.labels, bags.mask, target, check_values=False)
        value = values.mean()
        torch.autograd.grad(value, [logits, *loss.parameters()], allow_unused=True)
        if logits.device.type == "cuda":
            torch.cuda.synchronize(logits.device)
        return time.perf_counter() - start

    # The first call also prepares what the others use, so it is not counted.
    forward_and_backward()
    calls: list[float] = []
    while len(calls) < FEWEST_CALLS or sum(calls) < LEAST_SECONDS:
        calls.append(forward_and_backward())
    steps = [value for _, metric, value in history if metric == "cost/step_seconds"]
    epochs = [value for _, metric, value in history if metric == "cost/train_seconds"]
    return {
        "step_seconds": median(steps),
        "step_seconds_min": min(steps),
        "loss_seconds": median(calls),
        "loss_seconds_min": min(calls),
        "train_seconds": sum(epochs),
        "peak_bytes": memory_peak(logits.device),
    }


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
        peak = re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())
        if peak:
            return 1024.0 * int(peak[1])
    peak_of_process = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # macOS counts bytes, other systems kilobytes.
    unit = 1 if sys.platform == "darwin" else 1024
    return float(peak_of_process * unit)
