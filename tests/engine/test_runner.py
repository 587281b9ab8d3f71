from __future__ import annotations

import errno
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from safetensors import safe_open

from milbench.api.outcomes import load_outcomes
from milbench.engine.planning import make_plan
from milbench.engine.runner import _stoppable
from milbench.engine.spec import make_spec
from milbench.engine.trainer import STOP_INTERVAL, Trainer
from milbench.engine.worker import Job, JobResult, check_worker, compute_cell
from milbench.store.collect import collect
from milbench.store.reader import StoreReader
from milbench.store.workspace import Workspace
from tests._helpers.command_line import PLUGINS, TINY, Milbench, process, wait_for
from tests._helpers.forked import Forked
from tests._helpers.short_timings import USERS_WINDOW

BREAKING = str(PLUGINS / "breaking_loss.py")


def _under_nohup(words: list[str]) -> None:
    """Run the command line as nohup starts it: with the signal of a closed terminal ignored."""
    from milbench.cli import main

    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    sys.argv = ["milbench", *words]
    main.main()


def runs_by_status(root: Path) -> dict[str, int]:
    """How many runs have each status, read from the database itself, not by the code under test."""
    with sqlite3.connect(root / "runs" / "mlflow.db") as database:
        return dict(database.execute("select status, count(*) from runs group by status").fetchall())


def test_a_comparison_from_flags_to_store(milbench: Milbench, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "milbench.engine.profiling.WINDOW", USERS_WINDOW
    )  # a shorter one is over before the machine counts its load
    ran = milbench("run", "--loss", "exact,noisy-or", "--task", TINY, "--seeds", "0-1")
    assert ran.code == 0, ran
    assert "4 cells, 4 to run" in ran.out
    assert ran.out.count("done    tiny") == 4
    results = collect(StoreReader(Workspace(root)), "tiny_task")
    assert set(results.cells.status) == {"done"}
    assert set(results.history.metric) == {
        "train/loss", "train/clipped", "validation/instance_error", "test/instance_error"}  # fmt: skip
    assert sorted(set(results.history.epoch)) == [1, 2]
    assert (results.costs.drop(columns="busy") > 0).all().all()
    assert results.costs["busy"].between(0, 1).all()
    assert len(results.galleries) == len(results.outcomes) == 4
    for cell, path in results.outcomes.items():
        history = results.history[(results.history.cell == cell) & (results.history.metric == "test/instance_error")]
        assert load_outcomes(path)["instance_error"].value == pytest.approx(history.value.iloc[-1])
    for cell, tags in results.provenance.items():
        assert tags["device"] == "cpu"
        assert tags["decoder"] == "corners"
        assert tags["library.torch"]
        assert results.params[cell]["recipe.lr"] == 0.05
    assert "--loss exact,noisy-or" in results.command


def test_parent_and_children_in_the_store(milbench: Milbench, root: Path) -> None:
    milbench("run", "--loss", "exact", "--task", TINY, "--seeds", "0-1")
    with sqlite3.connect(root / "runs" / "mlflow.db") as database:
        tags = database.execute("select run_uuid, value from tags where key = 'mlflow.parentRunId'").fetchall()
        inputs = database.execute("select name, digest from datasets").fetchall()
        params = dict(database.execute("select key, value from params").fetchall())
    assert len(tags) == 2
    assert len({parent for _, parent in tags}) == 1
    assert inputs == [("tiny", "tiny of 5")]
    assert params["recipe.optimizer"] == "adamw"
    run = collect(StoreReader(Workspace(root))).cells.run_id.iloc[0]
    kept = root / "runs" / "artifacts" / run / "artifacts"
    assert {"model.safetensors", "gallery.npz"} <= {p.name for p in kept.iterdir()}
    with safe_open(kept / "model.safetensors", "pt") as weights:
        about = json.loads(weights.metadata()["milbench"])
    assert about["name"] == "exact on tiny, seed 0"
    assert about["classes"] == ["0", "1", "2"]
    assert list(about["task"]) == ["tiny"]
    assert about["data"] == "tiny of 5"
    assert "licence of the training data" in about["licence"]
    tagged = StoreReader(Workspace(root)).records([run])[run].tags
    assert tagged.get("mlflow.source.git.commit", "") == about["commit"] == tagged["milbench.code"]
    assert not list((root / "runs" / "checkpoints").glob("*.pt"))


