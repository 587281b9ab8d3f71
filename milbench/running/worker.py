"""The worker: computes one cell in this process, and meanwhile holds the lock of its folder."""

import faulthandler
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from milbench._utils import locks
from milbench._utils.files import Unreadable
from milbench._utils.process import process_as_before
from milbench._version import __version__
from milbench.errors import UsageError, disk_failure, in_one_line, message
from milbench.experiment.cell import Cell
from milbench.experiment.launch_settings import Execution
from milbench.plugins.late import LateImports
from milbench.plugins.planned import keep_planned
from milbench.plugins.record import ImportRecord
from milbench.processes.fresh import ProcessDied, TookTooLong
from milbench.processes.host import announce_limit
from milbench.store.cell_folder import CellFolder, CellResult, Incomplete, State

LIBRARIES = ("torch", "torchvision", "numpy", "scikit-learn")
"""The packages whose versions are recorded with each cell."""

GRACE = 5.0
"""Seconds after the time limit of a cell at which its process is killed.

By then the process should have ended by itself.
"""

SIGNS_OF_LITTLE_MEMORY = (
    "out of memory",
    "can't allocate memory",
    "not enough memory",
    "_STATUS_ALLOC_FAILED",
)
"""Parts of the messages of PyTorch and of NVIDIA's libraries when memory runs out."""
ADVICE_ON_MEMORY = (
    "smaller batches need less memory: see the parameters of the task, such as task.batch_bags"
)


@dataclass(frozen=True)
class Job:
    """One cell to compute, as it is sent to the process that computes it."""

    cell: Cell
    label: str
    """The name of the cell, with the settings that differ between cells of its comparison."""
    folder: CellFolder
    execution: Execution
    threads: int
    """The threads of PyTorch."""
    devices: Sequence[str]
    """The devices. The worker takes a free one.

    On a cluster they are what the user typed, such as ["auto"]: each worker then finds the devices
    of its machine.
    """
    cells_per_gpu: int
    """How many cells may be computed on a GPU at once."""
    is_draw: bool = False
    """Whether the cell is a draw of a search, which chooses by validation bags."""
    notebook_plugins: tuple[tuple[str, Any], ...] = ()
    """The kind and the class (or function) of each plug-in that a notebook or script defines."""
    records: Mapping[str, ImportRecord] = field(default_factory=dict)
    """Kind of a plug-in -> what its import brought in when the cell was planned."""


def run_cell(job: Job) -> tuple[str, State]:
    """Compute the cell of a job and return its id and state.

    An error, such as one of a plug-in, is recorded in the folder of the cell.
    """
    try:
        state = _run_under_lock(job)
    except (OSError, UsageError) as error:
        # The disk is full or has no locks, so the error cannot be recorded in the folder.
        state = State("missing", disk_failure(error) or str(error))
    return job.cell.id, state


def _run_under_lock(job: Job) -> State:
    """Compute a cell unless another process does so, or it is done. Return its state."""
    with job.folder.lock() as acquired:
        if not acquired:
            return State("running", "another process is computing this cell")
        # Another launch may have finished the cell since this one was planned.
        state = job.folder.state(weights=True)
        if state.status in ("done", "unreadable"):
            return state
        with free_device(job.devices, job.cells_per_gpu) as device:
            return train_cell(job, job.folder, device)


def train_cell(job: Job, folder: CellFolder, device: str) -> State:
    """Train the cell on a device such as "cuda:0" and return its state.

    The result or the error is recorded in the folder of the cell.
    """
    set_torch_defaults(job.threads, tf32=job.cell.recipe.precision == "tf32")
    register_plugins(job)
    folder.begin(job.cell, job.label, provenance(device))
    # Not `time.time`, since the system clock may jump.
    start = time.monotonic()
    try:
        result = _train_here(job, folder, device)
        result["seconds"] = time.monotonic() - start
        result["finished"] = time.time()
        folder.finish(result)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and job.execution.in_process:
            # The user has pressed Ctrl-C.
            raise
        return _record_error(job, folder, error)
    return State("done")


def _train_here(job: Job, folder: CellFolder, device: str) -> CellResult:
    """Train in this process, and return what was measured.

    The process computes nothing else, unless the user wants cells in the launching process.
    """
    import torch

    from milbench.training.train import train

    in_process = job.execution.in_process
    # Numbers below 1e-38 make some CPUs ten times slower, so they are flushed to 0. The launching
    # process keeps them, since other code there may need them.
    torch.set_flush_denormal(not in_process)
    output = nullcontext() if in_process else _output_to(folder.output)
    late_imports = LateImports(job.records, job.cell.plugin_files)
    with (
        process_as_before(),
        output,
        _time_limit(job.execution.timeout, folder.hang),
        late_imports.watched(),
    ):
        result = train(
            job.cell,
            folder,
            torch.device(device),
            job.execution.data_dir,
            one_thread_if_small=job.execution.threads is None,
        )
    late = late_imports.found()
    if late:
        result["imported_later"] = late
    return result


