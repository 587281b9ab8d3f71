"""The database of a workspace: killed while it is made, copied, moved, of another MLflow, and at any path."""

from __future__ import annotations

import itertools
import shutil
import sqlite3
import time
from pathlib import Path

import pytest
from mlflow import MlflowClient
from sqlalchemy import event
from sqlalchemy.engine import Engine

from milbench._utils import locks
from milbench.errors import UsageError
from milbench.store import database
from milbench.store.reader import StoreReader
from milbench.store.workspace import Workspace
from milbench.store.writer import StoreWriter
from tests._helpers.command_line import TINY, Milbench
from tests._helpers.forked import Forked

RUN = ("run", "--loss", "exact", "--task", TINY)


def maker(root: Path) -> Forked:
    """Start a process that opens the store of a root, and makes it if there is none."""
    return Forked(_make, root)


def _make(root: Path) -> None:
    store = StoreWriter(Workspace(root).make())
    print(sorted(store.experiments))


def _make_half(root: Path, halfway: Path) -> None:
    """Make the store until MLflow has made half of its tables, and wait there to be killed."""
    statements = itertools.count(1)

    def wait_at_the_hundredth(*_: object) -> None:
        if next(statements) == 100:
            halfway.touch()
            time.sleep(600)

    event.listen(Engine, "before_cursor_execute", wait_at_the_hundredth)
    _make(root)


def revision(path: Path) -> str:
    with sqlite3.connect(path) as connection:
        return str(connection.execute("select version_num from alembic_version").fetchone()[0])


def test_two_first_launches_at_once_both_work(tmp_path: Path) -> None:
    both = [maker(tmp_path / "root") for _ in range(2)]
    for process in both:
        out, err = process.communicate(timeout=120)
        assert (process.returncode, out) == (0, "['Default']\n"), err
    assert sorted(path.name for path in (tmp_path / "root" / "runs").iterdir()) == [
        "artifacts", "checkpoints", "mlflow.db", "workspace.id"]  # fmt: skip


def test_a_launch_killed_while_it_makes_the_store_leaves_nothing_that_stops_the_next(tmp_path: Path) -> None:
    root = tmp_path / "root"
    process = Forked(_make_half, root, tmp_path / "halfway")
    while not (tmp_path / "halfway").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)
    process.kill()
    process.communicate()
    assert not (root / "runs" / "mlflow.db").exists()
    assert StoreWriter(Workspace(root).make()).names().empty
    assert not list((root / "runs").glob(".mlflow*"))


def test_a_database_that_a_kill_of_an_earlier_version_left_unfinished_is_made_anew(
    milbench: Milbench, tmp_path: Path
) -> None:
    root = tmp_path / "old"
    (root / "runs").mkdir(parents=True)
    with sqlite3.connect(root / "runs" / "mlflow.db") as half:
        half.execute("create table experiments (experiment_id integer)")
    assert "there is no store" in milbench("status", "--root", str(root)).complaint()
    assert milbench(*RUN, "--root", str(root)).code == 0
    assert (root / "runs" / "mlflow.db.unfinished").exists()


def test_a_root_may_have_any_name(milbench: Milbench, tmp_path: Path) -> None:
    name = 'a b ü%20#? c%2Fd&e=f;g quote\'s "and" [brackets]'
    root = tmp_path / "place" / name
    assert milbench(*RUN, "--root", str(root)).code == 0
    assert "1 of 1 cells done" in milbench("status", "--root", str(root)).out
    assert milbench("report", "--root", str(root), "--gallery", "none").code == 0
    assert [path.name for path in (tmp_path / "place").iterdir()] == [name]
    assert (root / "runs" / "mlflow.db").exists()


def test_links_to_folders_that_are_gone_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    stores = [tmp_path / "a store", tmp_path / "a store far away", tmp_path / "another store"]
    scratch = [tmp_path / "temporary" / "an export", stores[0] / ".mlflow.db-1"]
    for folder in (*stores, *scratch):
        folder.mkdir()
    kept, away, *left = [database._alias(folder) for folder in (*stores[:2], *scratch)]
    for folder in (*scratch, stores[1]):
        folder.rmdir()
    last = database._alias(stores[2])
    assert [link.is_symlink() for link in (kept, away, *left, last)] == [True, True, False, False, True]