def test_what_is_done_is_not_done_again(milbench: Milbench, root: Path) -> None:
    milbench("run", "--loss", "exact", "--task", TINY, "--seeds", "0-1")
    before = StoreReader(Workspace(root)).cell_runs()
    again = milbench("run", "--loss", "exact,noisy-or", "--task", TINY, "--seeds", "1,0")
    assert again.code == 0
    assert "4 cells, 2 to run" in again.out
    after = StoreReader(Workspace(root)).cell_runs()
    assert {k: after[k] for k in before} == before
    assert "nothing to run" in milbench("run", "--loss", "exact", "--task", TINY, "--seeds", "0-1").out
    everything = milbench("run", "--loss", "exact", "--task", TINY, "--seeds", "0-1", "--rerun", "all")
    assert "2 cells, 2 to run" in everything.out
    assert all(StoreReader(Workspace(root)).cell_runs()[k].run_id != before[k].run_id for k in before)


def test_dry_run_writes_nothing(milbench: Milbench, root: Path, tmp_path: Path) -> None:
    before = {path: path.is_file() and path.read_bytes() for path in root.rglob("*")}
    ran = milbench("run", "--loss", "exact", "--task", TINY, "--dry-run")
    assert ran.code == 0
    assert "1 cells, 1 to run" in ran.out
    assert {path: path.is_file() and path.read_bytes() for path in root.rglob("*")} == before
    nowhere = tmp_path / "nowhere"
    assert milbench("run", "--loss", "exact", "--task", TINY, "--dry-run", "--root", str(nowhere)).code == 0
    assert not nowhere.exists()


@pytest.mark.parametrize("where", [["--in-process"], ["--jobs", "2"]])
def test_a_failing_cell_leaves_the_others_alone(milbench: Milbench, root: Path, where: list[str]) -> None:
    ran = milbench("run", "--loss", f"{BREAKING},exact", "--task", TINY, "--seeds", "0-1", *where)
    assert ran.code == 1
    assert ran.out.count("failed") >= 2
    assert ran.out.count("done    tiny") == 2
    results = collect(StoreReader(Workspace(root)))
    failed = results.cells[results.cells.loss == "breaking"]
    assert set(failed.status) == {"failed"}
    assert set(failed.reason) == {"RuntimeError: the loss | broke in two lines <b> (breaking_loss.py:31)"}
    assert set(results.cells[results.cells.loss == "exact"].status) == {"done"}
    traceback = root / "runs" / "artifacts" / failed.run_id.iloc[0] / "artifacts" / "traceback.txt"
    assert "breaking_loss.py" in traceback.read_text()
    status = milbench("status")
    assert status.code == 1
    assert "the loss | broke" in status.out
    # By default failed cells are counted, not computed again; --rerun failed computes them.
    left = milbench("run", "--loss", f"{BREAKING},exact", "--task", TINY, "--seeds", "0-1")
    assert left.code == 1
    assert "2 cells are not done" in left.out
    again = milbench("run", "--loss", BREAKING, "--task", TINY, "--rerun", "failed", "-p", "loss.after=3")
    assert "1 to run" in again.out


def test_fail_fast_stops_at_the_first_failure(milbench: Milbench, root: Path) -> None:
    ran = milbench("run", "--loss", f"{BREAKING},exact", "--task", TINY, "--fail-fast")
    assert ran.code == 1
    statuses = dict(collect(StoreReader(Workspace(root))).cells.set_index("loss").status)
    assert statuses == {"breaking": "failed", "exact": "missing"}
    assert "RUNNING" not in runs_by_status(root)


