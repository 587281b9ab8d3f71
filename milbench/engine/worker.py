"""The worker: runs one cell in this process, under the lock of its folder."""

import faulthandler
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from milbench._utils import locks
from milbench._utils.process import STOPPING, TERMINAL_SIGNALS, process_as_before
from milbench._version import __version__
from milbench.api.plan import Cell
from milbench.engine.cell import CellFolder, State
from milbench.engine.spec import Execution
from milbench.errors import UsageError, disk_failure, message
from milbench.plugins.late import LateImports
from milbench.plugins.planned import keep_planned
from milbench.plugins.record import ImportRecord

_ONE_CELL = threading.Lock()
"""Held while a cell is computed: workers of dask may have threads, and torch's generators belong to the process."""
LIBRARIES = (
    "torch",
    "torchvision",
    "numpy",
    "scikit-learn",
)  # distributions whose versions are recorded


@dataclass(frozen=True)
class Job:
    """One cell to compute, in plain data that can be sent to another process."""

    cell: Cell
    label: str  # the name of the cell, with the settings in which cells of its comparison differ
    folder: CellFolder
    execution: Execution
    threads: int  # of PyTorch
    devices: Sequence[
        str
    ]  # the worker takes a free one; on a cluster they are as the user gave them, such as ["auto"]
    slots: int  # how many cells may be computed on a GPU at once
    is_draw: bool = False  # of a search, for which validation bags choose
    is_foreign: bool = False  # whether its loss, task or network is not milbench's own
    local: tuple[tuple[str, Any], ...] = ()
    """Kind, and class (or function), of plug-ins that no file or module holds."""
    records: Mapping[str, ImportRecord] = field(default_factory=dict)
    """Kind -> what the import of the plug-in brought in when the cell was planned."""


def run_cell(job: Job) -> tuple[str, State]:
    """Train and evaluate the cell of a job; return its id and its state, which an error of a plug-in is recorded in."""
    try:
        with _ONE_CELL, job.folder.lock() as acquired:
            if not acquired:
                state = State("running", "another process is computing this cell")
            elif job.folder.state(weights=True).status == "done":
                state = State("done")
            else:
                with free_device(job.devices, job.slots) as device:
                    state = train_cell(job, job.folder, device)
    except (
        OSError,
        UsageError,
    ) as error:  # a disk that is full, or has no locks: nothing is recorded
        state = State("missing", disk_failure(error) or str(error))
    return job.cell.id, state


def train_cell(job: Job, folder: CellFolder, device: str) -> State:
    """Train the cell on a device, such as "cuda:0"; record the result or the error in its folder; return its state."""
    import torch

    from milbench.engine.train import train

    begun = time.time()
    set_torch_defaults(job.threads, tf32=job.cell.recipe["precision"] == "tf32")
    register(job)
    folder.begin(job.cell, job.label, provenance(device))
    output = nullcontext() if job.execution.in_process else _output_to(folder.output)
    try:
        torch.set_flush_denormal(
            not job.execution.in_process
        )  # gradients below 1e-38 make some CPUs ten times slower
        late_imports = LateImports(job.records, job.cell.plugin_files)
        with (
            process_as_before(),
            output,
            _time_limit(job.execution.timeout, folder.hang),
            late_imports.watched(),
        ):
            by_work = job.execution.threads is None
            result = train(
                job.cell,
                folder,
                torch.device(device),
                job.execution.data_dir,
                threads_by_work=by_work,
            )
        result |= {"seconds": time.time() - begun, "finished": time.time()}
        late = late_imports.found()
        if late:
            result["imported_later"] = late
        folder.finish(result)
    except BaseException as error:  # SystemExit and KeyboardInterrupt of a plug-in too
        if isinstance(error, KeyboardInterrupt) and job.execution.in_process:
            raise  # Ctrl-C
        if failure := disk_failure(error) or disk_failure(error.__cause__):
            return State(
                "missing", failure
            )  # the checkpoint stays, from which the same command goes on
        folder.fail(describe_error(error, job), "".join(traceback.format_exception(error)))
        if not isinstance(
            error, UsageError
        ):  # other data or code, for which the checkpoint is not to blame
            folder.checkpoint.unlink(missing_ok=True)  # it would fail again from there
        if "CUDA error" in message(error) and not job.execution.in_process:
            os._exit(
                1
            )  # after a failed assertion on the GPU every later call of CUDA by this process fails as well
        return State("failed", describe_error(error, job))
    finally:
        set_torch_defaults(job.threads)
    return State("done")


def provenance(device: str) -> dict[str, str]:
    """Return the code, the machine and the libraries that compute a cell on a device, such as "cpu" or "cuda:0"."""
    from milbench._utils.devices import device_name, processor

    return {
        "version": __version__, "code": code_version(),
        "python": platform.python_version(), "platform": platform.platform(), "host": platform.node(),
        "machine": processor(), "device": device, "device_name": device_name(device), "pid": str(os.getpid()),
        **{f"library.{name}": metadata.version(name) for name in LIBRARIES},
    }  # fmt: skip


@cache  # of the code that this process has imported, when it is asked for the first time
def code_version() -> str:
    """Return the git revision of the code, and whether its files differ from it; "" outside a checkout of milbench."""
    package = Path(__file__).resolve().parents[1]

    def git(*words: str) -> str:
        command = ["git", "-C", str(package), *words]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=20, check=True
        ).stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")).resolve() != package.parent:
            return ""  # installed into the checkout of another project, whose revision is not that of this code
        dirty = git("status", "--porcelain", "--", ":/milbench", ":/losses", ":/tasks")
        return git("rev-parse", "HEAD") + " with changes" * bool(dirty)
    except (OSError, subprocess.SubprocessError):
        return ""


