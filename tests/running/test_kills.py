"""Launches that are killed at any moment.

The same command, given again, ends with the results of a launch that nobody killed, bit for bit.
`make test` kills four launches, `make test-kills` a hundred.
"""

import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests._helpers.command_line import assignments, process
from tests._helpers.damage import DAMAGES, damage, numbers

SETTINGS = assignments(
    {
        "recipe.epochs": 4,
        "recipe.steps_per_epoch": 25,
        "recipe.evaluation_bags": 64,
        "run.threads": 1,
    }
)
COMPARISON = ("--loss", "exact,noisy-or", "--task", "synthetic-bags", "--seeds", "0-1")
WORDS = ("run", *COMPARISON, *SETTINGS, "--jobs", "2", "--quiet")
DAMAGES_OF_CONTENT = DAMAGES[:5]
"""The damages that need no other file to swap with: "truncated" to "a line missing"."""
KILLS = 4
"""How often one launch is killed."""
CELLS_START = 0.3
"""The share of a launch after which its cells start."""


@dataclass(frozen=True)
class Unbroken:
    """A launch that nobody killed: how many seconds it took, and the numbers that it computed."""

    seconds: float
    numbers: object


def run(root: Path) -> float:
    """Run the command to its end, and return how many seconds it took."""
    begun = time.monotonic()
    running = process(*WORDS, "--root", str(root))
    out, err = running.communicate(timeout=250)
    assert running.returncode == 0, (out, err)
    return time.monotonic() - begun


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Unbroken:
    """A launch that nobody kills: launches that are killed have to end with its numbers."""
    root = tmp_path_factory.mktemp("unbroken") / "root"
    seconds = run(root)
    return Unbroken(seconds, numbers(root))


def run_and_kill(root: Path, seconds: float) -> None:
    """Start the command, and kill it after `seconds` seconds unless it has ended by then."""
    running = process(*WORDS, "--root", str(root))
    with contextlib.suppress(subprocess.TimeoutExpired):
        running.wait(timeout=seconds)
    milliseconds = int(1000 * seconds)
    # The moment is random, so that its parity is a coin: in half of the cases only the first
    # process of the launch is killed, in the other half all its processes.
    is_killed_alone = milliseconds % 2 == 1
    # A launch that has ended by then cannot be killed.
    with contextlib.suppress(ProcessLookupError):
        if is_killed_alone:
            os.kill(running.pid, signal.SIGKILL)
        else:
            os.killpg(running.pid, signal.SIGKILL)
    running.communicate(timeout=60)


def damage_some(root: Path, chance: random.Random) -> None:
    """Damage up to three files of cells."""
    for _ in range(chance.randint(1, 3)):
        files = sorted(path for path in root.glob("runs/cells/*/*") if path.is_file())
        if files:
            damage_one(chance.choice(files), files, chance)


def damage_one(file: Path, files: list[Path], chance: random.Random) -> None:
    """Damage a file in a random way; it may be swapped with the same file of another cell."""
    others = [other for other in files if other.name == file.name and other != file]
    if others:
        how = chance.choice(DAMAGES)
        other = chance.choice(others)
    else:
        how = chance.choice(DAMAGES_OF_CONTENT)
        # The damage does not use this file, but `damage` needs one.
        other = chance.choice(files)
    damage(file, how, other)


def check_whole(root: Path, expected: object) -> None:
    """Check that a root has the numbers of the unbroken launch, and no temporary files."""
    assert numbers(root) == expected
    left = {path.name for path in (root / "runs" / "cells").glob("*/*")}
    assert not left & {"checkpoint.pt", "progress.json", "error.txt", "hang.txt"}
    assert not [name for name in left if name.startswith(".")]


def check_mirrored_once(root: Path) -> None:
    """Check that MLflow has one finished run for each cell.

    This does not hold after damage: a damaged cell that is computed again gets a second run.
    """
    with contextlib.closing(sqlite3.connect(root / "runs" / "mlflow.db")) as database:
        of_cells = database.execute("select value from tags where key = 'milbench.cell'").fetchall()
        states = {state for (state,) in database.execute("select distinct status from runs")}
    assert set(Counter(of_cells).values()) == {1}, "no run is doubled"
    assert states == {"FINISHED"}


@pytest.mark.timeout(600)
def test_killed_launches_end_as_an_unbroken_one(tmp_path: Path, unbroken: Unbroken) -> None:
    """The command is killed four times: the k-th time in the k-th quarter of a launch.

    Each launch goes on from what the launches before it left.
    """
    chance = random.Random(0)
    for kill in range(KILLS):
        share_of_cells = (kill + chance.random()) / KILLS
        share = CELLS_START + (1 - CELLS_START) * share_of_cells
        run_and_kill(tmp_path, share * unbroken.seconds)
    run(tmp_path)
    check_whole(tmp_path, unbroken.numbers)
    check_mirrored_once(tmp_path)
    damage_some(tmp_path, chance)
    run(tmp_path)
    check_whole(tmp_path, unbroken.numbers)


@pytest.mark.kills
@pytest.mark.timeout(600)
@pytest.mark.parametrize("trial", range(100))
def test_a_launch_killed_at_a_random_moment(tmp_path: Path, unbroken: Unbroken, trial: int) -> None:
    """In every second trial files are damaged as well."""
    chance = random.Random(trial)
    run_and_kill(tmp_path, chance.uniform(0, unbroken.seconds))
    is_damaged = trial % 2 == 1
    if is_damaged:
        damage_some(tmp_path, chance)
    run(tmp_path)
    check_whole(tmp_path, unbroken.numbers)
    if not is_damaged:
        check_mirrored_once(tmp_path)
