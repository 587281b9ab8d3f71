"""The worker: computes one cell in this process and logs it to the store."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import platform
import re
import shutil
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from milbench._utils import locks
from milbench._utils.interrupts import STOPPING
from milbench.api.plan import Cell
from milbench.engine.callback import Callback, Stopped
from milbench.errors import StoreAwayError, StoreError, UsageError, store_failure
from milbench.store.artifacts import TRACEBACK
from milbench.store.progress import Progress
from milbench.store.records import DECODED_BY, MICRO_BATCH, RESUMED, STARTED_OVER, CellRun
from milbench.store.spool import patiently
from milbench.store.workspace import Workspace

if TYPE_CHECKING:
    from milbench.engine.trainer import TrainedCell
    from milbench.store.writer import StoreWriter

T = TypeVar("T")
_ONE_CELL = threading.Lock()
"""Held while a cell is computed: torch's generators and number of threads belong to the whole process."""
_ORPHANED = threading.Event()
"""Set when the launcher of this worker process has ended."""
_GPU_LOST = threading.Event()
"""Set when this process of a cluster can use its GPU no more."""


@dataclass(frozen=True)
class Job:
    """One cell to compute, in plain data that can be sent to another process.

    Args:
        cell: what to compute.
        comparison: the name of the comparison that it is part of.
        launch: id of the launch's run in the store.
        workspace: the path of the workspace.
        tracking_uri: the address of the store; None: what the workspace and the environment say.
        device: such as "cpu" or "cuda:0".
        threads: how many threads PyTorch uses.
        data_dir: the folder of the data; None: the default one.
        again: whether to compute the cell anew even if it is done or was interrupted.
        timeout: seconds after which the process is ended; None: never.
        log_model: whether the network is logged as an MLflow model as well.
        is_child: whether a process of its own computes the cell, which ends with the launcher.
    """

    cell: Cell
    comparison: str
    launch: str
    workspace: str
    tracking_uri: str | None
    device: str
    threads: int
    data_dir: str | None
    again: bool = False
    timeout: float | None = None
    log_model: bool = False
    is_child: bool = False


@dataclass(frozen=True)
class JobResult:
    """The result of a job.

    Args:
        cell_id: of the cell.
        status: done, failed, stopped (the next launch continues it) or elsewhere (another process is computing it).
        reason: one line, why it is not done; "" where it was stopped because the launch was.
        metrics: of the last epoch; None where they were not computed just now.
        run_id: of the run that holds the results, "" if there is none.
    """

    cell_id: str
    status: str
    reason: str = ""
    metrics: dict[str, float] | None = None
    run_id: str = ""


def compute_cell(job: Job) -> JobResult:
    """Train and evaluate the cell of a job. Whatever a plug-in raises is logged and part of the result.

    Raises:
        KeyboardInterrupt: the user stopped a launch that computes in this very process for the second time.
    """
    _leave_signals_to_the_launcher(job)
    workspace = Workspace(Path(job.workspace))
    if (job.tracking_uri or "").startswith("sqlite:") and not workspace.lock(job.launch).exists():
        reason = f"worker {platform.node()} does not see the folder {job.workspace} of the launcher"
        return JobResult(job.cell.id, "failed", reason)
    with _ONE_CELL:
        try:
            with locks.try_lock(workspace.lock(job.cell.id)) as mine:
                if not mine:
                    return JobResult(job.cell.id, "elsewhere", "another process is computing this cell")
                if late := too_late(job, workspace):  # in another worker of a cluster, which was ended for it
                    return JobResult(job.cell.id, "failed", late)
                with _ended_after(job.timeout, workspace.hang(job.cell.id)):
                    return _Computation(job, workspace).result()
        except Exception as error:  # noqa: BLE001 no plug-in's: the cell's run could not be opened or closed
            if failure := store_failure(error):
                return JobResult(job.cell.id, "stopped", failure)
            return JobResult(job.cell.id, "failed", _reason(error, job))


