"""The examples run from a folder of their own, and print what they promise."""

import os
import re
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(name: str, folder: Path) -> str:
    environment = {**os.environ, "HOME": str(folder), "TMPDIR": str(folder), "OMP_NUM_THREADS": "1",
                   "MLFLOW_TRACKING_URI": "http://127.0.0.1:9"}  # fmt: skip
    words = [sys.executable, str(EXAMPLES / f"{name}.py")]
    ran = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_every_example_is_listed_and_run() -> None:
    listed = set(re.findall(r"\]\((\w+)\.py\)", (EXAMPLES / "README.md").read_text("utf-8")))
    assert listed == {path.stem for path in EXAMPLES.glob("*.py")} == {"own_loss", "own_table", "own_training_loop"}


def test_own_loss(tmp_path: Path) -> None:
    said = run("own_loss", tmp_path)
    (page,) = re.findall(r"^(\S+index\.html)$", said, re.MULTILINE)
    assert "mean-pooling" in Path(page).read_text("utf-8")


def test_own_table(tmp_path: Path) -> None:
    said = run("own_table", tmp_path)
    assert "exact" in said
    assert "noisy-or" in said


def test_own_training_loop(tmp_path: Path) -> None:
    said = run("own_training_loop", tmp_path)
    (error,) = re.findall(r"wrongly: ([\d.]+) %", said)
    assert float(error) < 10, "four classes are equally frequent: guessing names three quarters wrongly"
