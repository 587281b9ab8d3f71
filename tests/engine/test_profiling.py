from __future__ import annotations

import sys

import psutil
import pytest
import torch

from milbench.engine.profiling import memory_peak, peak_bytes, reset_memory_peak

CPU = torch.device("cpu")
MEGABYTE = 1 << 20


def test_peak_bytes_counts_what_lives_at_once() -> None:
    x = torch.zeros(1000, dtype=torch.float64)
    assert peak_bytes(lambda: x + 1) == 8000
    assert peak_bytes(lambda: (x + 1) + 1) == 16000
    assert peak_bytes(lambda: (x + 1).add_(1)) == 8000
    assert peak_bytes(lambda: x.view(10, 100)) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the peak is that of the whole process")
def test_the_memory_peak_holds_what_was_freed_again_until_it_is_reset() -> None:
    reset_memory_peak(CPU)
    before = memory_peak(CPU)
    block = torch.ones(32 * MEGABYTE)
    del block
    after = memory_peak(CPU)
    assert 100 * MEGABYTE < after - before < 200 * MEGABYTE
    reset_memory_peak(CPU)
    assert memory_peak(CPU) < after - 64 * MEGABYTE


@pytest.mark.parametrize("has_resource", [True, False])
def test_other_systems_measure_the_whole_process(has_resource: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    resident = psutil.Process().memory_info().rss
    monkeypatch.setattr(sys, "platform", "elsewhere")
    if not has_resource:
        monkeypatch.setitem(sys.modules, "resource", None)
    assert 0.9 * resident < memory_peak(CPU) < psutil.virtual_memory().total
