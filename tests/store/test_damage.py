"""Files that are not as they were written: each is named in one line, used by no command, and computed again."""

import errno
import io
import itertools
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from milbench import UsageError
from milbench.store.cell_folder import LISTED, CellFolder
from milbench.store.folders import Root, results
from tests._helpers.command_line import TINY, Milbench
from tests._helpers.damage import DAMAGES, damage, numbers

WORDS = ["run", "--task", TINY, "--loss", "exact", "--seeds", "0-1", "-p", "recipe.epochs=3"]


@pytest.fixture
def store(milbench: Milbench, root: Path) -> tuple[CellFolder, CellFolder]:
    assert milbench(*WORDS).code == 0
    first, second = (Root(root).cell(cell.id) for cell in Root(root).plan().cells)
    return first, second


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_cell_is_not_done_and_computed_again(
    how: str, milbench: Milbench, root: Path, store: tuple[CellFolder, CellFolder], tmp_path: Path
) -> None:
    folder, other = store
    whole = numbers(root)
    for name in [*LISTED, "result.json"]:
        own, others = folder.path / name, other.path / name
        same = not own.exists() or (how == "swapped" and own.read_bytes() == others.read_bytes())
        if not same and (how, name) != ("deleted", "result.json"):
            shutil.copytree(folder.path, tmp_path / "whole")
            damage(own, how, others)
            assert folder.state().is_damaged, name
            frame = results(root).frame
            assert {*frame.loc[frame["cell"] == folder.id, "metric"].astype(str)} == {""}, (
                "no value of it is used"
            )
            assert results(root).folders.keys() == {other.id}
            with pytest.raises(UsageError, match=f"cell {folder.id} .* is damaged: "):
                Root(root).find(folder.id)
            shutil.rmtree(folder.path)
            shutil.move(tmp_path / "whole", folder.path)
    damage(folder.path / "history.csv", how, other.path / "history.csv")
    ran = milbench(*WORDS)
    assert ran.code == 0, ran
    assert f"cell {folder.id} (tiny, exact, seed 0) is damaged: " in ran.out
    assert numbers(root) == whole


@pytest.mark.mirrored
def test_every_command_names_a_damaged_cell_in_one_line(
    milbench: Milbench, root: Path, store: tuple[CellFolder, CellFolder], tmp_path: Path
) -> None:
    folder, other = store
    damage(folder.path / "history.csv", "a line missing", other.path / "history.csv")
    for words, code in (
        (["status"], 1), (["report"], 0), (["sync"], 1), (["export", "--out", str(tmp_path / "x.csv")], 1),
        ([*WORDS, "--dry-run"], 0),
    ):  # fmt: skip
        ran = milbench(*words)
        assert (
            ran.code,
            ran.out.count(f"cell {folder.id} (tiny, exact, seed 0) is damaged: history.csv"),
        ) == (code, 1)
    assert "damaged: history.csv" in milbench("predict", "x.png", "--cell", folder.id).complaint()


def test_damaged_weights_are_seen_when_read_and_before_launches(
    milbench: Milbench,
    root: Path,
    store: tuple[CellFolder, CellFolder],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("milbench.store.cell_folder.SMALL", 0)
    folder, other = store
    damage(folder.weights, "swapped", other.weights)
    assert milbench("status").code == 0, "to read the weights of all cells takes long"
    assert (
        "damaged: weights.safetensors"
        in milbench("predict", "x.png", "--cell", folder.id).complaint()
    )
    assert "is damaged: weights.safetensors" in milbench(*WORDS).out


class Faults:
    """Lets the n-th write, fsync, rename, unlink or opening for writing below a folder fail, as a full disk does."""

    def __init__(self, folder: Path, n: int, code: int, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.left, self.code = str(folder), n, code
        calls = {io: ["open"], os: ["replace", "rename", "unlink", "fsync", "open"]}
        for module, name in ((module, name) for module, names in calls.items() for name in names):
            patch.setattr(module, name, partial(self._call, getattr(module, name)))

    def _call(self, call: Callable[..., Any], *args: Any, **named: Any) -> Any:
        opens = call.__name__ == "open"
        mode = args[1] if len(args) > 1 else named.get("mode", "r")
        reads = opens and (
            mode in ("r", "rb") if isinstance(mode, str) else not mode & (os.O_WRONLY | os.O_RDWR)
        )
        if reads or not (call.__name__ == "fsync" or str(args[0]).startswith(self.folder)):
            return call(*args, **named)
        self._strike(args[0])
        result = call(*args, **named)
        if opens and isinstance(mode, str):
            write = result.write

            def half(content: Any) -> Any:
                try:
                    self._strike(args[0])
                except OSError:
                    write(content[: len(content) // 2])
                    raise
                return write(content)

            result.write = half
        return result

    def _strike(self, path: Any) -> None:
        self.left -= 1
        if self.left == 0:
            raise OSError(self.code, os.strerror(self.code), str(path))


def check_faults(milbench: Milbench, folder: Path, step: int, codes: tuple[int, ...]) -> None:
    """Let every `step`-th access to the disk fail with each error, then give the same command again."""
    words = ["run", "--task", TINY, "--loss", "exact", "-p", "recipe.epochs=2", "--root"]
    assert milbench(*words, str(folder / "whole")).code == 0
    whole = numbers(folder / "whole")
    for code in codes:
        for n in itertools.count(1, step):
            root = folder / f"{code}-{n}"
            with pytest.MonkeyPatch.context() as patch:
                faults = Faults(root / "runs", n, code, patch)
                ran = milbench(*words, str(root))
            assert "Traceback" not in ran.out + ran.err, n
            assert (
                len(
                    [line for line in (ran.out + ran.err).splitlines() if os.strerror(code) in line]
                )
                <= 1
            ), (n, ran)
            if ran.code:
                assert os.strerror(code) in ran.out + ran.err, (n, ran)
                assert ran.code == 1 or ran.complaint(), n
            if (root / "runs/tiny.json").exists():
                states = Root(root).states(Root(root).plan().cells)
                assert {state.status for state in states.values()} <= {"missing", "done"}, (n, ran)
            assert milbench(*words, str(root)).code == 0, (n, ran)
            assert numbers(root) == whole, n
            shutil.rmtree(root)
            if faults.left > 0:
                assert n > 50, "so many accesses were struck"
                break


def test_a_disk_that_fails_costs_no_cell(milbench: Milbench, tmp_path: Path) -> None:
    check_faults(milbench, tmp_path, 11, (errno.ENOSPC,))


@pytest.mark.kills
@pytest.mark.timeout(3000)
def test_a_disk_that_fails_at_any_access_costs_no_cell(milbench: Milbench, tmp_path: Path) -> None:
    check_faults(milbench, tmp_path, 1, (errno.ENOSPC, errno.EIO))
