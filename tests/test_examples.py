"""The examples run from a folder of their own, and print what they promise."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(name: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, EXAMPLES / f"{name}.py"], cwd=folder, capture_output=True, text=True, timeout=300,
        env={"PATH": "", "HOME": str(folder), "TMPDIR": str(folder), "OMP_NUM_THREADS": "1"}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_example_is_listed_and_run() -> None:
    listed = set(re.findall(r"\]\((\w+)\.py\)", (EXAMPLES / "README.md").read_text("utf-8")))
    assert listed == {path.stem for path in EXAMPLES.glob("*.py")} == {"own_loss", "own_table", "own_training_loop"}


def test_own_loss(tmp_path: Path) -> None:
    said = run("own_loss", tmp_path)
    assert "synthetic-bags: lowest " in said
    assert "mean-pooling" in said
    (page,) = re.findall(r"^(\S+index\.html)$", said, re.MULTILINE)
    assert "mean-pooling" in Path(page).read_text("utf-8")


def test_own_table(tmp_path: Path) -> None:
    said = run("own_table", tmp_path)
    assert "exact" in said
    assert re.search(r"exact\s+noisy-or", said)
    assert re.search(r"\b(unresolved|better|worse)\b", said)


@pytest.mark.parametrize("limit", [10])
def test_own_training_loop(tmp_path: Path, limit: float) -> None:
    said = run("own_training_loop", tmp_path)
    (error,) = re.findall(r"wrongly: ([\d.]+) %", said)
    # Four classes are equally frequent: guessing names three quarters wrongly.
    assert float(error) < limit
