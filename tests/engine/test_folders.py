"""The store is folders: they can be copied, moved, merged and deleted, and exported as a checked zip."""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from pathlib import Path

from milbench.engine.cell import CellFolder
from milbench.engine.folders import Root, results
from tests._helpers.command_line import HOSTILE, TINY, Milbench, process

WORDS = ["run", "--task", TINY, "--seeds", "0-1", "--loss"]


def numbers(root: Path) -> list[list[str]]:
    """Return every value of every epoch of a comparison, without costs."""
    frame = results(root).frame
    values = frame[~frame["metric"].astype(str).str.startswith("cost/")][
        ["loss", "seed", "status", "epoch", "metric", "value"]
    ]
    return sorted(values.astype(str).to_numpy().tolist())


def counts(milbench: Milbench, root: Path) -> str:
    return milbench("status", "--root", str(root)).out.strip().splitlines()[-1]


def test_a_store_that_is_copied_moved_or_merged_needs_nothing_computed(
    milbench: Milbench, root: Path, tmp_path: Path
) -> None:
    assert milbench(*WORDS, "exact").code == 0
    whole = numbers(root)
    moved = tmp_path / "moved"
    shutil.copytree(root, tmp_path / "copied")
    shutil.move(root, moved)
    for place in (tmp_path / "copied", moved):
        assert numbers(place) == whole
        assert ", 0 to run" in milbench(*WORDS, "exact", "--root", str(place)).out
    other = tmp_path / "other"
    assert milbench(*WORDS, "noisy-or", "--root", str(other)).code == 0
    shutil.copytree(other / "runs/cells", moved / "runs/cells", dirs_exist_ok=True)
    ran = milbench(*WORDS, "exact,noisy-or", "--root", str(moved))
    assert ", 0 to run" in ran.out, ran
    cell = next((moved / "runs/cells").iterdir())
    before = CellFolder(cell).history()
    shutil.rmtree(cell)
    assert counts(milbench, moved) == "3 of 4 cells done, 1 missing"
    assert milbench(*WORDS, "exact,noisy-or", "--root", str(moved)).code == 0
    after = [row for row in CellFolder(cell).history() if not row[1].startswith("cost/")]
    assert after == [row for row in before if not row[1].startswith("cost/")]


def test_losses_that_are_run_one_after_the_other_are_in_one_comparison(milbench: Milbench, root: Path) -> None:
    for loss in ("exact", "noisy-or"):
        assert milbench(*WORDS, loss).code == 0
    assert {cell.loss for cell in Root(root).plan().cells} == {"exact", "noisy-or"}
    away = os.environ | {"MLFLOW_TRACKING_URI": "http://127.0.0.1:9"}
    words = [*WORDS[:-1], "-p", "run.in_process=true", "--root", str(root), "--loss"]
    both = [process(*words, loss, env=away) for loss in ("isr", "top-k")]  # at the same time
    assert [launch.wait(100) for launch in both] == [0, 0]
    assert {cell.loss for cell in Root(root).plan().cells} == {"exact", "noisy-or", "isr", "top-k"}
    assert milbench("run", "--loss", "mean", "--task", TINY, "--name", "apart").code == 0
    assert [*Root(root).names()] == ["apart", "tiny"]
    assert {cell.loss for cell in Root(root).plan().cells} == {"mean"}


def test_no_cell_is_silent(milbench: Milbench, root: Path) -> None:
    assert milbench("run", "--loss", f"exact,{HOSTILE}", "--task", TINY).code == 1
    cell = next(cell for cell in Root(root).plan().cells if cell.loss == "exact")
    Root(root).cell(cell.id)._result.unlink()
    with Root(root).cell(cell.id).lock() as acquired:
        assert acquired
        out = milbench("status").out
        assert "1 running, 1 failed" in out
    assert "FloatingPointError: training diverged: non-finite l" in out.replace("\n", " ")
    assert "error.txt" in out
    frame = results(root).frame
    assert set(frame["status"].astype(str)) == {"failed", "missing"}
    assert "non-finite" in " ".join(frame["reason"].astype(str))


def test_a_half_written_history_is_read_up_to_its_last_whole_line(tmp_path: Path) -> None:
    folder = CellFolder(tmp_path)
    folder.append(1, {"test/set_error": 0.5})
    folder.append(2, {"test/set_error": 0.25, "train/loss": float("inf")})
    path = tmp_path / "history.csv"
    path.write_text(path.read_text()[:-3])
    assert folder.history() == [(1, "test/set_error", 0.5), (2, "test/set_error", 0.25)]
    folder.cut_history(1)
    assert path.read_text() == "epoch,metric,value\n1,test/set_error,0.5\n"


