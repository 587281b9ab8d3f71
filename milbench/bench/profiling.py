"""The costs of a computation: seconds, bytes of the tensors that are alive, and memory of the process or the GPU."""

from __future__ import annotations

import contextlib
import math
import sys
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

FEWEST_CALLS = 7
WINDOW = 0.1
"""How often and for how many seconds at least `timed` calls a function."""


class _LiveBytes(TorchDispatchMode):
    """Counts the bytes of the storages that operators return, until they are freed."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live: int = 0
        self.peak: int = 0
        self._known: dict[int, Any] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for tensor in tree_leaves((args, kwargs)):
            if isinstance(tensor, torch.Tensor):
                self._meet(tensor, counted=False)
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                self._meet(tensor, counted=True)
        return result

    def _meet(self, tensor: torch.Tensor, *, counted: bool) -> None:
        storage = tensor.untyped_storage()
        key = id(storage)
        if key in self._known:
            return
        size = storage.nbytes() if counted else 0
        self.live += size
        self.peak = max(self.peak, self.live)
        self._known[key] = weakref.finalize(storage, self._part, key, size)

    def _part(self, key: int, size: int) -> None:
        self.live -= size
        self._known.pop(key, None)

    def close(self) -> None:
        for finalizer in self._known.values():
            finalizer.detach()


def peak_bytes(fn: Callable[[], object]) -> int:
    """Return the most bytes that tensors created inside `fn()` occupied at one time, on any device.

    Tensors that existed before do not count, nor does temporary memory inside a single operator. The number is the same
    on a CPU and on a GPU, as it does not depend on their allocators.
    """
    with _LiveBytes() as mode:
        result = fn()
    del result
    mode.close()
    return int(mode.peak)


@dataclass(frozen=True)
class Timing:
    """How long repeated calls took, in seconds.

    Args:
        least: the shortest, which other work on the machine disturbs least.
        median: the median.
        spread: the width of the middle half.
    """

    least: float
    median: float
    spread: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Timing:
        """Return the summary of one duration or more."""
        low, middle, high = np.quantile(seconds, [0.25, 0.5, 0.75])
        return cls(min(seconds), float(middle), float(high - low))


def timed(fn: Callable[[], object]) -> Timing:
    """Return how long calls of `fn()` take, after one that is not counted: 7 calls or more, for 0.1 s or more."""
    fn()
    taken: list[float] = []
    begun = time.perf_counter()
    while len(taken) < FEWEST_CALLS or time.perf_counter() - begun < WINDOW:
        taken.append(seconds_of(fn))
    return Timing.of(taken)


def seconds_of(fn: Callable[[], object]) -> float:
    """Return how long a call takes until the accelerator has finished too."""
    synchronise()
    start = time.perf_counter()
    fn()
    synchronise()
    return time.perf_counter() - start


class OtherLoad:
    """Measures, from its making on, what share of the machine's cores other processes use."""

    def __init__(self) -> None:
        self._begun = self._now()

    @staticmethod
    def _now() -> tuple[float, float, float]:
        """Return the seconds that all cores were there for, that they worked, and that this process used them."""
        import psutil

        times = psutil.cpu_times()._asdict()
        # Linux counts the time of virtual machines twice, as that of users and as that of guests.
        total = sum(times.values()) - times.get("guest", 0.0) - times.get("guest_nice", 0.0)
        return total, total - times["idle"] - times.get("iowait", 0.0), time.process_time()

    def share(self) -> float:
        """Return the share, from 0 to 1; NaN after less than a twentieth of a second, which clocks cannot resolve."""
        import psutil

        total, busy, own = (now - then for now, then in zip(self._now(), self._begun, strict=True))
        if total < 0.05 * (psutil.cpu_count() or 1):
            return math.nan
        return min(max((busy - own) / total, 0.0), 1.0)


def paired_timings(fns: list[Callable[[], object]], repeats: int = 5) -> list[Timing]:
    """Return how long each function takes over `repeats` calls, after one call that is not counted.

    The functions are called in turn, so that other work on the machine slows all of them alike. Each measurement waits
    for the accelerator to finish.
    """
    taken: list[list[float]] = [[] for _ in fns]
    for turn in range(repeats + 1):
        for fn, times in zip(fns, taken, strict=True):
            seconds = seconds_of(fn)
            if turn:
                times.append(seconds)
    return [Timing.of(times) for times in taken]


def paired_seconds(fns: list[Callable[[], object]], repeats: int = 5) -> list[float]:
    """Return the medians of `paired_timings`."""
    return [timing.median for timing in paired_timings(fns, repeats)]


def synchronise() -> None:
    """Wait for the accelerator, where one has been used."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()


def reset_memory_peak(device: torch.device) -> None:
    """Restart the count of `memory_peak` where the system can, so that cells of one process are measured one by one."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    elif sys.platform == "linux":
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")


def memory_peak(device: torch.device) -> float:
    """Return the most bytes in use since `reset_memory_peak`.

    On a GPU these are the bytes that PyTorch has allocated there. On a CPU they are the resident memory of the process,
    counted from its start on systems other than Linux.
    """
    if device.type == "cuda":
        return float(torch.cuda.max_memory_allocated(device))
    if sys.platform == "linux":
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return 1024.0 * int(line.split()[1])
    return _peak_of_process()


def _peak_of_process() -> float:
    """Return the most resident bytes since the process was started."""
    try:
        import resource
    except ImportError:  # on Windows
        import psutil

        memory = psutil.Process().memory_info()
        return float(getattr(memory, "peak_wset", memory.rss))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(peak if sys.platform == "darwin" else 1024 * peak)
