"""Processes that compute cells: what kills one fails its own cell alone, and a cluster loses none."""

import contextlib
import json
import os
import signal
import sys
import threading
import time
import warnings
from pathlib import Path

import joblib  # noqa: F401 it sets a variable of the environment when it is imported first
import psutil
import pytest

from milbench.engine.cell import CellFolder
from milbench.engine.folders import Root, results
from milbench.engine.run import worker_count
from milbench.engine.worker import free_device
from tests._helpers.command_line import HOSTILE, LOSS, TINY, Milbench, process, wait_for

AWAY = os.environ | {
    "MLFLOW_TRACKING_URI": "http://127.0.0.1:9"
}  # the environment of a process whose MLflow is away
REASONS = {
    "exit 5": "SystemExit: 5 (hostile_loss.py:",
    "odd": "OddError: <exception str() failed> (hostile_loss.py:",
    "interrupt": "KeyboardInterrupt (hostile_loss.py:",
    "assert": "RuntimeError: CUDA error: device-side assert triggered",
    "kill": "the process died (",
    "leave": "the process died (",
    "hang": "it took longer than 12 seconds, in hostile_loss.py:",
}


def state_of(root: Path) -> dict[str, tuple[str, str]]:
    place = Root(root)
    plan = place.plan()
    states = place.states(plan.cells)
    return {
        plan.labels[cell.id].loss: (states[cell.id].status, states[cell.id].reason)
        for cell in plan.cells
    }


@pytest.mark.timeout(280)
def test_what_a_plug_in_does_to_its_process_fails_its_own_cell_alone(
    milbench: Milbench, root: Path
) -> None:
    """One of them ends the process of the check as well."""
    words, how = ["run", "--task", TINY, "--loss", f"{HOSTILE},exact", "-p"], "loss.hostile.how="
    ran = milbench(*words, f"{how}{','.join(REASONS)}", "--jobs", "2", "-p", "run.timeout=12")
    assert ran.code == 1, ran
    assert "Traceback" not in ran.out + ran.err
    assert f"{len(REASONS)} cells failed; to try again, add --rerun failed" in ran.out
    states = state_of(root)
    assert states.pop("exact")[0] == "done"
    reasons = {
        label.partition("how=")[2]: reason[: len(REASONS[label.partition("how=")[2]])]
        for label, (_, reason) in states.items()
    }
    assert reasons == REASONS
    again = milbench(*words, f"{how}kill")
    assert again.code == 1
    assert "1 cell failed; to try again, add --rerun failed" in again.out


@pytest.mark.timeout(280)
def test_what_a_plug_in_changes_of_its_process_is_as_before_for_the_next_cell(
    milbench: Milbench, root: Path, tmp_path: Path
) -> None:
    words = ["run", "--task", TINY, "--loss"]
    assert milbench(*words, "exact", "--root", str(tmp_path / "alone")).code == 0
    (alone,) = Root(tmp_path / "alone").cells.glob("*/weights.safetensors")
    before = Path.cwd(), dict(os.environ), sys.path[0], sys.getrecursionlimit(), [*warnings.filters]
    for place, where in (
        (root, ["-p", "run.in_process=true"]),
        (tmp_path / "there", ["--jobs", "1"]),
    ):
        ran = milbench(
            *words,
            f"{HOSTILE},exact",
            "-p",
            "loss.hostile.how=change",
            *where,
            "--root",
            str(place),
        )
        assert state_of(place)["exact"][0] == "done", ran
        assert (
            Root(place).cells / alone.parent.name / alone.name
        ).read_bytes() == alone.read_bytes()
        assert (
            Path.cwd(),
            dict(os.environ),
            sys.path[0],
            sys.getrecursionlimit(),
            [*warnings.filters],
        ) == before
    (output,) = Root(place).cells.glob("*/output.txt")
    assert output.parent.name != alone.parent.name
    assert "printed in a step\n" in output.read_text()


