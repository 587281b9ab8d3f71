from __future__ import annotations

import json
from pathlib import Path

import pytest

from milbench.store.progress import Progress


def test_what_is_written_is_read(tmp_path: Path) -> None:
    written = Progress(20, 3, 5, 10, 0.25, {"test/set_error": 0.5}, begun=1000.0, resumed_at=0.1)
    written.write(tmp_path / "a.progress")
    assert Progress.read(tmp_path / "a.progress") == written


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", "null", "[1, 2]", '{"epochs": 0}', '{"epochs": "x"}', '{"epochs": 2, "epoch": 9}',
                '{"epochs": 2, "step": -8, "steps": 1}', '{"epochs": 2, "new": 1}', "\x00"]
)  # fmt: skip
def test_anything_else_is_no_progress(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.progress").write_text(content)
    assert Progress.read(tmp_path / "a.progress") is None
    assert Progress.read(tmp_path / "missing.progress") is None


def test_the_time_left_counts_the_work_of_this_process_alone() -> None:
    # Half of the cell was done before; a tenth of it took 60 s, so that the other four take 240 s.
    resumed = Progress(10, 7, 0, 5, begun=1000.0, resumed_at=0.5)
    assert resumed.share == pytest.approx(0.6)
    assert resumed.seconds_left(1060.0) == pytest.approx(240.0)
    assert Progress(10, 0, begun=1000.0).seconds_left(1060.0) is None
    assert json.dumps(resumed.errors) == "{}"
    within = Progress(10, begun=1000.0).resumed(epoch=7, step=2, steps=4)
    assert within.share == within.resumed_at == pytest.approx(0.65)
    assert within.seconds_left(1060.0) is None, "nothing was done yet by this process"
