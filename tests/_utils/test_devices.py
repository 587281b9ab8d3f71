from __future__ import annotations

import pytest
import torch

from milbench import UsageError
from milbench._utils.devices import resolve, resolve_all


@pytest.fixture
def three_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)


@pytest.mark.usefixtures("three_gpus")
def test_cuda_and_auto_name_every_gpu_and_a_number_names_one() -> None:
    assert resolve_all("cuda") == resolve_all("auto") == ["cuda:0", "cuda:1", "cuda:2"]
    assert resolve_all("cuda:1") == ["cuda:1"]
    assert resolve_all("cpu") == ["cpu"]
    assert resolve("cuda") == torch.device("cuda")


@pytest.mark.usefixtures("three_gpus")
def test_a_gpu_that_is_not_there_is_named() -> None:
    with pytest.raises(UsageError, match="device 'cuda:3' is not there: 3 CUDA devices here"):
        resolve_all("cuda:3")


def test_auto_is_the_cpu_where_there_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert resolve_all("auto") == ["cpu"]
    with pytest.raises(UsageError, match="'cuda' is not there: 0 CUDA devices here; use --device cpu or auto"):
        resolve_all("cuda")