def register(job: Job) -> None:
    """Let this process know the plug-ins of a cell: their records, and classes of notebooks."""
    from milbench.api.resolver import add_object
    from milbench.networks.registry import registries

    local = dict(job.local)
    for kind, record in job.records.items():
        if kind in local:
            add_object(registries()[kind], local[kind], record)
        elif not job.execution.in_process:
            reference = getattr(job.cell, f"{kind}_file") or getattr(job.cell, kind)
            keep_planned(kind, reference, record)


def set_torch_defaults(threads: int, *, tf32: bool = False) -> None:
    """Restore the settings with which torch starts: they belong to the process, and a plug-in may have changed them."""
    import torch

    torch.set_default_device(None)
    torch.set_default_dtype(torch.float32)
    torch.set_grad_enabled(True)
    torch.autograd.set_detect_anomaly(False)
    torch.use_deterministic_algorithms(False)
    torch.set_flush_denormal(False)
    torch.set_num_threads(threads)
    torch.backends.cudnn.benchmark = torch.backends.cudnn.deterministic = False
    # TF32 reads 11 significant bits of a float32 number: what is called float32 is computed in float32.
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = tf32


@contextmanager
def free_device(devices: Sequence[str], slots: int) -> Iterator[str]:
    """Hold a slot of a device for the block, a lock that all processes of a user share; of the CPU there are none."""
    from milbench._utils.devices import resolve_all

    devices = [
        d for name in devices for d in (resolve_all(name) if name in ("auto", "cuda") else [name])
    ]
    if devices == ["cpu"]:
        yield "cpu"
        return
    folder = Path(tempfile.gettempdir()) / f"milbench-devices-{os.getuid()}"
    names = [
        (f"{device.replace(':', '-')}.{slot}.lock", device)
        for slot in range(slots)
        for device in devices
    ]
    while True:
        for name, device in names:
            with locks.try_lock(folder / name) as acquired:
                if acquired:
                    if device.startswith("cuda:"):
                        import torch

                        torch.cuda.set_device(device)  # also for what a plug-in puts on "cuda"
                    yield device
                    return
        time.sleep(0.1)


@contextmanager
def _time_limit(seconds: float | None, trace: Path) -> Iterator[None]:
    """End this process if the block takes longer, and write its traceback to a file."""
    if seconds is None:
        yield
        return
    with trace.open(
        "w"
    ) as file:  # of a timer that needs neither Python's lock nor a free interpreter
        faulthandler.dump_traceback_later(seconds, exit=True, file=file)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()
    trace.unlink(missing_ok=True)


@contextmanager
def _output_to(path: Path) -> Iterator[None]:
    """Write what this process prints to a file, which stays where there is anything."""
    kept = {number: os.dup(number) for number in (1, 2)}
    try:
        with path.open("ab") as file:
            for number in kept:
                os.dup2(file.fileno(), number)
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # of whatever a plug-in has put in its place
                stream.flush()
        for number, before in kept.items():
            os.dup2(before, number)
            os.close(before)
        if path.exists() and not path.stat().st_size:
            path.unlink()


def follow_launcher(launcher: int) -> None:
    """Print nothing, leave the signals of a terminal to the launching process, and end as soon as that has ended."""
    for number in TERMINAL_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
    with Path(os.devnull).open("wb") as nowhere:
        for stream in (1, 2):
            os.dup2(nowhere.fileno(), stream)

    def watch() -> None:
        while os.getppid() == launcher:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def record_death(job: Job, cause: str) -> tuple[str, State]:
    """Record why the process of a cell died, the cause being such as an exit code; return the cell's id and state."""
    folder = job.folder
    if reason := folder.failure():  # it lost its GPU and ended itself
        return job.cell.id, State("failed", reason)
    trace = folder.hang.read_text("utf-8", "replace") if folder.timed_out else ""
    if trace:
        frames = re.findall(
            r'File "(.+)", line (\d+) in', trace.rpartition("Thread 0x")[2]
        )  # the main thread is last
        plugin_frames = [frame for frame in frames if frame[0] in job.cell.plugin_files]
        place = "".join(
            f", in {Path(file).name}:{line}" for file, line in (plugin_frames or frames)[:1]
        )
        reason = f"it took longer than {job.execution.timeout:g} seconds{place}"
    else:
        reason = f"the process died ({cause}), perhaps out of memory"
    folder.fail(reason, trace)
    folder.checkpoint.unlink(missing_ok=True)
    return job.cell.id, State("failed", reason)


def describe_error(error: BaseException, job: Job) -> str:
    """Describe an error in one line: its type, its message and the place in the plug-in that raised it."""
    text = f"{type(error).__name__}: {' '.join(message(error).split())}".removesuffix(": ")
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, UsageError) or not frames:
        return text
    plugin_frames = [frame for frame in frames if frame.filename in job.cell.plugin_files]
    frame = (plugin_frames or frames)[-1]
    # Of torch's allocators on a GPU and on Linux, and of NVIDIA's libraries.
    signs = ("out of memory", "can't allocate memory", "not enough memory", "_STATUS_ALLOC_FAILED")
    small = isinstance(error, MemoryError) or any(sign in text for sign in signs)
    advice = (
        "; smaller batches need less memory: see the parameters of the task, such as task.batch_bags"
        * small
    )
    return f"{text} ({Path(frame.filename).name}:{frame.lineno}){advice}"
