"""The devices that `--device` stands for, and messages about GPUs that cannot be used."""

import os
from pathlib import Path

import pytest
import torch

from milbench import UsageError
from milbench._utils.devices import resolve, resolve_all
from tests._helpers.command_line import TINY, Milbench


def pretend_gpus(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Let torch find this number of GPUs."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)


@pytest.fixture
def three_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with three GPUs."""
    pretend_gpus(monkeypatch, 3)


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without a GPU."""
    pretend_gpus(monkeypatch, 0)
    monkeypatch.setattr("milbench._utils.devices._nvidia_gpu", lambda: "")


@pytest.mark.usefixtures("three_gpus")
@pytest.mark.parametrize(
    ("name", "devices"),
    [
        pytest.param("cuda", ["cuda:0", "cuda:1", "cuda:2"], id="every GPU"),
        pytest.param("auto", ["cuda:0", "cuda:1", "cuda:2"], id="auto"),
        pytest.param("cuda:1", ["cuda:1"], id="one GPU"),
        pytest.param("cpu", ["cpu"], id="CPU"),
    ],
)
def test_a_name_stands_for_devices_that_compute_cells(name: str, devices: list[str]) -> None:
    assert resolve_all(name) == devices


@pytest.mark.usefixtures("three_gpus")
def test_cuda_is_a_single_device_of_torch() -> None:
    assert resolve("cuda") == torch.device("cuda")


@pytest.mark.usefixtures("three_gpus")
def test_a_gpu_that_is_not_there_is_reported_in_one_line() -> None:
    with pytest.raises(UsageError, match="device 'cuda:3' is not there: 3 CUDA devices here"):
        resolve_all("cuda:3")


@pytest.mark.usefixtures("no_gpu")
def test_auto_is_the_cpu_where_there_is_no_gpu() -> None:
    assert resolve_all("auto") == ["cpu"]


@pytest.mark.usefixtures("no_gpu")
def test_cuda_without_a_gpu_is_reported_in_one_line() -> None:
    says = "'cuda' is not there: 0 CUDA devices here; use --device cpu or auto"
    with pytest.raises(UsageError, match=says):
        resolve_all("cuda")


@pytest.fixture
def old_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return milbench's message about a GPU whose driver is too old for torch.

    `nvidia-smi` lists the GPU, and torch raises its own error about the driver.
    """
    pretend_gpus(monkeypatch, 0)
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'GPU 0: NVIDIA GeForce GTX 1080 (UUID: GPU-1a2b)'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def refuse() -> None:
        raise RuntimeError(
            "The NVIDIA driver on your system is too old (found version 12020). Please update your "
            "GPU driver by downloading and installing a new\nversion from a page. Alternatively, "
            "go to another page."
        )

    monkeypatch.setattr(torch.cuda, "init", refuse)
    return (
        f"torch {torch.__version__} cannot use the GPU of this machine (NVIDIA GeForce GTX 1080): "
        "The NVIDIA driver on your system is too old (found version 12020); "
        "docs/running.md says which PyTorch fits which driver"
    )


DRY_RUN = ("run", "--loss", "exact", "--task", TINY, "--dry-run")


def test_a_driver_too_old_for_torch_is_reported_in_one_line(
    milbench: Milbench, old_driver: str
) -> None:
    assert old_driver in milbench(*DRY_RUN).done().splitlines()


def test_cuda_with_an_old_driver_is_refused(milbench: Milbench, old_driver: str) -> None:
    complaint = milbench(*DRY_RUN, "--device", "cuda").complaint()
    assert complaint == f"device 'cuda': {old_driver}"


@pytest.mark.usefixtures("old_driver")
def test_an_old_driver_does_not_matter_on_the_cpu(milbench: Milbench) -> None:
    assert "cannot use" not in milbench(*DRY_RUN, "--device", "cpu").done()
