"""Files of a store that the system does not let milbench read.

They are named and left alone, since their content may be whole. A pipe, a folder or another strange
thing in place of a file stops no command.
"""

import errno
import json
import os
import shutil
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from milbench.store.cell_folder import CellFolder, Incomplete
from milbench.store.folders import Root
from milbench.training.epoch_evaluation import evaluate
from tests._helpers.command_line import TINY, Milbench
from tests._helpers.damage import numbers

ONE_CELL = ("run", "--task", TINY, "--loss", "exact", "-p", "recipe.epochs=3")
WORDS = (*ONE_CELL, "--seeds", "0-1")
# Files of a finished cell.
NAMES = ("result.json", "cell.json", "history.csv", "predictions.npz", "weights.safetensors")

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The path of a root with two finished cells, which the first test makes and all tests copy."""
    return tmp_path_factory.mktemp("shared") / "root"


@pytest.fixture
def cell(milbench: Milbench, root: Path, shared: Path) -> CellFolder:
    """The folder of the first of two finished cells, in a root of the test's own."""
    if not shared.exists():
        milbench(*WORDS, "--root", str(shared)).done()
    shutil.copytree(shared, root)
    return Root(root).cell(Root(root).plan().cells[0].id)


def refuse(refused: Path, error: int, patch: pytest.MonkeyPatch) -> None:
    """Let the system refuse to open a file, with this error number."""
    open_file = os.open

    def refusing_open(path: object, *args: int, **named: int) -> int:
        if str(path) == str(refused):
            raise OSError(error, os.strerror(error), str(refused))
        return open_file(path, *args, **named)  # type: ignore[arg-type]

    patch.setattr(os, "open", refusing_open)


