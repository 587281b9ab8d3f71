from __future__ import annotations

import pytest
import torch

from milbench.bench.profiling import Timing, paired_timings, peak_bytes


def test_peak_bytes_counts_what_lives_at_once() -> None:
    x = torch.zeros(1000, dtype=torch.float64)
    assert peak_bytes(lambda: x + 1) == 8000
    assert peak_bytes(lambda: (x + 1) + 1) == 16000
    assert peak_bytes(lambda: (x + 1).add_(1)) == 8000
    assert peak_bytes(lambda: x.view(10, 100)) == 0


def test_functions_are_timed_in_turn_after_one_call_each(monkeypatch: pytest.MonkeyPatch) -> None:
    now, called = 0.0, []

    def work(name: str, durations: list[float]) -> None:
        nonlocal now
        called.append(name)
        now += durations.pop(0)

    monkeypatch.setattr("time.perf_counter", lambda: now)
    first, second = [99.0, 1.0, 2.0, 3.0, 4.0, 5.0], [99.0, *[7.0] * 5]
    found = paired_timings([lambda: work("a", first), lambda: work("b", second)], repeats=5)
    assert found == [Timing(median=3, spread=2), Timing(median=7, spread=0)]
    assert "".join(called) == "ab" * 6