def compute_in_cluster(job: Job) -> JobResult:
    """Compute a cell as `compute_cell` does, in a process that dask has started.

    A process that has lost its GPU ends when it gets the next cell: dask starts another one and gives it the cell.
    """
    if _GPU_LOST.is_set():
        os._exit(1)
    result = compute_cell(job)
    if has_lost_its_gpu(result):
        _GPU_LOST.set()
    return result


def has_lost_its_gpu(result: JobResult) -> bool:
    """Return whether a cell failed by an error, such as a failed assertion on the GPU, that ends a process's use of it.

    Every later call of CUDA by the process fails as well, whatever it is asked for.
    """
    return result.status == "failed" and "CUDA error" in result.reason


@lru_cache(maxsize=1)
def end_with_the_launcher() -> None:
    """Let this worker process end when its launcher has ended, however that was, between two cells."""
    # A worker that is forked is a child of the process that forks all workers, which outlives the launcher with them.
    launcher, parent = multiprocessing.parent_process(), os.getppid()

    def watch() -> None:
        if launcher is not None:
            launcher.join()
        while launcher is None and os.getppid() == parent:
            time.sleep(1)
        _ORPHANED.set()
        with _ONE_CELL:
            os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


def check_worker(workspace: str, tracking_uri: str, token: str) -> str:
    """Return "" if this process can reach the store, or in one line why not.

    Args:
        workspace: the path of the workspace.
        tracking_uri: the address of the store.
        token: the name of a file that the launcher has put among the workspace's checkpoints.
    """
    try:
        place = Workspace(Path(workspace))
        if tracking_uri.startswith("sqlite:") and not (place.checkpoints / token).exists():
            return f"it does not see the folder {workspace} of the launcher, and the store is a file in it"
        _opened(workspace, tracking_uri, os.getpid())
    except Exception as error:  # noqa: BLE001 whatever it is, the user wants to know before cells are computed
        return _reason(error)
    return ""


def too_late(job: Job, workspace: Workspace) -> str:
    """Return why a process that computed the cell was ended by the timer of `compute_cell`, "" if none was."""
    trace = workspace.hang(job.cell.id)
    if job.timeout is None or not trace.exists() or not (text := trace.read_text("utf-8", "replace")):
        return ""
    frames = re.findall(r'File "(.+)", line (\d+) in', text.rpartition("Thread 0x")[2])  # the main thread comes last
    mine = [frame for frame in frames if frame[0] in (job.cell.loss_file, job.cell.task_file)]
    place = "".join(f", in {Path(file).name}:{line}" for file, line in (mine or frames)[:1])
    return f"it took longer than --timeout {job.timeout:g} seconds{place}"


