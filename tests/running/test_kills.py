"""Launches that are killed at any moment: the same command ends where the unbroken run does, bit for bit.

`make test` kills four launches, `make test-kills` a hundred.
"""

import contextlib
import os
import random
import signal
import sqlite3
import time
from collections import Counter
from pathlib import Path

import pytest

from tests._helpers.command_line import process
from tests._helpers.damage import DAMAGES, damage, numbers

WORDS = ("run", "--loss", "exact,noisy-or", "--task", "synthetic-bags", "--seeds", "0-1", "-p", "recipe.epochs=4",
         "-p", "recipe.steps_per_epoch=25", "-p", "recipe.evaluation_bags=64", "--jobs", "2", "-p", "run.threads=1",
         "--quiet")  # fmt: skip
KILLS = 4


def run(root: Path) -> float:
    begun = time.monotonic()
    running = process(*WORDS, "--root", str(root))
    out, err = running.communicate(timeout=250)
    assert running.returncode == 0, (out, err)
    return time.monotonic() - begun


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> tuple[float, object]:
    """Seconds and numbers of a launch that nobody kills."""
    root = tmp_path_factory.mktemp("unbroken") / "root"
    seconds = run(root)
    return seconds, numbers(root)


def killed(root: Path, seconds: float) -> None:
    running = process(*WORDS, "--root", str(root))
    with contextlib.suppress(Exception):
        running.wait(timeout=seconds)
    with contextlib.suppress(ProcessLookupError):  # it has ended
        if int(1000 * seconds) % 2:
            os.kill(running.pid, signal.SIGKILL)
        else:
            os.killpg(running.pid, signal.SIGKILL)
    running.communicate(timeout=60)


def damage_some(root: Path, chance: random.Random) -> None:
    """Damage up to three files of cells."""
    for _ in range(chance.randint(1, 3)):
        files = sorted(path for path in root.glob("runs/cells/*/*") if path.is_file())
        if files:
            file = chance.choice(files)
            others = [other for other in files if other.name == file.name and other != file]
            damage(
                file,
                chance.choice(DAMAGES if others else DAMAGES[:5]),
                chance.choice(others or files),
            )


def check_whole(root: Path, expected: object, *, was_damaged: bool = False) -> None:
    """Check that a root has the numbers of the unbroken launch, and nothing that is still open.

    In MLflow a cell has one run, unless it was damaged and is computed again, which is another one.
    """
    assert numbers(root) == expected
    left = {path.name for path in (root / "runs" / "cells").glob("*/*")}
    assert not left & {"checkpoint.pt", "progress.json", "error.txt", "hang.txt"}
    assert not [name for name in left if name.startswith(".")]
    if not was_damaged:
        with contextlib.closing(sqlite3.connect(root / "runs" / "mlflow.db")) as database:
            of_cells = database.execute(
                "select value from tags where key = 'milbench.cell'"
            ).fetchall()
            states = {state for (state,) in database.execute("select distinct status from runs")}
        assert set(Counter(of_cells).values()) == {1}, "no run is doubled"
        assert states == {"FINISHED"}


@pytest.mark.timeout(600)
def test_killed_launches_end_as_an_unbroken_one(
    tmp_path: Path, unbroken: tuple[float, object]
) -> None:
    """Each is killed at a random moment of its own quarter of a launch, and goes on from what the others left."""
    chance = random.Random(0)
    for kill in range(KILLS):
        killed(
            tmp_path, (0.3 + 0.7 * (kill + chance.random()) / KILLS) * unbroken[0]
        )  # cells start after 0.3
    run(tmp_path)
    check_whole(tmp_path, unbroken[1])
    damage_some(tmp_path, chance)
    run(tmp_path)
    check_whole(tmp_path, unbroken[1], was_damaged=True)


@pytest.mark.kills
@pytest.mark.timeout(600)
@pytest.mark.parametrize("trial", range(100))
def test_a_launch_killed_at_a_random_moment(
    tmp_path: Path, unbroken: tuple[float, object], trial: int
) -> None:
    """After every second kill files are damaged too."""
    chance = random.Random(trial)
    killed(tmp_path, chance.uniform(0, unbroken[0]))
    if trial % 2:
        damage_some(tmp_path, chance)
    run(tmp_path)
    check_whole(tmp_path, unbroken[1], was_damaged=bool(trial % 2))
