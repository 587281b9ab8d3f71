"""Processes that compute cells, on this machine or a cluster.

If a process dies, only its own cell fails.
"""

import contextlib
import json
import os
import signal
import sys
import threading
import time
import warnings
from pathlib import Path

import psutil
import pytest

from milbench.running.cells_in_processes import Capacity, capacity
from milbench.running.worker import free_device
from milbench.store.cell_folder import CellFolder, State
from milbench.store.folders import Root, results
from tests._helpers.command_line import HOSTILE, LOSS, TINY, Milbench, process, wait_for

AWAY = os.environ | {"MLFLOW_TRACKING_URI": "http://127.0.0.1:9"}
"""The environment of a process whose MLflow server does not answer."""

REASONS = {
    "exit 5": "SystemExit: 5 (hostile_loss.py:",
    "odd": "OddError: <exception str() failed> (hostile_loss.py:",
    "interrupt": "KeyboardInterrupt (hostile_loss.py:",
    "assert": "RuntimeError: CUDA error: device-side assert triggered",
    "kill": "its process died: it was killed by SIGKILL, perhaps because memory ran out",
    "leave": "its process died: it ended with exit code 0",
    "hang": "it took longer than 12 seconds, in hostile_loss.py:",
    "hold": "it took longer than 12 seconds, in hostile_loss.py:",
    "stop": "it took longer than 12 seconds",
}
"""What the hostile loss does to its process -> how the reason of its failed cell begins."""


def states_by_loss(root: Path) -> dict[str, State]:
    """Return the state of each cell of the last comparison, by the label of its loss."""
    store = Root(root)
    plan = store.plan()
    states = store.states(plan.cells)
    return {plan.labels[cell.id].loss: states[cell.id] for cell in plan.cells}


@pytest.fixture(scope="module")
def hostile_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root after a launch of `exact` and of the hostile loss with each key of REASONS."""
    root = tmp_path_factory.mktemp("hostile") / "root"
    words = ["run", "--task", TINY, "--loss", f"{HOSTILE},exact"]
    words += ["-p", f"loss.hostile.how={','.join(REASONS)}", "-p", "run.timeout=12"]
    ran = process(*words, "--jobs", "2", "--root", str(root), env=AWAY)
    out, err = ran.communicate(timeout=270)
    assert ran.returncode == 1, (out, err)
    assert "Traceback" not in out + err
    assert f"{len(REASONS)} cells failed; to try again, add --rerun failed" in out
    return root


@pytest.mark.timeout(280)
@pytest.mark.parametrize("how", REASONS)
def test_a_failed_cell_says_what_happened_to_its_process(how: str, hostile_root: Path) -> None:
    state = states_by_loss(hostile_root)[f"hostile how={how}"]
    assert state.status == "failed"
    assert state.reason.startswith(REASONS[how])


@pytest.mark.timeout(280)
def test_the_cells_beside_a_hostile_plug_in_are_done(hostile_root: Path) -> None:
    assert states_by_loss(hostile_root)["exact"].status == "done"


@pytest.mark.timeout(280)
def test_a_process_of_a_plug_in_ends_with_its_cell(milbench: Milbench, root: Path) -> None:
    words = ["run", "--task", TINY, "--loss", HOSTILE, "-p", "loss.hostile.how=child"]
    milbench(*words, "--jobs", "1").done()
    # The loss prints the ids of the processes that it starts.
    (output,) = Root(root).cells.glob("*/output.txt")
    pids = {int(line) for line in output.read_text().splitlines()}
    assert pids
    assert not [pid for pid in pids if psutil.pid_exists(pid)]


CHANGES = ("-p", "loss.hostile.how=change")
"""The setting with which the hostile loss prints, and changes all that it can in its process."""


def test_changes_by_a_plug_in_reach_no_other_cell(
    milbench: Milbench, root: Path, tmp_path: Path
) -> None:
    words = ["run", "--task", TINY, "--loss"]
    milbench(*words, "exact", "--root", str(tmp_path / "alone")).done()
    (alone,) = Root(tmp_path / "alone").cells.glob("*/weights.safetensors")
    milbench(*words, f"{HOSTILE},exact", *CHANGES, "--jobs", "1")
    same_cell = Root(root).cells / alone.parent.name / alone.name
    assert same_cell.read_bytes() == alone.read_bytes()


def test_what_a_plug_in_prints_is_kept_beside_its_cell(milbench: Milbench, root: Path) -> None:
    milbench("run", "--task", TINY, "--loss", HOSTILE, *CHANGES, "--jobs", "1")
    (output,) = Root(root).cells.glob("*/output.txt")
    assert "printed in a step\n" in output.read_text()


def state_of_this_process() -> dict[str, object]:
    """Return settings of this process that a plug-in might change."""
    return {
        "folder": Path.cwd(),
        "environment": dict(os.environ),
        "first folder of modules": sys.path[0],
        "recursion limit": sys.getrecursionlimit(),
        "warning filters": [*warnings.filters],
    }


def test_a_cell_leaves_the_launching_process_as_it_was(milbench: Milbench, root: Path) -> None:
    before = state_of_this_process()
    words = ["run", "--task", TINY, "--loss", f"{HOSTILE},exact", *CHANGES]
    milbench(*words, "-p", "run.in_process=true")
    assert state_of_this_process() == before
    assert states_by_loss(root)["exact"].status == "done"


LOUD = """
import os
print('loud')
os.environ['LEFT_BEHIND'] = '1'
os.chdir('/')
"""
"""Code that prints and changes its process when it is imported."""


def test_what_a_plug_in_does_when_imported_does_not_reach_the_launch(
    milbench: Milbench, root: Path, tmp_path: Path
) -> None:
    file = tmp_path / "loud_loss.py"
    file.write_text(LOUD + LOSS.read_text())
    before = Path.cwd()
    ran = milbench("run", "--loss", str(file), "--task", TINY, "--jobs", "1")
    ran.done()
    assert "loud\n" not in ran.out + ran.err
    assert Path.cwd() == before
    assert "LEFT_BEHIND" not in os.environ
    (output,) = Root(root).cells.glob("*/output.txt")
    assert output.read_text() == "loud\n"


def test_a_plug_in_that_exits_when_imported_is_refused(milbench: Milbench, tmp_path: Path) -> None:
    file = tmp_path / "leaves.py"
    file.write_text("import os\nos._exit(0)\n")
    complaint = milbench("run", "--loss", str(file), "--task", TINY).complaint()
    how = "it ended with exit code 0"
    assert complaint == f"cannot import the loss file {file} in a process of its own: {how}"


TELLS_TF32 = """
import torch

