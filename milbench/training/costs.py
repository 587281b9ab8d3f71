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
"""The loss alone is computed at least this often."""
LEAST_SECONDS = 0.1
"""The loss alone is computed for at least this number of seconds."""


def costs_of(
    history: Sequence[Row], loss: Loss, logits: Tensor, bags: Bags, target: Tensor | None
) -> dict[str, float]:
    """Return the costs of a trained cell by name.

    Args:
        history: the metrics of all epochs, with the seconds of training.
        loss: the loss of the cell.
        logits: (B, C+1, *positions), of a training batch of B bags.
        bags: that batch.
        target: what the loss learns from in that batch, None if it only needs the label sets.

    Returns:
        - "step_seconds", "step_seconds_min": the seconds of a training step; the median and the
          least of all epochs.
        - "loss_seconds", "loss_seconds_min": the seconds of the loss and its gradient on the batch;
          the median and the least of all calls. Other work on the machine changes the least value
          least.
        - "train_seconds": the seconds of the whole training.
        - "peak_bytes": the memory, see `memory_peak`.
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

    # The first call also prepares what later calls use, so it is not counted.
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
    """Let `memory_peak` count from now on, so that cells of one process are measured one by one.

    On some systems this is not possible, and nothing happens.
    """
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    elif sys.platform == "linux":
        # Linux sets VmHWM, which `memory_peak` reads, to the present size of the process.
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")


def memory_peak(device: torch.device) -> float:
    """Return the largest memory so far, in bytes.

    On a GPU it is the memory that PyTorch has allocated, and on a CPU the memory of the process.
    """
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
