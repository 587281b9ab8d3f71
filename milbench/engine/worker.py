"""The worker: computes one cell in this process and logs it to the store."""

from __future__ import annotations

import json
import signal
import threading
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from milbench._utils import locks
from milbench._utils.files import write_atomically
from milbench.api.plan import Cell
from milbench.engine.callback import Callback
from milbench.store.workspace import Workspace

if TYPE_CHECKING:
    from milbench.engine.trainer import TrainedCell
    from milbench.store.writer import StoreWriter


@dataclass(frozen=True)
class Job:
    """One cell to compute, in plain data that can be sent to another process.

    Args:
        cell: what to compute.
        run_id: of the run in the store that was opened for the cell.
        workspace: the path of the workspace.
        tracking_uri: the address of the store.
        device: such as "cpu" or "cuda:0".
        threads: how many threads PyTorch uses.
        data_dir: the folder of the data; None: the default one.
        resume: whether to continue from the cell's checkpoint, if there is one.
        again: whether to compute the cell even if another launch has finished it in the meantime.
    """

    cell: Cell
    run_id: str
    workspace: str
    tracking_uri: str
    device: str
    threads: int
    data_dir: str | None
    resume: bool = False
    again: bool = False


@dataclass(frozen=True)
class JobResult:
    """The result of a job.

    Args:
        cell_id: of the cell.
        run_id: of the run that holds the results.
        status: done, failed or elsewhere (another process is computing the cell).
        reason: one line, why it is not done.
        metrics: of the last epoch; None where they were not computed just now.
    """

    cell_id: str
    run_id: str
    status: str
    reason: str = ""
    metrics: dict[str, float] | None = None


def compute_cell(job: Job) -> JobResult:
    """Train and evaluate the cell of a job. Errors are not raised: they are logged and part of the result."""
    if _is_child():
        _leave_interrupts_to_the_launcher()
    workspace = Workspace(Path(job.workspace))
    try:
        with locks.try_lock(workspace.lock(job.cell.id)) as mine:
            if not mine:
                return JobResult(job.cell.id, job.run_id, "elsewhere", "another process is computing this cell")
            return _compute(job, workspace)
    except Exception as error:  # noqa: BLE001 the store itself failed; the launcher will try to log that
        return JobResult(job.cell.id, job.run_id, "failed", _reason(error))


def _compute(job: Job, workspace: Workspace) -> JobResult:
    import torch

    from milbench.engine.trainer import Trainer
    from milbench.store import provenance
    from milbench.store.writer import StoreWriter

    torch.set_num_threads(job.threads)
    store = StoreWriter(workspace, job.tracking_uri)
    checkpoint = workspace.checkpoint(job.cell.id)
    done = store.cell_runs().get(job.cell.id)
    if done and done.status == "done" and not job.again:
        store.end(job.run_id, "KILLED", "done by another launch in the meantime")
        return JobResult(job.cell.id, done.run_id, "done")
    if not job.resume:
        checkpoint.unlink(missing_ok=True)
    try:
        store.start(job.run_id, provenance.tags(job.device, job.threads))
        with store.system_metrics(job.run_id):
            callback = _StoreCallback(job, store, workspace.progress(job.cell.id))
            data_dir = Path(job.data_dir) if job.data_dir else None
            trained = Trainer(job.cell, torch.device(job.device), data_dir, callback, checkpoint).run()
            store.log(job.run_id, job.cell.recipe["epochs"], trained.costs)
            _keep_artifacts(job, store, workspace, trained)
        store.end(job.run_id, "FINISHED")
        checkpoint.unlink(missing_ok=True)
        return JobResult(job.cell.id, job.run_id, "done", metrics=trained.history[-1])
    except Exception as error:  # noqa: BLE001 one cell's failure must not take the others down
        reason = _reason(error)
        store.log_text(job.run_id, traceback.format_exc(), "traceback.txt")
        store.end(job.run_id, "FAILED", reason)
        checkpoint.unlink(missing_ok=True)  # it would fail again from there
        return JobResult(job.cell.id, job.run_id, "failed", reason)
    finally:
        workspace.progress(job.cell.id).unlink(missing_ok=True)


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _keep_artifacts(job: Job, store: StoreWriter, workspace: Workspace, trained: TrainedCell) -> None:
    """Log weights, gallery and decoder as files of the run."""
    from safetensors.torch import save_file

    folder = workspace.checkpoints / f"{job.cell.id}.artifacts"
    folder.mkdir(exist_ok=True)
    weights, pictures = folder / "model.safetensors", folder / "gallery.npz"
    save_file(trained.weights, weights)
    trained.save_gallery(pictures)
    paths = [weights, pictures]
    if trained.decoder is not None:
        paths.append(folder / "decoder.json")
        paths[-1].write_text(json.dumps(trained.decoder, allow_nan=False) + "\n", "utf-8")
    for path in paths:
        store.log_file(job.run_id, path)
        path.unlink()
    folder.rmdir()


class _StoreCallback(Callback):
    """Logs epochs to the store, and writes progress inside an epoch to a small file that the launcher reads."""

    def __init__(self, job: Job, store: StoreWriter, progress: Path) -> None:
        self.job, self.store, self.progress = job, store, progress
        self.epochs = job.cell.recipe["epochs"]
        self.last: dict[str, float] = {}

    def resumed(self, epoch: int, step: int) -> None:
        moment = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
        self.store.start(self.job.run_id, {"milbench.resumed": f"{moment} in epoch {epoch} after step {step}"})

    def step(self, epoch: int, step: int, steps: int, loss: float) -> None:
        state = {"epoch": epoch, "epochs": self.epochs, "step": step, "steps": steps, "loss": loss, **self.last}
        write_atomically(self.progress, lambda path: path.write_text(json.dumps(state)))

    def epoch(self, epoch: int, metrics: dict[str, float]) -> None:
        self.store.log(self.job.run_id, epoch, metrics)
        self.last = {k: v for k, v in metrics.items() if k.endswith("_error")}


def _is_child() -> bool:
    import multiprocessing

    return multiprocessing.parent_process() is not None


def _leave_interrupts_to_the_launcher() -> None:
    """Ignore SIGINT: Ctrl-C reaches every process of the terminal, and the launcher alone acts on it."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