def _record_error(job: Job, folder: CellFolder, error: BaseException) -> State:
    """Record why a cell failed, and return its state.

    A full disk, or a file that was removed or cannot be read, does not make the cell failed: the
    same command goes on.
    """
    if isinstance(error, Unreadable):
        return State("unreadable", f"not readable: {error}; it is left alone")
    was_removed = isinstance(error, FileNotFoundError) and not folder.is_described()
    if isinstance(error, Incomplete) or was_removed:
        # What is left of the cell is of no use: without its history it can never be finished.
        folder.start_anew()
        why = error if isinstance(error, Incomplete) else "its folder was removed meanwhile"
        return State("missing", f"not finished: {why}; the same milbench run computes it again")
    failure = disk_failure(error) or disk_failure(error.__cause__)
    if failure:
        return State("missing", failure)
    reason = describe_error(error, job)
    folder.fail(reason, "".join(traceback.format_exception(error)))
    # If the cell went on from its checkpoint, it would fail again. A UsageError is different: the
    # user can mend data or code and go on.
    if not isinstance(error, UsageError):
        folder.checkpoint.unlink(missing_ok=True)
    return State("failed", reason)


def provenance(device: str) -> dict[str, str]:
    """Return which code, machine and libraries compute a cell on a device such as "cuda:0"."""
    from milbench._utils.devices import device_name, processor

    libraries = {f"library.{name}": metadata.version(name) for name in LIBRARIES}
    return {
        "version": __version__,
        "code": code_version(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "host": platform.node(),
        "machine": processor(),
        "device": device,
        "device_name": device_name(device),
        "pid": str(os.getpid()),
        **libraries,
    }


@cache
def code_version() -> str:
    """Return the git revision of the code, and whether its files differ from the revision.

    It is "" outside a checkout of milbench. The answer of the first call is kept, since later edits
    do not change the code that this process has imported.
    """
    package = Path(__file__).resolve().parents[1]

    def git(*words: str) -> str:
        command = ["git", "-C", str(package), *words]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
        return ran.stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")).resolve() != package.parent:
            # milbench is installed into the checkout of another project.
            return ""
        changed_files = git("status", "--porcelain", "--", ":/milbench", ":/losses", ":/tasks")
        revision = git("rev-parse", "HEAD")
        return f"{revision} with changes" if changed_files else revision
    except (OSError, subprocess.SubprocessError):
        return ""


def register_plugins(job: Job) -> None:
    """Make the plug-ins of a cell known in this process.

    The job brings the classes that a notebook defines, and the records of imports.
    """
    from milbench.contracts.resolver import add_object
    from milbench.networks.known_networks import registries

    of_notebook = dict(job.notebook_plugins)
    for kind, record in job.records.items():
        if kind in of_notebook:
            add_object(registries()[kind], of_notebook[kind], record)
        elif not job.execution.in_process:
            keep_planned(kind, job.cell.choices[kind].reference, record)


def set_torch_defaults(threads: int, *, tf32: bool = False) -> None:
    """Give PyTorch the settings that all cells share, whatever was set in this process before."""
    import torch

    torch.set_default_device(None)
    torch.set_default_dtype(torch.float32)
    torch.set_grad_enabled(True)
    torch.autograd.set_detect_anomaly(False)
    # Only if it is on: setting it imports PyTorch's compiler, which takes more than a second.
    if torch.are_deterministic_algorithms_enabled():
        torch.use_deterministic_algorithms(False)
    torch.set_flush_denormal(False)
    torch.set_num_threads(threads)
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = False
    # TF32 uses only 11 significant bits of a float32 number, so a cell gets it only by its recipe.
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = tf32


@contextmanager
def free_device(names: Sequence[str], cells_per_gpu: int) -> Iterator[str]:
    """Wait until one of the devices is free for a further cell, and hold it for the block.

    A GPU has `cells_per_gpu` slots, which are lock files that all processes of a user share. A CPU
    has no slots, so nobody waits for it.
    """
    devices = _devices_of_this_machine(names)
    if devices == ["cpu"]:
        yield "cpu"
        return
    folder = Path(tempfile.gettempdir()) / f"milbench-devices-{os.getuid()}"
    while True:
        # The first slots of all devices are tried before their second slots, so that cells spread
        # over the devices.
        for slot in range(cells_per_gpu):
            for device in devices:
                lock = folder / f"{device.replace(':', '-')}.{slot}.lock"
                with locks.try_lock(lock) as acquired:
                    if acquired:
                        _make_current(device)
                        yield device
                        return
        time.sleep(0.1)


def _devices_of_this_machine(names: Sequence[str]) -> list[str]:
    """Return the devices that names such as "auto" stand for on this machine."""
    from milbench._utils.devices import resolve_all

    devices: list[str] = []
    for name in names:
        if name in ("auto", "cuda"):
            devices += resolve_all(name)
        else:
            devices.append(name)
    return devices


def _make_current(device: str) -> None:
    """Make "cuda" mean this GPU in this process, since a plug-in may use that name."""
    if device.startswith("cuda:"):
        import torch

        torch.cuda.set_device(device)


@contextmanager
def _time_limit(seconds: float | None, trace: Path) -> Iterator[None]:
    """End this process, with a traceback in a file, if the block takes longer than `seconds`."""
    if seconds is None:
        yield
        return
    with trace.open("w") as file:
        # faulthandler's timer fires even while another thread holds Python's global lock.
        faulthandler.dump_traceback_later(seconds, exit=True, file=file)
        # The timer does not help if the process is stopped or a plug-in cancels the timer. So the
        # host, which started this process, kills it a little later.
        announce_limit(seconds + GRACE)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()
    trace.unlink(missing_ok=True)


@contextmanager
def _output_to(path: Path) -> Iterator[None]:
    """Write what this process prints from now on to a file, which is removed if it stays empty."""
    with path.open("ab") as file:
        # Libraries in C print to file descriptors, not to sys.stdout. Descriptor 1 is standard
        # output, and 2 is standard error.
        for descriptor in (1, 2):
            os.dup2(file.fileno(), descriptor)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            # A plug-in may have replaced the stream by an object without `flush`.
            with suppress(Exception):
                stream.flush()
        if path.exists() and not path.stat().st_size:
            path.unlink()


def record_death(job: Job, death: ProcessDied) -> tuple[str, State]:
    """Record how the process of a cell died, and return the cell's id and state."""
    folder = job.folder
    reason = folder.failure()
    if reason:
        # The cell recorded an error before its process died.
        return job.cell.id, State("failed", reason)
    trace = folder.hang.read_text("utf-8", "replace") if folder.timed_out else ""
    if trace or isinstance(death, TookTooLong):
        line = _last_line(trace, job.cell.plugin_files)
        reason = f"it took longer than {job.execution.timeout:g} seconds{line}"
    else:
        reason = f"its process died: {death}"
        if "SIGKILL" in str(death):
            reason += ", perhaps because memory ran out"
    folder.fail(reason, trace)
    folder.checkpoint.unlink(missing_ok=True)
    return job.cell.id, State("failed", reason)


def _last_line(trace: str, plugin_files: Collection[str]) -> str:
    """Return, as ", in FILE:LINE", which line the main thread was running by a traceback.

    The traceback is one of faulthandler. If the thread was inside a plug-in, the line is the
    innermost one of the plug-in. For an empty traceback the text is "".
    """
    # faulthandler writes the main thread last, and the innermost frame of a thread first.
    main_thread = trace.rpartition("Thread 0x")[2]
    frames = re.findall(r'File "(.+)", line (\d+) in', main_thread)
    plugin_frames = [(file, line) for file, line in frames if file in plugin_files]
    innermost = plugin_frames or frames
    if not innermost:
        return ""
    file, line = innermost[0]
    return f", in {Path(file).name}:{line}"


def describe_error(error: BaseException, job: Job) -> str:
    """Describe an error in one line: its type, its message and the line that raised it.

    If code of a plug-in was running, the line is the innermost one of the plug-in.
    """
    text = f"{type(error).__name__}: {in_one_line(message(error))}".removesuffix(": ")
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, UsageError) or not frames:
        return text
    plugin_frames = [frame for frame in frames if frame.filename in job.cell.plugin_files]
    frame = (plugin_frames or frames)[-1]
    described = f"{text} ({Path(frame.filename).name}:{frame.lineno})"
    if isinstance(error, MemoryError) or any(sign in text for sign in SIGNS_OF_LITTLE_MEMORY):
        described += f"; {ADVICE_ON_MEMORY}"
    return described
