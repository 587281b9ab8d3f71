"""The precision `auto` on a CPU: a trial decides whether it is bfloat16, and the answer is kept."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from milbench._utils import bfloat16, devices
from milbench._utils.bfloat16 import Seconds

CPU = torch.device("cpu")
# bfloat16 is chosen only if it saves at least a fifth of the time.
QUICKER = Seconds(float32=1.0, bfloat16=0.8)
TOO_LITTLE = Seconds(float32=1.0, bfloat16=0.81)
SetTimings = Callable[..., list[str]]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder that answers are kept in, which is empty."""
    monkeypatch.setattr("platformdirs.user_cache_path", lambda *args, **named: tmp_path)
    return tmp_path


@pytest.fixture
def timings(cache: Path, monkeypatch: pytest.MonkeyPatch) -> SetTimings:
    """Return a function that sets what a trial measures, on a CPU that multiplies bfloat16.

    It returns a list, which gets an entry for every trial that is made.
    """

    def set_timings(*pairs: Seconds, capable: bool = True) -> list[str]:
        trials: list[str] = []

        def timed_pairs() -> list[Seconds]:
            trials.append("trial")
            return list(pairs)

        monkeypatch.setattr(bfloat16, "timed_pairs", timed_pairs)
        monkeypatch.setattr(devices, "multiplies_bfloat16", lambda device: capable)
        return trials

    return set_timings


def test_a_cpu_that_is_quicker_in_every_pair_gets_bfloat16(timings: SetTimings) -> None:
    timings(*[QUICKER] * 5)
    assert devices.auto_precision(CPU).precision == "bfloat16"


@pytest.mark.parametrize("number", range(5))
def test_one_pair_that_is_not_quicker_gives_float32(timings: SetTimings, number: int) -> None:
    pairs = [QUICKER] * 5
    pairs[number] = TOO_LITTLE
    timings(*pairs)
    assert devices.auto_precision(CPU).precision == "float32"


@pytest.mark.parametrize(
    ("first", "later", "precision"),
    [
        pytest.param(QUICKER, TOO_LITTLE, "bfloat16", id="bfloat16"),
        pytest.param(TOO_LITTLE, QUICKER, "float32", id="float32"),
    ],
)
def test_the_answer_is_kept(
    timings: SetTimings, first: Seconds, later: Seconds, precision: str
) -> None:
    timings(*[first] * 5)
    devices.auto_precision(CPU)
    trials = timings(*[later] * 5)
    assert devices.auto_precision(CPU).precision == precision
    assert trials == []


def test_another_number_of_threads_has_its_own_answer(
    timings: SetTimings, monkeypatch: pytest.MonkeyPatch
) -> None:
    timings(*[QUICKER] * 5)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    devices.auto_precision(CPU)
    timings(*[TOO_LITTLE] * 5)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert devices.auto_precision(CPU).precision == "float32"
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert devices.auto_precision(CPU).precision == "bfloat16"


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b'{"half', id="cut off"),
        pytest.param(b"\xff\xfe", id="not UTF-8"),
        pytest.param(b"[1]", id="a list"),
        pytest.param(b"null", id="nothing"),
    ],
)
def test_a_damaged_file_counts_as_absent(cache: Path, timings: SetTimings, content: bytes) -> None:
    timings(*[QUICKER] * 5)
    devices.auto_precision(CPU)
    (file,) = cache.iterdir()
    file.write_bytes(content)
    trials = timings(*[TOO_LITTLE] * 5)
    assert devices.auto_precision(CPU).precision == "float32"
    assert trials == ["trial"]


def test_an_answer_that_is_no_truth_value_counts_as_absent(
    cache: Path, timings: SetTimings
) -> None:
    timings(*[QUICKER] * 5)
    devices.auto_precision(CPU)
    (file,) = cache.iterdir()
    file.write_text(file.read_text().replace("true", '"yes"'))
    trials = timings(*[TOO_LITTLE] * 5)
    assert devices.auto_precision(CPU).precision == "float32"
    assert trials == ["trial"]


def test_hardware_that_does_not_multiply_bfloat16_runs_no_trial(
    cache: Path, timings: SetTimings
) -> None:
    trials = timings(*[QUICKER] * 5, capable=False)
    assert devices.auto_precision(CPU).precision == "float32"
    assert trials == []
    assert list(cache.iterdir()) == []


def test_a_cache_that_cannot_be_written_is_no_error(cache: Path, timings: SetTimings) -> None:
    timings(*[QUICKER] * 5)
    (cache / "bfloat16.json").mkdir()
    assert devices.auto_precision(CPU).precision == "bfloat16"


def test_a_trial_leaves_the_generator_of_torch_alone() -> None:
    before = torch.get_rng_state()
    pairs = list(bfloat16.timed_pairs())
    assert torch.equal(torch.get_rng_state(), before)
    assert len(pairs) == 5