class _Computation:
    """One cell that is computed, under its lock."""

    def __init__(self, job: Job, workspace: Workspace) -> None:
        self.job, self.workspace = job, workspace
        self.checkpoint = workspace.checkpoint(job.cell.id)
        self.progress = workspace.progress(job.cell.id)
        self.store = self._patiently(lambda: _opened(job.workspace, job.tracking_uri, os.getpid()))

    def result(self) -> JobResult:
        """Compute the cell unless it is done."""
        known, is_own = self._patiently(self._known)
        if known and known.status == "done" and not self.job.again:
            return JobResult(self.job.cell.id, "done", run_id=known.run_id)
        if known and known.status == "running" and not is_own:
            return JobResult(self.job.cell.id, "elsewhere", "another machine is computing this cell")
        if self.job.again:  # only what this very launch has begun is continued
            interrupted = self._patiently(lambda: self.store.unfinished_run(self.job.cell.id, self.job.launch))
        else:
            # This process holds the lock: a run of this workspace that looks as if it were running is interrupted.
            interrupted = known.run_id if known and known.status in ("interrupted", "running") else ""
        if not interrupted:
            self.checkpoint.unlink(missing_ok=True)
        try:
            result = self._compute(interrupted)
            with suppress(StoreAwayError):  # the launcher says so, or the next one delivers it
                self._patiently(self.store.deliver)
            return result
        finally:
            self.progress.unlink(missing_ok=True)

    def _known(self) -> tuple[CellRun | None, bool]:
        """Return the run of the cell that the store has, and whether it is of this workspace."""
        self.store.refresh()  # a launch may have made an experiment since this process opened the store
        self.store.deliver()  # perhaps the end of this very run
        known = self.store.cell_run(self.job.cell.id)
        if known and known.status == "running":
            return known, self.store.is_own(self.store.run(known.run_id))
        return known, True

    def _patiently(self, action: Callable[[], T]) -> T:
        return patiently(action, lambda: stop_requested(self.job, self.workspace))

    def _compute(self, interrupted: str) -> JobResult:
        from milbench.engine.artifacts import keep_artifacts, log_model, weights_metadata
        from milbench.store import provenance

        job = self.job
        tags = provenance.tags(job.device, job.threads)
        run_id = self._patiently(lambda: self.store.start_cell(job.comparison, job.cell, job.launch, tags, interrupted))
        Progress(job.cell.recipe["epochs"]).write(self.progress)
        folder = self.workspace.checkpoints / f"{job.cell.id}.artifacts"
        try:
            with self.store.system_metrics(run_id):
                trained = self._train(run_id)
                self.store.log(run_id, job.cell.recipe["epochs"], trained.costs)
                if chosen := (trained.decoder or {}).get("decoder"):
                    self.store.tag(run_id, {DECODED_BY: str(chosen)})
                shape = keep_artifacts(run_id, self.store, folder, trained, weights_metadata(job.cell, trained, tags))
                self.store.log_data(run_id, job.cell, (shape, (-1, len(trained.class_names))))
                if job.log_model:
                    log_model(run_id, self.store, folder, job.cell, trained)
            self.store.end(run_id, "FINISHED")
        except Stopped:
            self.store.end(run_id, "KILLED")
            return JobResult(job.cell.id, "stopped", run_id=run_id)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) and self.workspace.stop(job.launch).exists():
                raise  # the user's second Ctrl-C, where cells are computed in the launcher's own process
            if store_failure(error) and not _is_of_a_plug_in(error, job):
                raise  # the cell has not failed
            return self._failed(run_id, error)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        self.checkpoint.unlink(missing_ok=True)
        return JobResult(job.cell.id, "done", metrics=trained.history[-1], run_id=run_id)

    def _train(self, run_id: str) -> TrainedCell:
        import torch

        from milbench.engine.trainer import Trainer

        torch.set_num_threads(self.job.threads)
        torch.set_default_dtype(torch.float32)  # a plug-in of an earlier cell may have changed these
        torch.set_grad_enabled(True)
        device = torch.device(self.job.device)
        if device.type == "cuda" and device.index is not None:
            torch.cuda.set_device(device)  # also for what a plug-in puts on "cuda"
        callback = _StoreCallback(self.job, run_id, self.store, self.workspace)
        data_dir = Path(self.job.data_dir) if self.job.data_dir else None
        return Trainer(self.job.cell, device, data_dir, callback, self.checkpoint).run()

    def _failed(self, run_id: str, error: BaseException) -> JobResult:
        reason = _reason(error, self.job)
        self.store.log_data(run_id, self.job.cell)
        self.store.log_text(run_id, "".join(traceback.format_exception(error)), TRACEBACK)
        self.store.end(run_id, "FAILED", reason)
        if not isinstance(error, UsageError):  # other data or code, for which the checkpoint is not to blame
            self.checkpoint.unlink(missing_ok=True)  # it would fail again from there
        return JobResult(self.job.cell.id, "failed", reason, run_id=run_id)