def content_of(folder: CellFolder) -> dict[str, bytes]:
    """Return the content of every file of a cell, by its name."""
    return {path.name: path.read_bytes() for path in folder.path.iterdir()}


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(errno.EACCES, id="not permitted"),
        pytest.param(errno.EIO, id="broken disk"),
        pytest.param(errno.ESTALE, id="lost by the server"),
        pytest.param(errno.EMFILE, id="too many open files"),
    ],
)
def test_run_leaves_an_unreadable_cell_alone(
    milbench: Milbench, cell: CellFolder, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    before = content_of(cell)
    with monkeypatch.context() as patch:
        refuse(cell.path / "history.csv", error, patch)
        ran = milbench(*WORDS)
    assert ran.code == 1
    line = f"{cell.path}/history.csv cannot be read: {os.strerror(error)}; it is left alone"
    assert ran.out.count(line) == 1
    assert content_of(cell) == before


def test_run_says_when_the_same_command_goes_on_with_an_unreadable_cell(
    milbench: Milbench, cell: CellFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(cell.path / "history.csv", errno.EACCES, monkeypatch)
    end = (
        "1 cell not readable and left alone; the same command continues once the files can be read"
    )
    assert end in milbench(*WORDS).out


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("command", ["status", "report"])
def test_status_and_report_name_the_unreadable_file(
    milbench: Milbench,
    cell: CellFolder,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    command: str,
) -> None:
    refuse(cell.path / name, errno.EACCES, monkeypatch)
    said = milbench(command).out
    lines = [line for line in said.splitlines() if line.startswith(f"cell {cell.id}")]
    assert len(lines) == 1
    assert f"{cell.path / name} cannot be read: Permission denied" in lines[0]


def test_rerun_of_all_leaves_an_unreadable_cell_alone(
    milbench: Milbench, cell: CellFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = content_of(cell)
    refuse(cell.path / "result.json", errno.EIO, monkeypatch)
    ran = milbench(*WORDS, "--rerun", "all", "--quiet")
    assert ran.code == 1
    assert "result.json cannot be read" in ran.err
    assert content_of(cell) == before


def test_an_unreadable_cell_is_done_once_it_can_be_read_again(
    milbench: Milbench, root: Path, cell: CellFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = numbers(root)
    with monkeypatch.context() as patch:
        refuse(cell.weights, errno.EIO, patch)
        assert milbench(*WORDS).code == 1
    assert ", 0 to run" in milbench(*WORDS).done()
    assert numbers(root) == whole


@pytest.mark.parametrize("name", ["checkpoint.pt", "history.csv", "cell.json", "error.txt"])
def test_an_unfinished_cell_keeps_a_file_that_cannot_be_read(
    milbench: Milbench, cell: CellFolder, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (cell.path / "result.json").unlink()
    (cell.path / name).touch()
    before = content_of(cell)
    refuse(cell.path / name, errno.EIO, monkeypatch)
    assert milbench(*WORDS).code == 1
    assert content_of(cell) == before


def test_a_link_to_nothing_in_a_cell_is_left_alone(milbench: Milbench, cell: CellFolder) -> None:
    cell.weights.unlink()
    cell.weights.symlink_to("unmounted")
    assert milbench(*WORDS).code == 1
    assert cell.weights.is_symlink()
    assert f"{cell.weights} cannot be read: it is a link to nothing" in milbench("status").out


def put_socket(path: Path) -> None:
    """Put a socket at a path, on which no process listens any more."""
    # The address of a socket has at most some 100 characters: the path may be longer, and so the
    # socket is made from within its folder, by its name alone.
    here = Path.cwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    finally:
        os.chdir(here)


def put_sparse(path: Path) -> None:
    """Put a sparse file at a path: it has 8 GiB, but takes up no space on the disk."""
    path.touch()
    os.truncate(path, 8 << 30)


STRANGE: dict[str, Callable[[Path], object]] = {
    "named pipe": os.mkfifo,
    "socket": put_socket,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "folder": Path.mkdir,
    "8,589,934,592 bytes": put_sparse,
}
"""What may stand in place of a file, as messages name it -> a function that puts it there."""


@pytest.mark.parametrize("name", ["result.json", "weights.safetensors"])
@pytest.mark.parametrize("put", STRANGE.values(), ids=[*STRANGE])
def test_a_cell_without_a_proper_file_is_computed_again(
    milbench: Milbench, root: Path, cell: CellFolder, name: str, put: Callable[[Path], object]
) -> None:
    whole = numbers(root)
    (cell.path / name).unlink()
    put(cell.path / name)
    assert f"cell {cell.id} (tiny, exact, seed 0) is damaged: " in milbench("status").out
    milbench(*WORDS).done()
    assert numbers(root) == whole


@pytest.mark.parametrize("name", ["checkpoint.pt", "history.csv"])
@pytest.mark.parametrize("put", STRANGE.values(), ids=[*STRANGE])
def test_an_unfinished_cell_goes_on_without_a_proper_file(
    milbench: Milbench, root: Path, cell: CellFolder, name: str, put: Callable[[Path], object]
) -> None:
    whole = numbers(root)
    (cell.path / "result.json").unlink()
    (cell.path / name).unlink(missing_ok=True)
    put(cell.path / name)
    assert milbench("status").code == 1
    milbench(*WORDS).done()
    assert numbers(root) == whole


STRANGE_PLANS = STRANGE | {"link to nothing": lambda path: path.symlink_to("nothing")}


@pytest.mark.parametrize(("what", "put"), STRANGE_PLANS.items(), ids=[*STRANGE_PLANS])
def test_a_strange_thing_in_place_of_a_plan_stops_no_other_comparison(
    milbench: Milbench, root: Path, cell: CellFolder, what: str, put: Callable[[Path], object]
) -> None:
    plan = root / "runs/q.json"
    put(plan)
    lines = milbench("status").done().splitlines()
    assert len([line for line in lines if str(plan) in line and what in line]) == 1
    assert "2 of 2 cells done" in lines
    assert what in milbench("status", "q").complaint()
    assert what in milbench(*WORDS, "--name", "q").complaint()
    assert ", 0 to run" in milbench(*WORDS).done()
    assert "tiny" in milbench("list", "runs").done()


def test_a_damaged_plan_does_not_hide_other_plans_in_the_list(
    milbench: Milbench, root: Path, cell: CellFolder
) -> None:
    (root / "runs/q.json").write_text("{")
    said = milbench("list", "runs").done()
    assert "q.json: the plan is damaged" in said
    assert "tiny" in said


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["status"], id="status"),
        pytest.param(["report"], id="report"),
        pytest.param(WORDS, id="run"),
    ],
)
def test_a_plan_that_may_not_be_read_is_left_alone(
    milbench: Milbench,
    root: Path,
    cell: CellFolder,
    monkeypatch: pytest.MonkeyPatch,
    words: Sequence[str],
) -> None:
    plan = root / "runs/tiny.json"
    before = plan.read_bytes()
    refuse(plan, errno.EACCES, monkeypatch)
    complaint = milbench(*words).complaint()
    assert f"{plan} cannot be read: Permission denied; the plan is left alone" in complaint
    assert plan.read_bytes() == before


def test_a_cell_that_loses_its_folder_while_it_is_computed_is_missing(
    milbench: Milbench, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        change_at_epoch(2, root, shutil.rmtree, patch)
        ran = milbench(*ONE_CELL)
    assert ran.code == 1
    assert "not finished: history.csv was removed while the cell was computed" in ran.out
    assert "0 of 1 cell done, 1 missing" in milbench("status").out
    milbench(*ONE_CELL).done()


def change_at_epoch(
    changed_epoch: int, root: Path, change: Callable[[Path], object], patch: pytest.MonkeyPatch
) -> None:
    """Let the folder of the cell be changed from outside before an epoch is evaluated."""

    def evaluate_changed(setup: Any, epoch: int, *args: Any) -> object:
        if epoch == changed_epoch:
            for folder in Root(root).folders():
                change(folder.path)
        return evaluate(setup, epoch, *args)

    patch.setattr("milbench.training.train.evaluate", evaluate_changed)


def write_every_epoch_twice(folder: Path) -> None:
    history = folder / "history.csv"
    text = history.read_text()
    _, _, without_header = text.partition("\n")
    history.write_text(text + without_header)


def add_damaged_line(folder: Path) -> None:
    history = folder / "history.csv"
    history.write_bytes(history.read_bytes() + b"\xff\n")


def change_epochs(folder: Path) -> None:
    about = json.loads((folder / "cell.json").read_text())
    about["cell"]["recipe"]["epochs"] = 1
    (folder / "cell.json").write_text(json.dumps(about))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        pytest.param(write_every_epoch_twice, "history.csv has an epoch twice", id="epoch twice"),
        pytest.param(add_damaged_line, "history.csv has a damaged line", id="damaged line"),
        pytest.param(change_epochs, "cell.json is not that of this cell", id="another cell"),
    ],
)
def test_a_cell_that_is_changed_while_it_is_computed_is_missing(
    milbench: Milbench,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Path], None],
    why: str,
) -> None:
    with monkeypatch.context() as patch:
        change_at_epoch(3, root, change, patch)
        ran = milbench(*ONE_CELL)
    assert ran.code == 1
    assert f"not finished: {why}" in ran.out
    milbench(*ONE_CELL).done()
    assert "1 of 1 cell done" in milbench("status").out


