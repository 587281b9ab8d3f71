"""Damaged files of a store: they are named in one line, used by no command, and computed again."""

import contextlib
import errno
import io
import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from milbench import UsageError
from milbench.store.cell_folder import LISTED, CellFolder
from milbench.store.folders import Root, results
from tests._helpers.command_line import TINY, Milbench, Ran
from tests._helpers.damage import DAMAGES, damage, numbers

WORDS = ["run", "--task", TINY, "--loss", "exact", "--seeds", "0-1", "-p", "recipe.epochs=3"]
FILES = [*LISTED, "result.json"]
"""All files that may belong to a finished cell: result.json lists the others."""


@pytest.fixture
def store(milbench: Milbench, root: Path) -> tuple[CellFolder, CellFolder]:
    """The folders of two finished cells of a store."""
    milbench(*WORDS).done()
    first, second = Root(root).plan().cells
    return Root(root).cell(first.id), Root(root).cell(second.id)


def makes_damage(how: str, name: str, folder: CellFolder, other: CellFolder) -> bool:
    """Return whether a cell counts as damaged after one of its files was changed.

    Args:
        how: the way in which the file is changed, one of DAMAGES.
        name: the name of the file.
        folder: the cell.
        other: another cell, with whose file it may be swapped.
    """
    own_file = folder.path / name
    if not own_file.exists():
        return False
    if how == "swapped":
        # Two cells may have files of the same content.
        return own_file.read_bytes() != (other.path / name).read_bytes()
    # A cell without its result counts as unfinished, not as damaged.
    return not (how == "deleted" and name == "result.json")


@contextlib.contextmanager
def whole_afterwards(folder: CellFolder, scratch: Path) -> Iterator[None]:
    """Copy a cell before the block, and put the copy in place of the cell after it."""
    shutil.copytree(folder.path, scratch / "whole")
    yield
    shutil.rmtree(folder.path)
    shutil.move(scratch / "whole", folder.path)


@pytest.mark.parametrize("how", DAMAGES)
def test_nothing_of_a_damaged_cell_is_used(
    how: str, root: Path, store: tuple[CellFolder, CellFolder], tmp_path: Path
) -> None:
    """All files of one cell are tried in turn, since a cell for each file would take long."""
    folder, other = store
    tried = [name for name in FILES if makes_damage(how, name, folder, other)]
    assert tried
    for name in tried:
        with whole_afterwards(folder, tmp_path):
            damage(folder.path / name, how, other.path / name)
            assert folder.state().is_damaged, name
            found = results(root)
            metrics = found.frame.loc[found.frame["cell"] == folder.id, "metric"].astype(str)
            assert set(metrics) == {""}, name
            assert found.folders.keys() == {other.id}, name
            with pytest.raises(UsageError, match=f"cell {folder.id} .* is damaged: "):
                Root(root).find(folder.id)


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_cell_is_named_and_computed_again(
    how: str, milbench: Milbench, root: Path, store: tuple[CellFolder, CellFolder]
) -> None:
    folder, other = store
    whole = numbers(root)
    damage(folder.path / "history.csv", how, other.path / "history.csv")
    said = milbench(*WORDS).done()
    assert f"cell {folder.id} (tiny, exact, seed 0) is damaged: " in said
    assert numbers(root) == whole


# The exit code is 1 where the damaged cell is not done (status) or its values are not copied (sync,
# export). A report shows the other cells, and a dry run says that the cell would be computed again.
@pytest.mark.mirrored
@pytest.mark.parametrize(
    ("words", "code"),
    [
        pytest.param(["status"], 1, id="status"),
        pytest.param(["report"], 0, id="report"),
        pytest.param(["sync"], 1, id="sync"),
        pytest.param(["export", "--out", "{folder}/x.csv"], 1, id="export"),
        pytest.param([*WORDS, "--dry-run"], 0, id="dry run"),
    ],
)
def test_a_command_names_a_damaged_cell_in_one_line(
    milbench: Milbench,
    store: tuple[CellFolder, CellFolder],
    tmp_path: Path,
    words: list[str],
    code: int,
) -> None:
    folder, other = store
    damage(folder.path / "history.csv", "a line missing", other.path / "history.csv")
    ran = milbench(*[word.format(folder=tmp_path) for word in words])
    assert ran.code == code
    assert ran.out.count(f"cell {folder.id} (tiny, exact, seed 0) is damaged: history.csv") == 1


def test_predict_refuses_a_damaged_cell(
    milbench: Milbench, store: tuple[CellFolder, CellFolder]
) -> None:
    folder, other = store
    damage(folder.path / "history.csv", "a line missing", other.path / "history.csv")
    complaint = milbench("predict", "x.png", "--cell", folder.id).complaint()
    assert "damaged: history.csv" in complaint


@pytest.fixture
def with_large_weights(
    store: tuple[CellFolder, CellFolder], monkeypatch: pytest.MonkeyPatch
) -> CellFolder:
    """A cell whose weights were swapped with another cell's, of the same size.

    They count as large weights, which commands read only if they use them.
    """
    monkeypatch.setattr("milbench.store.cell_folder.SMALL_WEIGHTS", 0)
    folder, other = store
    damage(folder.weights, "swapped", other.weights)
    return folder


def test_status_does_not_read_large_weights(
    milbench: Milbench, with_large_weights: CellFolder
) -> None:
    # Reading the large weights of all cells would take long.
    milbench("status").done()


