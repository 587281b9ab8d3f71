"""What a disk, and other users of the database, can do to a launch."""

from __future__ import annotations

import contextlib
import math
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy

from tests._helpers.command_line import TINY, Milbench
from tests._helpers.other_machine import client
from tests._helpers.sabotage import in_the_second_epoch

WORDS = ("run", "--loss", "exact", "--task", TINY, "--seeds", "0,1", "--epochs", "3")


@contextlib.contextmanager
def mounted(folder: Path, *words: str) -> Iterator[None]:
    """Mount something at a folder while the block lasts; skip the test where this is not allowed."""
    mount = subprocess.run(["mount", *words, str(folder)], capture_output=True, text=True, check=False)
    if mount.returncode:
        pytest.skip(f"cannot mount: {mount.stderr}")
    try:
        yield
    finally:
        # MLflow keeps the database open in this process.
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def disk(tmp_path: Path, fresh_database: Path) -> Iterator[Path]:
    """A small disk, with a root on it that has an empty store."""
    folder = tmp_path / "disk"
    folder.mkdir()
    with mounted(folder, "-t", "tmpfs", "-o", "size=16m", "tmpfs"):
        (folder / "root" / "runs").mkdir(parents=True)
        shutil.copy(fresh_database, folder / "root" / "runs" / "mlflow.db")
        yield folder


def test_a_first_launch_on_a_full_disk_is_one_line_and_leaves_no_database(milbench: Milbench, tmp_path: Path) -> None:
    (folder := tmp_path / "disk").mkdir()
    with mounted(folder, "-t", "tmpfs", "-o", "size=300k", "tmpfs"):
        assert "is full" in milbench(*WORDS, "--root", str(folder)).complaint()
        assert not list(folder.rglob("*.db"))


def last_values(root: Path) -> dict[str, dict[int, float]]:
    """Return the last value of a metric at every epoch, of every cell that is done."""
    store = client(root)
    experiments = [e.experiment_id for e in store.search_experiments()]
    done = store.search_runs(experiments, "tags.`milbench.kind` = 'cell' and attributes.status = 'FINISHED'")
    assert len({run.info.run_name for run in done}) == len(done)
    return {
        run.info.run_name: {m.step: m.value for m in store.get_metric_history(run.info.run_id, "test/instance_error")}
        for run in done
    }


@pytest.fixture
def expected(milbench: Milbench, root: Path) -> dict[str, dict[int, float]]:
    """The values of the comparison where nothing goes wrong."""
    assert milbench(*WORDS).code == 0
    values = last_values(root)
    assert [sorted(epochs) for epochs in values.values()] == [[1, 2, 3]] * 2
    assert all(math.isfinite(value) for epochs in values.values() for value in epochs.values())
    return values


def test_a_launch_on_a_full_disk_ends_in_one_line_and_is_continued_when_there_is_space(
    milbench: Milbench, disk: Path, tmp_path: Path, expected: dict[str, dict[int, float]]
) -> None:
    root, ballast, gate = disk / "root", disk / "ballast", tmp_path / "gate"
    words = (*WORDS, "-p", f"task.gate={gate}", "--root", str(root))

    def fill() -> None:
        with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(bytes(4096)):
                pass

    with in_the_second_epoch(gate, fill):
        ended = milbench(*words)
    assert ended.code == 1
    assert len(ended.err.splitlines()) == 1, ended.err
    assert "No space left on device" in ended.err or "disk is full" in ended.err
    assert "Traceback" not in ended.out
    ballast.unlink()
    assert milbench(*words).code == 0
    assert last_values(root) == expected


def test_a_root_on_a_read_only_disk_can_be_read(milbench: Milbench, root: Path, tmp_path: Path) -> None:
    words = ("run", "--loss", "exact", "--task", TINY)
    assert milbench(*words).code == 0
    archive = tmp_path / "archive"
    archive.mkdir()
    with mounted(archive, "--bind", str(root)):
        subprocess.run(["mount", "-o", "remount,ro,bind", str(archive)], check=True)
        assert "cannot write under --root" in milbench(*words, "--root", str(archive)).complaint()
        assert "1 of 1 cells done" in milbench("status", "--root", str(archive)).out


def test_a_launch_waits_for_a_database_that_another_process_has_locked(
    milbench: Milbench, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # MLflow's own patience ends after 20 seconds, which the test does not have.
    text = sqlalchemy.sql.text
    monkeypatch.setattr(
        "sqlalchemy.sql.text", lambda words: text(words.replace("busy_timeout = 20000", "busy_timeout = 200"))
    )
    gate = tmp_path / "gate"

    def lock() -> None:
        other = sqlite3.connect(root / "runs" / "mlflow.db")
        other.execute("begin exclusive")
        gate.touch()
        time.sleep(3)
        other.close()

    with in_the_second_epoch(gate, lock):
        ran = milbench(*WORDS, "-p", f"task.gate={gate}")
    assert ran.code == 0, ran
    assert [sorted(epochs) for epochs in last_values(root).values()] == [[1, 2, 3]] * 2