@pytest.mark.parametrize("name", ["cell.json", "history.csv"])
def test_a_cell_is_not_finished_without_a_file(cell: CellFolder, name: str) -> None:
    result = cell.result()
    (cell.path / "result.json").unlink()
    (cell.path / name).unlink()
    with pytest.raises(Incomplete, match=f"{name} is gone"):
        cell.finish(result)
    assert not cell.is_done


def remove_first_epoch(cell: CellFolder) -> None:
    path = cell.path / "history.csv"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if not line.startswith("1,")))


def test_a_cell_is_not_finished_without_an_epoch(cell: CellFolder) -> None:
    result = cell.result()
    (cell.path / "result.json").unlink()
    remove_first_epoch(cell)
    with pytest.raises(Incomplete, match=r"history.csv lacks epoch 1"):
        cell.finish(result)
    assert not cell.is_done


def test_a_done_cell_that_lacks_an_epoch_is_damaged(
    milbench: Milbench, root: Path, cell: CellFolder
) -> None:
    whole = numbers(root)
    remove_first_epoch(cell)
    # An older version of milbench finished such a cell; `finish` would refuse it now.
    cell.write_result(cell.result())
    assert "is damaged: history.csv lacks epoch 1" in milbench("status").out
    milbench(*WORDS).done()
    assert numbers(root) == whole


@pytest.mark.parametrize(
    "progress",
    [
        pytest.param('{"epoch": 3}', id="incomplete"),
        pytest.param('{"epoch": [1], "epochs": null}', id="no numbers"),
        pytest.param("[]", id="a list"),
    ],
)
def test_a_damaged_file_of_progress_does_not_stop_status(
    milbench: Milbench, cell: CellFolder, progress: str
) -> None:
    (cell.path / "result.json").unlink()
    (cell.path / "progress.json").write_text(progress)
    assert "1 of 2 cells done, 1 missing" in milbench("status").out


def test_an_epoch_too_large_for_the_frame_is_dropped(
    milbench: Milbench, root: Path, cell: CellFolder, tmp_path: Path
) -> None:
    (cell.path / "result.json").unlink()
    cell.fail("it failed")
    too_large = 10**30
    rows = f"1,a,0.5\n{too_large},a,0.5\n"
    (cell.path / "history.csv").write_text(f"epoch,metric,value\n{rows}")
    assert cell.history() == [(1, "a", 0.5)]
    milbench("export", "--out", str(tmp_path / "frame.csv")).done()


def test_cells_behind_a_link_to_nothing_are_not_missing(
    milbench: Milbench, root: Path, cell: CellFolder
) -> None:
    folder = cell.path.parent
    folder.rename(root / "elsewhere")
    folder.symlink_to("unmounted")
    assert f"{folder} cannot be read: it is a link to nothing" in milbench("status").complaint()


def test_a_file_that_a_user_puts_into_a_cell_stays(milbench: Milbench, cell: CellFolder) -> None:
    (cell.path / "notes").mkdir()
    (cell.path / "notes/mine.txt").write_text("mine")
    milbench(*WORDS).done()
    assert (cell.path / "notes/mine.txt").read_text() == "mine"
