from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from milbench.bench import data


def test_slides_are_trained_on_and_timed(tmp_path: Path) -> None:
    table = data.write_slides(tmp_path / "few", 10, (30, 50))
    sizes = [len(np.load(path)) for path in sorted((tmp_path / "few/features").iterdir())]
    assert len(sizes) == 10
    assert 30 <= min(sizes) <= max(sizes) < 50
    row = data.timed("slides", [sys.executable, "-c", data.MILBENCH, table, "{now}", "2"])
    assert 0 < row["first step"] <= row["first epoch"]
    assert row["MiB"] > 50, "torch alone takes more"