def test_a_copy_writes_into_itself_and_a_moved_root_is_complete(milbench: Milbench, root: Path, tmp_path: Path) -> None:
    assert milbench(*RUN).code == 0
    copy, moved = tmp_path / "copy", tmp_path / "moved"
    shutil.copytree(root, copy)
    shutil.move(root, moved)
    for place in (copy, moved):
        assert "2 cells, 1 to run" in milbench(*RUN, "--seeds", "0-1", "--root", str(place)).out
        assert "2 of 2 cells done" in milbench("status", "--root", str(place)).out
        assert milbench("report", "--root", str(place)).code == 0
        weights = (place / "runs" / "artifacts").glob("*/artifacts/model.safetensors")
        assert len(list(weights)) == 2
    assert not root.exists()


def test_the_artifacts_of_an_earlier_version_are_found_where_the_root_is_now(root: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    old = MlflowClient(f"sqlite:///{root / 'runs' / 'mlflow.db'}")
    experiment = old.create_experiment("mine", artifact_location=(root / "runs" / "artifacts").as_uri())
    run = old.create_run(experiment).info.run_id
    old.log_text(run, "four", "data_digest.txt")
    shutil.move(root, moved)
    store = StoreWriter(Workspace(moved))
    digest = store.artifact(run, "data_digest.txt")
    assert digest is not None
    assert digest.read_text("utf-8") == "four"
    with sqlite3.connect(moved / "runs" / "mlflow.db") as connection:
        assert connection.execute("select artifact_uri from runs").fetchall() == [
            (f"mlflow-artifacts:/{run}/artifacts",)
        ]


def test_a_database_of_an_older_mlflow_is_upgraded_and_kept(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from alembic import command
    from mlflow.store.db.utils import _get_alembic_config

    path = root / "runs" / "mlflow.db"
    newest = revision(path)
    MlflowClient(f"sqlite:///{path}").create_run("0", tags={"milbench.kind": "cell", "milbench.cell": "a"})
    config = _get_alembic_config(f"sqlite:///{path}")
    command.downgrade(config, "-1")
    older = revision(path)
    assert older != newest
    with locks.try_lock(Workspace(root).lock("busy")), pytest.raises(UsageError, match="other launches are using it"):
        StoreWriter(Workspace(root).make())
    assert len(StoreReader(Workspace(root)).search("cell")) == 1, "reading needs no upgrade"
    assert len(StoreWriter(Workspace(root).make()).search("cell")) == 1
    assert (revision(path), revision(path.with_name(f"mlflow.db.{older}"))) == (newest, older)


def test_a_database_of_a_later_mlflow_is_refused_in_one_line(milbench: Milbench, root: Path) -> None:
    assert milbench(*RUN).code == 0
    path = root / "runs" / "mlflow.db"
    with sqlite3.connect(path) as connection:
        connection.execute("update alembic_version set version_num = 'ffffffffffff'")
    before = path.read_bytes()
    said = milbench(*RUN, "--seeds", "1").complaint()
    assert "made by another version of MLflow (schema ffffffffffff)" in said
    assert path.read_bytes() == before
    assert "1 of 1 cells done" in milbench("status").out


def test_a_lost_plan_is_named_and_the_rest_goes_on(milbench: Milbench, root: Path) -> None:
    assert milbench(*RUN).code == 0
    assert milbench("run", "--loss", "noisy-or", "--task", TINY).code == 0
    _, first = StoreReader(Workspace(root)).launches()
    (root / "runs" / "artifacts" / first.run_id / "artifacts" / "plan.json").unlink()
    ran = milbench("status")
    assert ran.code == 0
    assert "lost: plan.json of the launch of" in ran.out
    assert first.run_id in ran.out
    assert milbench("report").code == 0
    assert first.run_id in (root / "reports" / "tiny_task" / "report.md").read_text()
    shutil.rmtree(root / "runs" / "artifacts")
    assert "run the same command again" in milbench("status").complaint()
    assert milbench(*RUN).code == 0
    assert "1 of 1 cells done" in milbench("status").out


def test_the_address_of_a_plain_path_is_the_path() -> None:
    assert database.address(Path("/a/b-c_d.e/mlflow.db")) == "sqlite:////a/b-c_d.e/mlflow.db"
