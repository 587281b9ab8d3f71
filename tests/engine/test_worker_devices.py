"""How cells are dealt to devices: host logic, so it is tested with devices that are not there."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from milbench import UsageError
from milbench.engine import pools, worker
from milbench.engine.checkpoints import Generators
from milbench.engine.planning import make_plan
from milbench.engine.pools import Processes
from milbench.engine.runner import worker_devices
from milbench.engine.spec import make_spec
from milbench.engine.worker import Job, JobResult
from tests._helpers.command_line import TINY, Milbench

TWO = ["cuda:0", "cuda:1"]


@pytest.mark.parametrize(
    ("devices", "jobs", "jobs_per_device", "dealt"),
    [
        (TWO, None, None, ["cuda:0", "cuda:1"]),
        (TWO, None, 2, ["cuda:0", "cuda:1", "cuda:0", "cuda:1"]),
        (TWO, 3, None, ["cuda:0", "cuda:1", "cuda:0"]),
        (TWO, 1, None, ["cuda:0"]),
        (["cuda:1"], None, None, ["cuda:1"]),
        (["cuda:1"], None, 2, ["cuda:1", "cuda:1"]),
        (["cpu"], 3, None, ["cpu"] * 3),
        (["cpu"], None, None, ["cpu"] * 4),
    ],
)
def test_worker_processes_are_dealt_to_devices_in_turn(
    devices: list[str], jobs: int | None, jobs_per_device: int | None, dealt: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    assert worker_devices(devices, 20, jobs, jobs_per_device) == dealt


def test_two_numbers_of_jobs_and_jobs_per_device_of_a_cpu_are_refused() -> None:
    with pytest.raises(UsageError, match="--jobs and --jobs-per-device exclude each other"):
        worker_devices(TWO, 20, 2, 2)
    with pytest.raises(
        UsageError, match="--jobs-per-device 2 is for GPUs, and cells are computed on the CPU; use --jo"
    ):
        worker_devices(["cpu"], 20, None, 2)


def test_a_cell_is_computed_on_the_device_of_the_process_it_comes_to(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Both processes wait for each other, so that each gets one of every two cells."""
    together = threading.Barrier(2)

    def compute(process: pools.WorkerProcess, job: Job, stopping: threading.Event) -> JobResult:
        together.wait(timeout=30)
        assert job.device == process.device
        return JobResult(job.cell.id, "done", job.device)

    monkeypatch.setattr(pools.WorkerProcess, "compute", compute)
    job = some_job(tmp_path)
    jobs = [replace(job, cell=replace(job.cell, seed=seed)) for seed in range(8)]
    results = list(Processes(TWO, threading.Event()).results(jobs))
    assert Counter(result.reason for result in results) == {"cuda:0": 4, "cuda:1": 4}
    assert len({result.cell_id for result in results}) == 8


def test_a_launch_on_several_gpus_is_planned_without_touching_them(
    milbench: Milbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    words = ("run", "--loss", "exact", "--task", TINY, "--device", "cuda", "--dry-run")
    assert milbench(*words, "--jobs-per-device", "2").code == 0
    assert "exclude each other" in milbench(*words, "--jobs-per-device", "2", "--jobs", "2").complaint()


def test_a_process_of_a_cluster_that_has_lost_its_gpu_ends_before_the_next_cell(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Ended(BaseException):
        """Stands for the end of the process."""

    def end(code: int) -> None:
        raise Ended

    reasons = iter(["ValueError: wrong", "RuntimeError: CUDA error: device-side assert triggered"])
    monkeypatch.setattr(worker, "_GPU_LOST", threading.Event())
    monkeypatch.setattr(worker, "compute_cell", lambda job: JobResult(job.cell.id, "failed", next(reasons)))
    monkeypatch.setattr("os._exit", end)
    job = some_job(tmp_path)
    assert worker.compute_in_cluster(job).reason.startswith("ValueError")
    assert worker.compute_in_cluster(job).reason.startswith("RuntimeError"), "its result is delivered"
    with pytest.raises(Ended):
        worker.compute_in_cluster(job)


def some_job(folder: Path) -> Job:
    cell = make_plan(make_spec({"name": "t", "losses": ["exact"], "tasks": [TINY], "seeds": 0}), None).cells[0]
    return Job(cell, "t", "launch", str(folder), None, "cuda:0", 1, None)


def test_a_checkpoint_keeps_the_generator_of_its_own_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    states = {"cuda:0": torch.zeros(2, dtype=torch.uint8), "cuda:1": torch.ones(2, dtype=torch.uint8)}
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: states[str(device)])
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device: states.update({str(device): state}))
    kept = Generators.now(torch.device("cuda:1"))
    kept.restore(torch.device("cuda:0"))  # where the cell goes on
    assert states["cuda:0"].tolist() == [1, 1]