def test_damaged_large_weights_are_seen_when_they_are_used(
    milbench: Milbench, with_large_weights: CellFolder
) -> None:
    complaint = milbench("predict", "x.png", "--cell", with_large_weights.id).complaint()
    assert "damaged: weights.safetensors" in complaint


def test_damaged_large_weights_are_seen_before_a_launch(
    milbench: Milbench, with_large_weights: CellFolder
) -> None:
    assert "is damaged: weights.safetensors" in milbench(*WORDS).out


class Faults:
    """Lets the n-th access to the disk below a folder fail, as on a full disk.

    Accesses are writes, fsync, renames, unlinks, and opening a file to write.
    """

    def __init__(self, folder: Path, n: int, error: int, patch: pytest.MonkeyPatch) -> None:
        self.folder = str(folder)
        self.error = error
        self.left = n
        """How many accesses are left until one fails; at 0 or below it has failed."""
        # `Path.open`, by which milbench opens all files that it writes in a store, calls io.open.
        patch.setattr(io, "open", partial(self._open_stream, io.open))
        patch.setattr(os, "open", partial(self._open_descriptor, os.open))
        # fsync takes the number of a file, not its path: it counts wherever the file is.
        patch.setattr(os, "fsync", partial(self._call, os.fsync))
        for name in ("replace", "rename", "unlink"):
            patch.setattr(os, name, partial(self._call_with_path, getattr(os, name)))

    def _is_below(self, path: Any) -> bool:
        return str(path).startswith(self.folder)

    def _call(self, call: Callable[..., Any], *args: Any, **named: Any) -> Any:
        self._strike(args[0])
        return call(*args, **named)

    def _call_with_path(self, call: Callable[..., Any], *args: Any, **named: Any) -> Any:
        if self._is_below(args[0]):
            self._strike(args[0])
        return call(*args, **named)

    def _open_descriptor(
        self, call: Callable[..., Any], path: Any, flags: int, *args: Any, **named: Any
    ) -> Any:
        is_for_writing = flags & (os.O_WRONLY | os.O_RDWR)
        if is_for_writing and self._is_below(path):
            self._strike(path)
        return call(path, flags, *args, **named)

    def _open_stream(
        self, call: Callable[..., Any], path: Any, mode: str = "r", *args: Any, **named: Any
    ) -> Any:
        if mode in ("r", "rb") or not self._is_below(path):
            return call(path, mode, *args, **named)
        self._strike(path)
        file = call(path, mode, *args, **named)
        write = file.write

        # A disk that becomes full still takes the first part of what is written.
        def write_perhaps_half(content: Any) -> Any:
            try:
                self._strike(path)
            except OSError:
                write(content[: len(content) // 2])
                raise
            return write(content)

        file.write = write_perhaps_half
        return file

    def _strike(self, path: Any) -> None:
        """Count an access, and raise an error if it is the n-th."""
        self.left -= 1
        if self.left == 0:
            raise OSError(self.error, os.strerror(self.error), str(path))


def check_faults(milbench: Milbench, folder: Path, step: int, error: int) -> None:
    """Let one access to the disk fail, give the command again, and check that it then ends well.

    This is done for the first access of a command, and for every `step`-th access after it. `error`
    is the error that an access fails with.
    """
    words = ["run", "--task", TINY, "--loss", "exact", "-p", "recipe.epochs=2", "--root"]
    milbench(*words, str(folder / "whole")).done()
    whole = numbers(folder / "whole")
    for n in itertools.count(1, step):
        root = folder / f"{error}-{n}"
        with pytest.MonkeyPatch.context() as patch:
            faults = Faults(root / "runs", n, error, patch)
            ran = milbench(*words, str(root))
        check_fault_is_named(ran, error, n)
        has_plan = (root / "runs/tiny.json").exists()
        if has_plan:
            states = Root(root).states(Root(root).plan().cells)
            assert {state.status for state in states.values()} <= {"missing", "done"}, (n, ran)
        again = milbench(*words, str(root))
        assert again.code == 0, (n, again)
        assert numbers(root) == whole, n
        shutil.rmtree(root)
        if faults.left > 0:
            # The command ended before its n-th access: all accesses were tried.
            assert n > 50, "a command has more than 50 accesses"
            return


def check_fault_is_named(ran: Ran, error: int, n: int) -> None:
    """Check that a command has named the error of the disk in one line.

    A command that succeeds in spite of the error need not name it.
    """
    said = ran.out + ran.err
    assert "Traceback" not in said, n
    naming = [line for line in said.splitlines() if os.strerror(error) in line]
    assert len(naming) <= 1, (n, ran)
    if ran.code == 0:
        return
    assert len(naming) == 1, (n, ran)
    # With exit code 1 the launch has ended without a cell that the disk stopped, which counts as
    # missing. With any other code the command was refused.
    is_cell_missing = ran.code == 1
    if not is_cell_missing:
        assert ran.complaint(), n


def test_a_disk_that_fails_costs_no_cell(milbench: Milbench, tmp_path: Path) -> None:
    check_faults(milbench, tmp_path, step=23, error=errno.ENOSPC)


@pytest.mark.kills
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO], ids=["full", "broken"])
def test_a_disk_that_fails_at_any_access_costs_no_cell(
    milbench: Milbench, tmp_path: Path, error: int
) -> None:
    check_faults(milbench, tmp_path, step=1, error=error)
