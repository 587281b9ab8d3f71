from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from types import SimpleNamespace

import psutil
import pytest
import torch

from milbench.engine.profiling import OtherLoad, Timing, memory_peak, peak_bytes, reset_memory_peak, timed
from tests._helpers.short_timings import USERS_WINDOW

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


@pytest.mark.parametrize(
    ("durations", "calls", "expected"),
    [
        ([9, 4, 8, 5, 2, 3, 6, 7], 8, Timing(least=2, median=5, spread=3)),  # the first call does not count
        ([9, *[0.03125] * 20], 8, Timing(0.03125, 0.03125, 0)),
        ([9, *[0.0078125] * 20], 14, Timing(0.0078125, 0.0078125, 0)),  # 13 of them are 0.1 seconds
    ],
)
def test_calls_are_timed_until_there_are_enough_of_them(
    durations: list[float], calls: int, expected: Timing, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, left = 0.0, iter(durations)

    def work() -> None:
        nonlocal now
        now += next(left)

    monkeypatch.setattr(time, "perf_counter", lambda: now)
    monkeypatch.setattr("milbench.engine.profiling.WINDOW", USERS_WINDOW)
    assert timed(work) == expected
    assert len(list(left)) == len(durations) - calls


class Times(SimpleNamespace):
    def _asdict(self) -> dict[str, float]:
        return vars(self)


@pytest.mark.parametrize(
    ("passed", "own", "share"),
    [
        ({"user": 6.0, "system": 2.0, "idle": 8.0}, 4.0, 0.25),  # others used 4 of 16 seconds
        ({"user": 6.0, "system": 2.0, "idle": 7.0, "iowait": 1.0, "guest": 3.0}, 4.0, 0.25),  # guests are users
        ({"user": 4.0, "idle": 12.0}, 4.01, 0.0),  # clocks of different grain
        ({"user": 0.05, "idle": 0.05}, 0.0, math.nan),  # too short to tell
    ],
)
def test_the_load_of_others_is_what_the_cores_worked_without_this_process(
    passed: dict[str, float], own: float, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("user", "system", "idle", "iowait", "guest")
    before, after = (dict.fromkeys(names, 100.0), {n: 100.0 + passed.get(n, 0.0) for n in names})
    readings: Iterator[tuple[dict[str, float], float]] = iter([(before, 50.0), (after, 50.0 + own)])
    current = {"own": 0.0}

    def cpu_times() -> Times:
        times, current["own"] = next(readings)
        return Times(**times)

    monkeypatch.setattr(psutil, "cpu_times", cpu_times)
    monkeypatch.setattr(psutil, "cpu_count", lambda: 4)
    monkeypatch.setattr(time, "process_time", lambda: current["own"])
    assert OtherLoad().share() == pytest.approx(share, nan_ok=True)


def test_the_load_of_this_machine_can_be_read() -> None:
    load = OtherLoad()
    time.sleep(0.1)
    assert 0 <= load.share() <= 1, "not nan, as where there are no times"