def test_an_export_goes_on_elsewhere(milbench: Milbench, root: Path, tmp_path: Path) -> None:
    assert milbench(*WORDS, "exact").code == 0
    assert milbench("export", "--out", str(tmp_path / "all.zip")).code == 0
    there = tmp_path / "there"
    ran = milbench("import", str(tmp_path / "all.zip"), "--root", str(there))
    assert ran.code == 0, ran
    assert "added 2 of 2 cells to tiny" in ran.out
    assert numbers(there) == numbers(root)
    assert ", 0 to run" in milbench(*WORDS, "exact", "--root", str(there)).out
    cell = next(path for path in Root(there).cells.iterdir() if path.is_dir())
    (cell / "result.json").unlink()
    (Root(root).cells / cell.name / "result.json").unlink()
    (cell / "checkpoint.pt").touch()
    assert milbench("export", "--out", str(tmp_path / "half.zip")).code == 0
    assert "added 0 of 2 cells" in milbench("import", str(tmp_path / "half.zip"), "--root", str(there)).out
    assert (cell / "checkpoint.pt").exists(), "what goes on here is worth more than what is not done there"
    assert "added 1 of 2 cells" in milbench("import", str(tmp_path / "all.zip"), "--root", str(there)).out
    assert milbench("export", "--out", str(tmp_path / "t.csv")).code == 0
    assert (tmp_path / "t.csv").read_text().startswith("task,loss,network,recipe,supervision,seed,status")


def forged(tmp_path: Path, member: str, content: bytes = b"x") -> Path:
    path = tmp_path / "forged.zip"
    shutil.copy(tmp_path / "good.zip", path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(member, content)
    return path


def test_only_an_export_is_imported(milbench: Milbench, root: Path, tmp_path: Path) -> None:
    assert milbench("run", "--loss", "exact", "--task", TINY).code == 0
    assert milbench("export", "--out", str(tmp_path / "good.zip")).code == 0
    cell = Root(root).plan().cells[0].id
    there = tmp_path / "there"
    for member in (
        "../escaped.json",
        "/abs.json",
        f"cells/{cell}/x.py",
        "cells/0123456789abcdef/cell.json",
        f"cells/{cell}/a/b.json",
    ):
        complaint = milbench("import", str(forged(tmp_path, member)), "--root", str(there)).complaint()
        assert "an export has no" in complaint
    with zipfile.ZipFile(tmp_path / "good.zip") as good, zipfile.ZipFile(tmp_path / "typed.zip", "w") as typed:
        for name in good.namelist():
            typed.writestr(name, b'{"costs": [1]}' if name.endswith("result.json") else good.read(name))
    complaint = milbench("import", str(tmp_path / "typed.zip"), "--root", str(there)).complaint()
    assert f"cell {cell} is damaged" in complaint
    (tmp_path / "text.zip").write_text("no zip at all")
    os.mkfifo(tmp_path / "fifo")
    for name in ("text.zip", "fifo", ".", "absent.zip", "/dev/zero"):
        milbench("import", str(tmp_path / name), "--root", str(there)).complaint()
    cut = (tmp_path / "good.zip").read_bytes()
    (tmp_path / "cut.zip").write_bytes(cut[: len(cut) // 2])
    milbench("import", str(tmp_path / "cut.zip"), "--root", str(there)).complaint()
    assert not [path for path in there.rglob("*") if path.is_file()], "nothing half-imported"
    assert not (tmp_path / "escaped.json").exists()


def test_a_damaged_plan_is_one_line_and_the_same_run_writes_it_again(milbench: Milbench, root: Path) -> None:
    assert milbench("run", "--loss", "exact", "--task", TINY).code == 0
    plan = root / "runs/tiny.json"
    plan.write_text(plan.read_text()[:100])
    assert "the same milbench run writes it again" in milbench("status").complaint()
    assert ", 0 to run" in milbench("run", "--loss", "exact", "--task", TINY).out
    assert milbench("status").code == 0
    assert json.loads(plan.read_text())["spec"]["name"] == "tiny"
    plan.unlink()
    assert "has 1 cell and no plan of a comparison; the same milbench run" in milbench("status").complaint()
    assert ", 0 to run" in milbench("run", "--loss", "exact", "--task", TINY).out
