"""Functions that the benchmarks share: options, seconds, bytes of tensors, and printed tables."""

import sys
import time
import weakref
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd
import torch
import typer
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from milbench.errors import UsageError

ThreadsOption = Annotated[
    int, typer.Option("--threads", min=1, help="Threads of PyTorch on the CPU.")
]
QuickOption = Annotated[
    bool, typer.Option("--quick", help="Repeat less, and leave out what is largest.")
]


def start(benchmark: Callable[..., None]) -> None:
    """Call a benchmark with the options of the command line.

    A mistake in the options ends the program with one line.
    """
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command()(benchmark)
    try:
        app()
    except UsageError as error:
        sys.exit(f"{error}")


def show(frame: pd.DataFrame, title: str, explanation: str = "") -> None:
    """Print a table with three significant digits, without exponents.

    A value that was not measured is left empty.
    """
    table = frame.to_string(index=False, na_rep="", float_format=_rounded)
    typer.echo(f"{title}\n\n{table}\n{explanation}")


def _rounded(value: float) -> str:
    three_digits = f"{value:.3g}"
    if value < 100:
        return three_digits
    # The format above would have an exponent from 1,000 on.
    return f"{float(three_digits):,.0f}"


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
                self._remember(tensor, counted=False)
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                self._remember(tensor, counted=True)
        return result

    def _remember(self, tensor: torch.Tensor, *, counted: bool) -> None:
        """Count the storage of a tensor, if it is new.

        A storage that existed before is remembered with a size of 0 (`counted` is False).
        """
        storage = tensor.untyped_storage()
        key = id(storage)
        if key in self._known:
            return
        size = storage.nbytes() if counted else 0
        self.live += size
        self.peak = max(self.peak, self.live)
        self._known[key] = weakref.finalize(storage, self._forget, key, size)

    def _forget(self, key: int, size: int) -> None:
        """Subtract a storage that is freed."""
        self.live -= size
        self._known.pop(key, None)

    def close(self) -> None:
        """Forget all storages: those that are freed later are not subtracted."""
        for finalizer in self._known.values():
            finalizer.detach()


def peak_bytes(fn: Callable[[], object]) -> int:
    """Return how many bytes the tensors created inside `fn()` occupied at most at one time.

    Tensors that existed before do not count, nor does temporary memory inside a single operator.
    The number is the same on a CPU and on a GPU, as it does not depend on their allocators.
    """
    with _LiveBytes() as mode:
        result = fn()
    del result
    mode.close()
    return int(mode.peak)


class Timing(NamedTuple):
    """Seconds of repeated calls: the median, and the interquartile range."""

    median: float
    spread: float


def seconds_of(fn: Callable[[], object]) -> float:
    """Return how long a call takes until the accelerator has finished too."""
    synchronise()
    start = time.perf_counter()
    fn()
    synchronise()
    return time.perf_counter() - start


def paired_timings(fns: list[Callable[[], object]], repeats: int = 5) -> list[Timing]:
    """Return how long each function takes over `repeats` calls, after one call that is not counted.

    The functions are called in turn, so that other work on the machine slows all of them alike.
    Each measurement waits for the accelerator to finish.
    """
    taken: list[list[float]] = [[] for _ in fns]
    for turn in range(repeats + 1):
        for fn, times in zip(fns, taken, strict=True):
            seconds = seconds_of(fn)
            if turn:
                times.append(seconds)
    quartiles = (np.quantile(times, [0.25, 0.5, 0.75]).tolist() for times in taken)
    return [Timing(median, high - low) for low, median, high in quartiles]


def synchronise() -> None:
    """Wait for the accelerator, where one has been used."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()