def test_what_the_import_of_a_file_does_is_not_seen_by_the_launch(
    milbench: Milbench, root: Path, tmp_path: Path
) -> None:
    file = tmp_path / "loud_loss.py"
    file.write_text(
        f"import os\nprint('loud')\nos.environ['LEFT_BEHIND'] = os.chdir('/') or '1'\n{LOSS.read_text()}"
    )
    before = Path.cwd()
    ran = milbench("run", "--loss", str(file), "--task", TINY, "--jobs", "1")
    assert (ran.code, "loud\n" in ran.out + ran.err) == (0, False), ran
    assert (Path.cwd(), os.environ.get("LEFT_BEHIND")) == (before, None)
    assert [path.read_text() for path in Root(root).cells.glob("*/output.txt")] == ["loud\n"]
    file = file.with_name("leaves.py")
    file.write_text("import os\nos._exit(0)\n")
    complaint = milbench("run", "--loss", str(file), "--task", TINY).complaint()
    assert complaint == f"cannot import the loss file {file} in a process of its own: exit code 0"


def test_cells_that_ask_for_tf32_alone_get_it(
    milbench: Milbench, root: Path, tmp_path: Path
) -> None:
    tab, file = "\n" + 8 * " ", tmp_path / "tells.py"
    tells = f"bag_loss(self, *w):{tab}print(torch.backends.cudnn.allow_tf32){tab}return self.value(*w)\n\n    def value"
    file.write_text(f"import torch\n{LOSS.read_text().replace('bag_loss', tells, 1)}")
    milbench(
        "run",
        "--loss",
        str(file),
        "--task",
        TINY,
        "-p",
        "recipe.precision=tf32,float32",
        "--jobs",
        "1",
    ).done()
    told = {
        c.recipe["precision"]: Root(root).cells / c.id / "output.txt"
        for c in Root(root).plan().cells
    }
    assert {p: {*path.read_text().split()} for p, path in told.items()} == {
        "tf32": {"True"},
        "float32": {"False"},
    }


@pytest.mark.parametrize(("number", "children"), [(signal.SIGINT, 1), (signal.SIGHUP, 2)])
def test_a_signal_while_processes_start_is_one_line(
    number: signal.Signals, children: int, root: Path
) -> None:
    heeded = signal.signal(
        signal.SIGHUP, signal.SIG_DFL
    )  # under nohup what is started here would ignore it
    running = process(
        "run", "--loss", "exact", "--task", TINY, "--jobs", "1", "--root", str(root), env=AWAY
    )
    signal.signal(signal.SIGHUP, heeded)
    while len(psutil.Process(running.pid).children()) < children:
        assert running.poll() is None, running.communicate()
        time.sleep(0.01)
    os.killpg(running.pid, number)  # as a terminal sends it
    _, err = running.communicate(timeout=120)
    assert (running.returncode, err) == (130, "milbench: interrupted\n")