@lru_cache(maxsize=1)
def _opened(workspace: str, tracking_uri: str | None, process: int) -> StoreWriter:  # noqa: ARG001
    """Open the store once a process; a process that was forked opens its own."""
    from milbench.store.writer import StoreWriter

    return StoreWriter(Workspace(Path(workspace)), tracking_uri)


@contextmanager
def _ended_after(seconds: float | None, trace: Path) -> Iterator[None]:
    """End this process if the block takes longer, and write where it was then to a file.

    The timer is faulthandler's, which needs neither Python's lock nor a free interpreter.
    """
    if seconds is None:
        yield
        return
    trace.unlink(missing_ok=True)
    with trace.open("w") as file:
        faulthandler.dump_traceback_later(seconds, exit=True, file=file)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()
    trace.unlink(missing_ok=True)


def _is_of_a_plug_in(error: BaseException, job: Job) -> bool:
    """Return whether an error was raised in the file of a loss or a task, or by a metric that no store could take."""
    frames = traceback.extract_tb(error.__traceback__)
    refused = isinstance(error, StoreError) and "Invalid " in str(error)
    return refused or (bool(frames) and frames[-1].filename in (job.cell.loss_file, job.cell.task_file))


def _reason(error: BaseException, job: Job | None = None) -> str:
    """Return the type and the message of an error in one line, with the place in the plug-in where it was raised."""
    text = f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, UsageError) or not frames:
        return text
    mine = [frame for frame in frames if job and frame.filename in (job.cell.loss_file, job.cell.task_file)]
    frame = (mine or frames)[-1]
    return f"{text} ({Path(frame.filename).name}:{frame.lineno})"


class _StoreCallback(Callback):
    """Logs epochs to the store, and writes progress inside an epoch to a small file that displays read."""

    def __init__(self, job: Job, run_id: str, store: StoreWriter, workspace: Workspace) -> None:
        self.job, self.run_id, self.store = job, run_id, store
        self.workspace, self.file = workspace, workspace.progress(job.cell.id)
        self.progress = Progress(job.cell.recipe["epochs"])

    def resumed(self, epoch: int, step: int, steps: int) -> None:
        moment = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
        self.store.tag(self.run_id, {RESUMED: f"{moment} in epoch {epoch} after step {step}"})
        self.progress = self.progress.resumed(epoch, step, steps)
        self.progress.write(self.file)

    def started_over(self) -> None:
        self.store.tag(self.run_id, {STARTED_OVER: "from the first step: its checkpoint was damaged"})

    def step(self, epoch: int, step: int, steps: int, loss: float) -> None:
        self.progress = replace(self.progress, epoch=epoch, step=step, steps=steps, loss=loss)
        self.progress.write(self.file)

    def epoch(self, epoch: int, metrics: dict[str, float]) -> None:
        self.store.log(self.run_id, epoch, metrics)
        # After an epoch without an evaluation the errors of the last one stay.
        errors = {k: v for k, v in metrics.items() if k.endswith("_error")} or self.progress.errors
        self.progress = replace(self.progress, errors=errors)

    def micro_batch(self, size: int, epoch: int, step: int) -> None:
        text = f"{size} bags at a time, since more did not fit into memory, from epoch {epoch}, step {step} on"
        self.store.tag(self.run_id, {MICRO_BATCH: text})

    def stop_requested(self) -> bool:
        return stop_requested(self.job, self.workspace)


def stop_requested(job: Job, workspace: Workspace) -> bool:
    """Return whether a cell is to be stopped: its launch was told to stop, or has died."""
    return workspace.stop(job.launch).exists() or _ORPHANED.is_set()


def _leave_signals_to_the_launcher(job: Job) -> None:
    """Ignore Ctrl-C and SIGTERM in a worker process: they reach a whole group, and the launcher alone acts on them."""
    if job.is_child and threading.current_thread() is threading.main_thread():
        for name in STOPPING:
            signal.signal(name, signal.SIG_IGN)
