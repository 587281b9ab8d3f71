import os
from pathlib import Path

import pytest
import torch

from milbench import UsageError
from milbench._utils.devices import resolve, resolve_all
from tests._helpers.command_line import TINY, Milbench


def gpus(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)


def test_cuda_names_every_gpu_and_a_number_names_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpus(monkeypatch, 3)
    assert resolve_all("cuda") == resolve_all("auto") == ["cuda:0", "cuda:1", "cuda:2"]
    assert resolve_all("cuda:1") == ["cuda:1"]
    assert resolve_all("cpu") == ["cpu"]
    assert resolve("cuda") == torch.device("cuda")
    with pytest.raises(UsageError, match="device 'cuda:3' is not there: 3 CUDA devices here"):
        resolve_all("cuda:3")


def test_auto_is_the_cpu_where_there_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(monkeypatch, 0)
    monkeypatch.setattr("milbench._utils.devices._nvidia_gpu", lambda: "")
    assert resolve_all("auto") == ["cpu"]
    with pytest.raises(
        UsageError, match="'cuda' is not there: 0 CUDA devices here; use --device cpu or auto"
    ):
        resolve_all("cuda")


def test_a_driver_too_old_for_torch_is_one_line(
    milbench: Milbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`nvidia-smi` lists it, and torch raises the error that it has for that."""
    gpus(monkeypatch, 0)
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'GPU 0: NVIDIA GeForce GTX 1080 (UUID: GPU-1a2b)'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def refuse() -> None:
        raise RuntimeError(
            "The NVIDIA driver on your system is too old (found version 12020). Please update your GPU driver by "
            "downloading and installing a new\nversion from a page. Alternatively, go to another page."
        )

    monkeypatch.setattr(torch.cuda, "init", refuse)
    why = (
        f"torch {torch.__version__} cannot use the GPU of this machine (NVIDIA GeForce GTX 1080): The NVIDIA driver on "
        "your system is too old (found version 12020); docs/running.md says which PyTorch fits which driver"
    )
    few = ("--loss", "exact", "--task", TINY, "--dry-run")
    assert why in milbench("run", *few).out.splitlines()
    assert milbench("run", *few, "--device", "cuda").complaint() == f"device 'cuda': {why}"
    assert "cannot use" not in milbench("run", *few, "--device", "cpu").out