@pytest.mark.timeout(280)
def test_a_launcher_that_is_interrupted_or_killed_leaves_no_worker_and_the_next_command_goes_on(
    milbench: Milbench, root: Path, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    words = [
        "run",
        "--loss",
        "exact",
        "--task",
        TINY,
        "-p",
        "recipe.epochs=3",
        "-p",
        f"task.gate={gate}",
    ]
    there = ["--jobs", "1", "--root", str(root)]
    running = process(*words, *there, env=AWAY)
    wait_for(running, tmp_path, "gate.reached")
    os.killpg(running.pid, signal.SIGINT)  # as a terminal sends it
    out, err = running.communicate(timeout=60)
    assert running.returncode == 130, (out, err)
    assert "0 of 1 cell done; the same command continues" in out
    assert "Traceback" not in out + err
    assert state_of(root)["exact"][0] == "missing"
    (tmp_path / "gate.reached").unlink()
    running = process(*words, *there, env=AWAY)
    wait_for(running, tmp_path, "gate.reached")
    (path,) = Root(root).cells.glob("*/progress.json")
    worker = psutil.Process(json.loads(path.read_text())["pid"])
    os.kill(running.pid, signal.SIGKILL)
    with contextlib.suppress(psutil.NoSuchProcess):
        worker.wait(timeout=20)
    assert not worker.is_running()
    before = CellFolder(path.parent).history()
    assert {epoch for epoch, _, _ in before} == {1, 2}
    gate.touch()
    milbench(*words).done()
    assert CellFolder(path.parent).history()[: len(before)] == before, (
        "it went on from its checkpoint"
    )


@pytest.mark.timeout(280)
def test_a_cluster_computes_cells_in_its_workers_and_survives_the_loss_of_one(
    root: Path, tmp_path: Path
) -> None:
    pytest.importorskip("distributed")
    gate = tmp_path / "gate"
    running = process(
        "run", "--loss", "exact,noisy-or,one-vs-rest,max-pooling", "--task", TINY, "--cluster", "local:2", "--root",
        str(root), "-p", "recipe.epochs=3", "-p", f"task.gate={gate}", "-p", "run.threads=1",
        env=AWAY,
    )  # fmt: skip
    while len([*Root(root).cells.glob("*/history.csv")]) < 2:
        assert running.poll() is None, running.communicate()
        time.sleep(0.05)
    pids = {
        json.loads(path.read_text())["pid"] for path in Root(root).cells.glob("*/progress.json")
    }
    assert len(pids) == 2, "two processes"
    assert running.pid not in pids
    os.kill(pids.pop(), signal.SIGKILL)
    gate.touch()
    out, err = running.communicate(timeout=240)
    assert running.returncode == 0, (out, err)
    assert {status for status, _ in state_of(root).values()} == {"done"}
    assert "all 4 cells are done" in out


def test_shards_of_one_plan_end_with_what_one_process_computes(
    milbench: Milbench, root: Path, tmp_path: Path
) -> None:
    words = ["run", "--loss", "exact,noisy-or", "--task", TINY, "--seeds", "0-2"]
    for part in ("1/3", "2/3", "3/3"):
        assert milbench(*words, "--shard", part).code == 0
    assert milbench(*words, "--root", str(tmp_path / "whole")).code == 0
    frames = [
        results(place).frame.query("~metric.str.startswith('cost')")
        for place in (root, tmp_path / "whole")
    ]
    assert len(frames[0]) > 0
    first, second = (
        frame.drop(columns="run").astype(str).sort_values(["cell", "metric", "epoch"])
        for frame in frames
    )
    assert first.to_numpy().tolist() == second.to_numpy().tolist()


def test_cells_take_free_slots_of_devices(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two devices with two slots each, which four cells hold at once; a fifth one waits until one of them ends."""
    import torch

    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(free_device(["cuda:0", "cuda:1"], 2)) for _ in range(4)]
        assert sorted(held) == ["cuda:0", "cuda:0", "cuda:1", "cuda:1"]
        fifth: list[str] = []

        def wait() -> None:
            with free_device(["cuda:0", "cuda:1"], 2) as device:
                fifth.append(device)

        waiting = threading.Thread(target=wait, daemon=True)
        waiting.start()
        time.sleep(0.3)
        assert not fifth
    waiting.join(10)
    assert fifth


@pytest.mark.parametrize(
    ("devices", "cells", "jobs", "expected"),
    [
        (["cpu"], 1, None, (1, 1)),
        (["cpu"], 99, 5, (5, 1)),
        (["cuda:0", "cuda:1"], 9, None, (2, 1)),
        (["cuda:0", "cuda:1"], 9, 6, (6, 3)),
        (["cuda:0", "cuda:1"], 9, 3, (3, 2)),
    ],
)
def test_as_many_cells_at_a_time_as_devices_have_slots(
    devices: list[str], cells: int, jobs: int | None, expected: tuple[int, int]
) -> None:
    assert worker_count(devices, cells, jobs) == expected
