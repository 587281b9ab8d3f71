"""The worker: computes one cell in this process, under the lock of its folder."""

from __future__ import annotations

import faulthandler
import os
import re
import signal
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from milbench._utils import locks
from milbench.api.plan import Cell
from milbench.api.registry import Registry
from milbench.engine.cell import CellFolder, State
from milbench.engine.spec import Execution
from milbench.errors import UsageError

_ONE_CELL = threading.Lock()
"""Held while a cell is computed: workers of dask may have threads, and torch's generators belong to the process."""


@dataclass(frozen=True)
class Job:
    """One cell to compute, in plain data that can be sent to another process."""

    cell: Cell
    label: str  # the cell in words, with what sets it apart from others of its comparison
    folder: CellFolder
    how: Execution
    threads: int  # of PyTorch
    devices: Sequence[str]  # of which the worker takes a free one; of a cluster what the user said, such as ["auto"]
    slots: int  # how many cells may be computed on a GPU at once
    local: tuple[tuple[str, Any], ...] = ()  # kind and class or function that no file or module holds


def compute(job: Job) -> tuple[str, State]:
    """Train and evaluate the cell of a job; return its id, and what has become of it.

    Whatever a plug-in raises is kept in the folder and is the reason of the state.
    """
    try:
        with _ONE_CELL, job.folder.lock() as mine:
            if not mine:
                state = State("running", "another process is computing this cell")
            elif job.folder.is_done:
                state = State("done")
            else:
                with free_device(job.devices, job.slots) as device:
                    state = _compute(job, job.folder, device)
    except UsageError as error:  # a file system without locks
        state = State("failed", str(error))
    except OSError as error:  # a disk that is full or read-only: there is no place for the reason either
        state = State("failed", f"cannot write {error.filename or job.folder.path}: {error.strerror}")
    return job.cell.id, state


def _compute(job: Job, folder: CellFolder, device: str) -> State:
    import torch

    from milbench.engine.provenance import provenance
    from milbench.engine.train import train

    begun = time.time()
    set_torch_defaults(job.threads)
    register(job.local)
    folder.begin(job.cell, job.label, provenance(device, job.threads))
    try:
        with _ended_after(job.how.timeout, folder.hang):
            by_work = job.how.threads is None
            result = train(job.cell, folder, torch.device(device), job.how.data_dir, threads_by_work=by_work)
        folder.finish(result | {"seconds": time.time() - begun, "finished": time.time()})
    except BaseException as error:  # SystemExit and KeyboardInterrupt of a plug-in too
        if isinstance(error, KeyboardInterrupt) and job.how.in_process:
            raise  # Ctrl-C
        folder.fail(reason_of(error, job), "".join(traceback.format_exception(error)))
        if not isinstance(error, UsageError):  # other data or code, for which the checkpoint is not to blame
            folder.checkpoint.unlink(missing_ok=True)  # it would fail again from there
        if "CUDA error" in str(error) and not job.how.in_process:
            os._exit(1)  # after a failed assertion on the GPU every later call of CUDA by this process fails as well
        return State("failed", reason_of(error, job))
    finally:
        set_torch_defaults(job.threads)
    return State("done")


def register(local: Sequence[tuple[str, Any]]) -> None:
    """Let the registries of this process know classes and functions that no file or module holds."""
    from milbench.api.registry import losses, tasks
    from milbench.api.resolver import add_object
    from milbench.networks.registry import networks

    registries: dict[str, Registry[Any]] = {"loss": losses(), "task": tasks(), "network": networks()}
    for kind, given in local:
        add_object(registries[kind], given, digest="of the launcher")


def set_torch_defaults(threads: int) -> None:
    """Set what belongs to the whole process as torch has it at the start: a plug-in may have changed it."""
    import torch

    torch.set_default_device(None)
    torch.set_default_dtype(torch.float32)
    torch.set_grad_enabled(True)
    torch.autograd.set_detect_anomaly(False)
    torch.use_deterministic_algorithms(False)
    torch.set_num_threads(threads)
    # TF32 reads 11 significant bits of a float32 number: what is called float32 is computed in float32.
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False


@contextmanager
def free_device(devices: Sequence[str], slots: int) -> Iterator[str]:
    """Hold one of the slots of the devices for the block: a lock each, which all processes of a user share.

    The CPU has no slots: as many cells share it as are computed at once.
    """
    from milbench._utils.devices import resolve_all

    devices = [d for given in devices for d in (resolve_all(given) if given in ("auto", "cuda") else [given])]
    if devices == ["cpu"]:
        yield "cpu"
        return
    place = Path(tempfile.gettempdir()) / f"milbench-devices-{os.getuid()}"
    names = [(f"{device.replace(':', '-')}.{slot}.lock", device) for slot in range(slots) for device in devices]
    while True:
        for name, device in names:
            with locks.try_lock(place / name) as mine:
                if mine:
                    if device.startswith("cuda:"):
                        import torch

                        torch.cuda.set_device(device)  # also for what a plug-in puts on "cuda"
                    yield device
                    return
        time.sleep(0.1)


@contextmanager
def _ended_after(seconds: float | None, trace: Path) -> Iterator[None]:
    """End this process if the block takes longer, and write where it was then to a file.

    The timer is faulthandler's, which needs neither Python's lock nor a free interpreter.
    """
    if seconds is None:
        yield
        return
    with trace.open("w") as file:
        faulthandler.dump_traceback_later(seconds, exit=True, file=file)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()
    trace.unlink(missing_ok=True)


def serve(launcher: int) -> None:
    """Make this process one of a launcher's: Ctrl-C is left to that, and where it ends, however that is, this one does.

    The next launch goes on with the cell.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it reaches every process of a group

    def watch() -> None:
        while os.getppid() == launcher:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def died(job: Job, how: str) -> tuple[str, State]:
    """Keep in the folder of a cell why its process has died, such as by an exit code; return id and state of it."""
    folder = job.folder
    trace = folder.hang.read_text("utf-8", "replace") if folder.timed_out else ""
    if trace:
        frames = re.findall(r'File "(.+)", line (\d+) in', trace.rpartition("Thread 0x")[2])  # the main thread is last
        of_plugin = [frame for frame in frames if frame[0] in job.cell.plugin_files]
        place = "".join(f", in {Path(file).name}:{line}" for file, line in (of_plugin or frames)[:1])
        reason = f"it took longer than {job.how.timeout:g} seconds{place}"
    else:
        reason = f"the process died ({how}), perhaps out of memory"
    folder.fail(reason, trace)
    folder.checkpoint.unlink(missing_ok=True)
    return job.cell.id, State("failed", reason)


def reason_of(error: BaseException, job: Job) -> str:
    """Return the type and the message of an error in one line, with the place in the plug-in where it was raised."""
    text = f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, UsageError) or not frames:
        return text
    of_plugin = [frame for frame in frames if frame.filename in job.cell.plugin_files]
    frame = (of_plugin or frames)[-1]
    # Of torch's allocators on a GPU and on Linux, and of NVIDIA's libraries.
    signs = ("out of memory", "can't allocate memory", "not enough memory", "_STATUS_ALLOC_FAILED")
    small = isinstance(error, MemoryError) or any(sign in text for sign in signs)
    advice = (
        "; smaller batches need less memory: see the parameters of the task, such as task.batch_bags" if small else ""
    )
    return f"{text} ({Path(frame.filename).name}:{frame.lineno}){advice}"