def test_a_worker_that_dies_takes_down_its_own_cell_alone(milbench: Milbench, root: Path) -> None:
    # The cell of exact is still being computed, in another process, when that of the breaking loss dies.
    ran = milbench("run", "--loss", f"exact,{BREAKING},noisy-or", "--task", TINY, "--jobs", "2", "--epochs", "4",
                   "-p", "loss.how=die", "-p", "loss.after=10", "-p", "task.batches=50")  # fmt: skip
    assert ran.code == 1
    results = collect(StoreReader(Workspace(root)))
    statuses = dict(results.cells.set_index("loss").status)
    assert statuses == {"exact": "done", "breaking": "failed", "noisy-or": "done"}, ran
    assert "died" in results.cells.set_index("loss").reason["breaking"]


HELD = ("run", "--loss", "exact,noisy-or", "--task", TINY, "--epochs", "3", "-p")
"""Before a parameter of the task: the file that a cell waits for in its third epoch."""
ALONE = ("--in-process", "--threads", "1")


@pytest.mark.parametrize(("how", "where"), [(signal.SIGINT, ["--jobs", "2"]), (signal.SIGTERM, ["--in-process"])])
def test_an_interrupt_leaves_a_clean_store_and_the_same_command_continues(
    milbench: Milbench, root: Path, tmp_path: Path, how: signal.Signals, where: list[str]
) -> None:
    words = (*HELD, f"task.gate={tmp_path / 'gate'}")
    running = process(*words, *where, "--threads", "1", "--root", str(root))
    wait_for(running, tmp_path, "gate.reached")
    os.killpg(running.pid, how)
    wait_for(running, root / "runs" / "checkpoints", "*.stop")
    time.sleep(STOP_INTERVAL)  # a cell that asked just before the gate would not ask again before its end
    (tmp_path / "gate").touch()
    out, err = running.communicate(timeout=60)
    assert running.returncode == 130, (out, err)
    assert "interrupted" in out
    assert "Traceback" not in err
    assert set(runs_by_status(root)) == {"KILLED"}
    ran = milbench(*words)
    assert ran.code == 0
    assert set(collect(StoreReader(Workspace(root))).cells.status) == {"done"}


