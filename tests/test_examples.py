"""The examples run from a folder of their own, and print what they promise."""

from __future__ import annotations

import os
import re
import runpy
import tempfile
from pathlib import Path

import pytest
import torch

from tests._helpers.forked import Forked

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(name: str, folder: Path) -> str:
    example = Forked(_example, EXAMPLES / f"{name}.py", folder)
    out, err = example.communicate(timeout=300)
    assert example.returncode == 0, err
    return out


def _example(path: Path, folder: Path) -> None:
    os.chdir(folder)
    os.environ.clear()
    os.environ.update({"PATH": "", "HOME": str(folder), "TMPDIR": str(folder)})
    tempfile.tempdir = str(folder)
    torch.set_num_threads(1)
    runpy.run_path(str(path), run_name="__main__")


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
