from __future__ import annotations

import pytest

from milbench.cli import bench_runner
from tests._helpers.command_line import Milbench


def test_the_table_has_a_row_a_size_and_its_stores_are_thrown_away(
    milbench: Milbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")  # no server for runs that mean nothing
    monkeypatch.setattr(bench_runner, "QUICK_SIZES", (4,))
    ran = milbench("bench", "runner", "--quick", "--jobs", "1")
    assert ran.code == 0, ran
    (row,) = [line for line in ran.out.splitlines() if line.startswith("│")]
    values = [float(value) for value in row.strip("│").split("│")]
    headings = [heading.strip() for heading in ran.out.split("┃")[1:-1]]
    table = dict(zip([heading for heading in headings if heading], values, strict=True))
    assert table["cells"] == 4
    assert table["s a cell"] == pytest.approx(table["run s"] / 4, abs=0.05)
    assert all(value > 0 for value in values)