from milbench import Loss


class Tells(Loss):
    name = "tells"

    def bag_loss(self, logits, labels, mask):
        print(torch.backends.cudnn.allow_tf32)
        return logits.square().mean(dim=(1, 2))

    def scores(self, logits, mask):
        return logits[:, :-1, 0]
"""


def test_only_cells_that_ask_for_tf32_get_it(
    milbench: Milbench, root: Path, tmp_path: Path
) -> None:
    file = tmp_path / "tells.py"
    file.write_text(TELLS_TF32)
    precisions = ["-p", "recipe.precision=tf32,float32"]
    milbench("run", "--loss", str(file), "--task", TINY, *precisions, "--jobs", "1").done()
    printed = {}
    for cell in Root(root).plan().cells:
        output = Root(root).cells / cell.id / "output.txt"
        printed[cell.recipe.precision] = set(output.read_text().split())
    assert printed == {"tf32": {"True"}, "float32": {"False"}}


@pytest.mark.usefixtures("heeds_hangups")
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_while_processes_start_ends_the_command_with_one_line(
    sent: signal.Signals, root: Path
) -> None:
    words = ["run", "--loss", "exact", "--task", TINY, "--jobs", "1", "--root", str(root)]
    running = process(*words, env=AWAY)
    while not psutil.Process(running.pid).children():
        assert running.poll() is None, running.communicate()
        time.sleep(0.01)
    # A terminal sends a signal to all processes of the command.
    os.killpg(running.pid, sent)
    _, err = running.communicate(timeout=120)
    assert running.returncode == 130
    assert err == "milbench: interrupted\n"


def gated_words(gate: Path) -> list[str]:
    """Return the command of a cell of three epochs, which waits for `gate` before the last one."""
    epochs = ["-p", "recipe.epochs=3", "-p", f"task.gate={gate}"]
    return ["run", "--loss", "exact", "--task", TINY, *epochs, "--jobs", "1"]


@pytest.mark.timeout(280)
def test_an_interrupted_launch_says_how_far_it_came(root: Path, tmp_path: Path) -> None:
    running = process(*gated_words(tmp_path / "gate"), "--root", str(root), env=AWAY)
    wait_for(running, tmp_path, "gate.reached")
    # A terminal sends a signal to all processes of the command.
    os.killpg(running.pid, signal.SIGINT)
    out, err = running.communicate(timeout=60)
    assert running.returncode == 130, (out, err)
    assert "0 of 1 cell done; the same command continues" in out
    assert "Traceback" not in out + err
    assert states_by_loss(root)["exact"].status == "missing"


@pytest.mark.timeout(280)
def test_the_next_command_goes_on_where_a_killed_launch_was(
    milbench: Milbench, root: Path, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    running = process(*gated_words(gate), "--root", str(root), env=AWAY)
    wait_for(running, tmp_path, "gate.reached")
    (path,) = Root(root).cells.glob("*/progress.json")
    worker = psutil.Process(json.loads(path.read_text())["pid"])
    os.kill(running.pid, signal.SIGKILL)
    with contextlib.suppress(psutil.NoSuchProcess):
        worker.wait(timeout=20)
    assert not worker.is_running()
    folder = CellFolder(path.parent)
    before = folder.history()
    assert {epoch for epoch, _, _ in before} == {1, 2}
    gate.touch()
    milbench(*gated_words(gate)).done()
    assert folder.history()[: len(before)] == before


@pytest.mark.timeout(280)
def test_a_cluster_survives_the_loss_of_a_worker(root: Path, tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    gate = tmp_path / "gate"
    words = ["run", "--loss", "exact,noisy-or,one-vs-rest,max-pooling", "--task", TINY]
    words += ["-p", "recipe.epochs=3", "-p", f"task.gate={gate}", "-p", "run.threads=1"]
    running = process(*words, "--cluster", "local:2", "--root", str(root), env=AWAY)
    # Wait until two cells have begun. They then wait at the gate before their last epoch.
    while len([*Root(root).cells.glob("*/history.csv")]) < 2:
        assert running.poll() is None, running.communicate()
        time.sleep(0.05)
    files = [*Root(root).cells.glob("*/progress.json")]
    pids = {json.loads(path.read_text())["pid"] for path in files}
    assert len(pids) == 2, "two processes"
    assert running.pid not in pids
    os.kill(pids.pop(), signal.SIGKILL)
    gate.touch()
    out, err = running.communicate(timeout=240)
    assert running.returncode == 0, (out, err)
    assert {state.status for state in states_by_loss(root).values()} == {"done"}
    assert "all 4 cells are done" in out


@pytest.mark.timeout(600)
def test_a_cell_that_kills_workers_fails_alone(milbench: Milbench, root: Path) -> None:
    pytest.importorskip("distributed")
    words = ["run", "--loss", f"{HOSTILE},exact,noisy-or", "--task", TINY, "--cluster", "local:2"]
    ran = milbench(*words, "-p", "loss.hostile.how=kill worker")
    assert ran.code == 1
    statuses = {label: state.status for label, state in states_by_loss(root).items()}
    assert statuses == {"hostile": "failed", "exact": "done", "noisy-or": "done"}


def test_shards_of_one_plan_end_with_what_one_process_computes(
    milbench: Milbench, root: Path, tmp_path: Path
) -> None:
    words = ["run", "--loss", "exact,noisy-or", "--task", TINY, "--seeds", "0-2"]
    for part in ("1/3", "2/3", "3/3"):
        milbench(*words, "--shard", part).done()
    milbench(*words, "--root", str(tmp_path / "whole")).done()
    by_shards = measured(root)
    assert by_shards
    assert by_shards == measured(tmp_path / "whole")


def measured(root: Path) -> list[list[str]]:
    """Return the sorted rows of the frame of a root, without costs and the names of runs."""
    frame = results(root).frame.query("~metric.str.startswith('cost')").drop(columns="run")
    rows: list[list[str]] = (
        frame.astype(str).sort_values(["cell", "metric", "epoch"]).to_numpy().tolist()
    )
    return rows


def test_cells_take_free_slots_of_devices(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Four cells hold the two slots of both devices. A fifth cell waits until a cell ends."""
    import torch

    devices = ["cuda:0", "cuda:1"]
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    taken_by_fifth: list[str] = []

    def take_fifth() -> None:
        with free_device(devices, cells_per_gpu=2) as device:
            taken_by_fifth.append(device)

    fifth = threading.Thread(target=take_fifth, daemon=True)
    with contextlib.ExitStack() as stack:
        taken = [stack.enter_context(free_device(devices, cells_per_gpu=2)) for _ in range(4)]
        assert sorted(taken) == ["cuda:0", "cuda:0", "cuda:1", "cuda:1"]
        fifth.start()
        # If there were a free slot, the fifth cell would take it within this time.
        time.sleep(0.3)
        assert not taken_by_fifth
    fifth.join(10)
    assert taken_by_fifth


TWO_GPUS = ["cuda:0", "cuda:1"]


@pytest.mark.parametrize(
    ("devices", "cells", "jobs", "expected"),
    [
        pytest.param(["cpu"], 1, None, Capacity(1, cells_per_gpu=1), id="one cell on a CPU"),
        pytest.param(["cpu"], 99, 5, Capacity(5, cells_per_gpu=1), id="five jobs on a CPU"),
        pytest.param(TWO_GPUS, 9, None, Capacity(2, cells_per_gpu=1), id="two GPUs"),
        pytest.param(TWO_GPUS, 9, 6, Capacity(6, cells_per_gpu=3), id="six jobs on two GPUs"),
        pytest.param(TWO_GPUS, 9, 3, Capacity(3, cells_per_gpu=2), id="three jobs on two GPUs"),
    ],
)
def test_as_many_cells_at_a_time_as_devices_have_slots(
    devices: list[str], cells: int, jobs: int | None, expected: Capacity
) -> None:
    assert capacity(devices, cells, jobs) == expected