def test_a_second_interrupt_does_not_wait_for_a_cell_that_never_ends(
    milbench: Milbench, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOSTILE_MARK", str(root / "struck"))
    words = ("run", "--loss", str(PLUGINS / "hostile_loss.py"), "--task", TINY, "-p", "loss.how=sleep", "--jobs", "1")
    running = process(*words, "--root", str(root))
    wait_for(running, root, "struck")
    os.kill(running.pid, signal.SIGTERM)
    wait_for(running, root / "runs" / "checkpoints", "*.stop")
    with pytest.raises(subprocess.TimeoutExpired):
        running.wait(timeout=1)
    os.kill(running.pid, signal.SIGTERM)
    out, err = running.communicate(timeout=60)
    assert running.returncode == 130, (out, err)
    assert "stopping: " in out
    assert runs_by_status(root) == {"KILLED": 2}
    assert "1 interrupted" in milbench("status").out


def test_a_killed_run_continues_in_its_own_run_and_ends_where_an_unbroken_one_does(
    milbench: Milbench, root: Path, tmp_path: Path, fresh_database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    from safetensors.torch import load_file

    words = (*HELD, f"task.gate={tmp_path / 'gate'}")
    running = process(*words, *ALONE, "--root", str(root))
    wait_for(running, tmp_path, "gate.reached")
    assert list((root / "runs" / "checkpoints").glob("*.pt"))
    os.killpg(running.pid, signal.SIGKILL)
    running.communicate(timeout=60)
    (tmp_path / "gate").touch()
    monkeypatch.setattr("platform.node", lambda: "another-machine")  # the store travels with its root
    before = milbench("status")
    assert "interrupted" in before.out
    interrupted = collect(StoreReader(Workspace(root))).cells
    resumed_run = interrupted[interrupted.status == "interrupted"].run_id.iloc[0]
    assert milbench(*words).code == 0
    after = collect(StoreReader(Workspace(root)))
    assert resumed_run in set(after.cells.run_id)
    assert "resumed" in after.provenance[after.cells[after.cells.run_id == resumed_run].index[0]]
    assert set(runs_by_status(root)) == {"FINISHED", "KILLED"}  # what the killed launch left open is closed

    other = tmp_path / "unbroken"
    (other / "runs").mkdir(parents=True)
    shutil.copy(fresh_database, other / "runs" / "mlflow.db")
    assert milbench(*words, "--root", str(other)).code == 0
    unbroken = collect(StoreReader(Workspace(other)))

    def weights(where: Path, run: str) -> dict[str, object]:
        found = load_file(where / "runs" / "artifacts" / run / "artifacts" / "model.safetensors")
        return {k: v.tolist() for k, v in found.items()}

    for cell in after.cells.index:
        assert weights(root, after.cells.run_id[cell]) == weights(other, unbroken.cells.run_id[cell])
    key = ["cell", "epoch", "metric"]
    assert after.history.sort_values(key, ignore_index=True).equals(
        unbroken.history.sort_values(key, ignore_index=True)
    )


def test_a_cell_that_another_process_computes_is_left_to_it(milbench: Milbench, root: Path, tmp_path: Path) -> None:
    gate = f"task.gate={tmp_path / 'gate'}"
    running = process(*HELD, gate, *ALONE, "--root", str(root))
    try:
        wait_for(running, tmp_path, "gate.reached")
        ran = milbench("run", "--loss", "exact", "--task", TINY, "--epochs", "3", "-p", gate)
        assert ran.code == 1
        assert "running" in ran.out
        assert "nothing to run, but 1 cells are being computed by another launch" in ran.out
        assert "--rerun" not in ran.out
    finally:
        os.killpg(running.pid, signal.SIGKILL)
        running.communicate(timeout=60)


def test_a_worker_that_opened_the_store_before_a_comparison_was_made_finds_its_runs(
    milbench: Milbench, root: Path
) -> None:
    workspace = Workspace(root).make()
    uri = StoreReader(workspace).uri
    for name in ("token", "launch.lock"):
        (workspace.checkpoints / name).touch()
    assert check_worker(str(root), uri, "token") == ""  # it is open in this process from here on
    words = ("run", "--loss", "exact", "--task", TINY, "--name", "made-since")
    assert milbench(*words, "--jobs", "2").code == 0
    cell = make_plan(make_spec({"name": "made-since", "losses": ["exact"], "tasks": [TINY]}), None).cells[0]
    run = StoreReader(workspace).cell_runs()[cell.id]
    job = Job(cell, "made-since", "launch", str(root), uri, device="cpu", threads=1, data_dir=None)
    found = compute_cell(job)
    assert (found.status, found.run_id, found.metrics) == ("done", run.run_id, None), "it is not computed again"


@pytest.mark.parametrize("how", [["--json"], ["--quiet"], []])
def test_a_launch_goes_on_when_nobody_reads_what_it_prints(root: Path, how: list[str]) -> None:
    words = ["run", "--loss", f"{BREAKING},exact", "--task", TINY, "--seeds", "0-1", *how, "--in-process"]
    assert process(*words, "--root", str(root), unread=True).wait(timeout=120) == 1
    cells = collect(StoreReader(Workspace(root))).cells
    assert cells.groupby("loss").status.agg(list).to_dict() == {"exact": ["done"] * 2, "breaking": ["failed"] * 2}


def test_a_terminal_that_was_closed_does_not_keep_cells_from_being_saved(tmp_path: Path) -> None:
    class OnDeadTerminal:
        def ended(self, result: JobResult) -> None: ...

        def stopping(self) -> None:
            raise OSError(errno.EIO, "the terminal is gone")

    asked = threading.Event()
    with _stoppable(tmp_path / "request", asked, OnDeadTerminal()):
        os.kill(os.getpid(), signal.SIGTERM)
        assert asked.wait(timeout=10)
    assert (tmp_path / "request").exists(), "workers are asked to stop"


def test_flags_add_up_and_a_spec_stands_for_itself(milbench: Milbench, root: Path, tmp_path: Path) -> None:
    milbench("run", "--loss", "exact", "--task", TINY, "--name", "mine")
    milbench("run", "--loss", "noisy-or", "--task", TINY, "--name", "mine")
    assert set(collect(StoreReader(Workspace(root)), "mine").cells.loss) == {"exact", "noisy-or"}
    spec = tmp_path / "mine.toml"
    spec.write_text(f"losses = ['max-pooling']\ntasks = ['{TINY}']\n")
    assert milbench("run", str(spec)).code == 0
    assert set(collect(StoreReader(Workspace(root)), "mine").cells.loss) == {"max-pooling"}


def test_results_survive_as_json_plan(milbench: Milbench, root: Path) -> None:
    milbench("run", "--loss", "exact", "--task", TINY)
    plan = next((root / "runs" / "artifacts").glob("*/artifacts/plan.json"))
    assert json.loads(plan.read_text())["cells"][0]["loss"] == "exact"


def test_a_cell_that_fails_when_it_is_computed_again_is_counted_as_failed(
    milbench: Milbench, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("run", "--loss", "exact", "--task", TINY)
    assert milbench(*words).code == 0

    def fails(self: Trainer) -> None:
        raise RuntimeError("not this time")

    monkeypatch.setattr(Trainer, "run", fails)
    ran = milbench(*words, "--rerun", "all")
    assert ran.code == 1
    assert runs_by_status(root) == {"FINISHED": 2, "FAILED": 2}, "a launch and a cell each, no cell twice"


def test_a_plug_in_that_fills_a_disk_of_its_own_fails_its_cell_alone(
    milbench: Milbench, root: Path, tmp_path: Path
) -> None:
    loss = tmp_path / "full_disk.py"
    loss.write_text(
        "import errno\nfrom milbench import Loss\n\n\nclass FullDisk(Loss):\n    name = 'full-disk'\n\n"
        "    def bag_loss(self, logits, labels, mask):\n        raise OSError(errno.ENOSPC, 'the disk is full')\n\n"
        "    def scores(self, logits, mask):\n        return logits[:, :-1, 0]\n"
    )
    ran = milbench("run", "--loss", f"{loss},exact", "--task", TINY)
    assert ran.code == 1
    cells = collect(StoreReader(Workspace(root))).cells.set_index("loss")
    assert dict(cells.status) == {"full-disk": "failed", "exact": "done"}


def test_nohup_keeps_a_launch_alive_when_its_terminal_is_closed(root: Path, tmp_path: Path) -> None:
    gate = f"task.gate={tmp_path / 'gate'}"
    words = ["run", "--loss", "exact", "--task", TINY, "--epochs", "3", "-p", gate, "--in-process", "--threads", "1"]
    with Forked(_under_nohup, [*words, "--root", str(root)]) as running:
        wait_for(running, tmp_path, "gate.reached")
        os.kill(running.pid, signal.SIGHUP)
        (tmp_path / "gate").touch()
        out, err = running.communicate(timeout=120)
    assert running.returncode == 0, (out, err)
    assert "1 of 1 cells done" in out


def test_what_killed_launches_have_left_is_swept_away(milbench: Milbench, root: Path) -> None:
    milbench("run", "--loss", "exact", "--task", TINY)
    (cell,) = StoreReader(Workspace(root)).cell_runs()
    checkpoints = root / "runs" / "checkpoints"
    for name in (f"{cell}.pt", f"{cell}.progress", f"{cell}.hang", "0123.stop", f".{cell}.pt.123", f"{cell}.damaged"):
        (checkpoints / name).write_text("left")
    (checkpoints / f"{cell}.artifacts").mkdir()
    (checkpoints / f"{cell}.artifacts" / "model.safetensors").write_text("left")
    milbench("run", "--loss", "exact,noisy-or", "--task", TINY)
    assert [path.name for path in checkpoints.iterdir() if path.suffix != ".lock"] == []
