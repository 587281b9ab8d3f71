"""The store is folders: they can be copied, moved, merged and deleted, and exported as a checked zip."""

import json
import os
import random
import shutil
import zipfile
from pathlib import Path
from typing import Any

from milbench.engine.cell import CellFolder
from milbench.engine.folders import Root
from tests._helpers.command_line import TINY, Milbench, process
from tests._helpers.damage import numbers

WORDS = ["run", "--task", TINY, "--seeds", "0-1", "--loss"]


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
    assert (
        milbench("status", "--root", str(moved)).out.splitlines()[-2]
        == "3 of 4 cells done, 1 missing"
    )
    assert milbench(*WORDS, "exact,noisy-or", "--root", str(moved)).code == 0
    after = [row for row in CellFolder(cell).history() if not row[1].startswith("cost/")]
    assert after == [row for row in before if not row[1].startswith("cost/")]


def test_losses_that_are_run_one_after_the_other_are_in_one_comparison(
    milbench: Milbench, root: Path
) -> None:
    for loss in ("exact", "noisy-or"):
        assert milbench(*WORDS, loss).code == 0
    assert {cell.loss for cell in Root(root).plan().cells} == {"exact", "noisy-or"}
    away = os.environ | {"MLFLOW_TRACKING_URI": "http://127.0.0.1:9"}
    words = [*WORDS[:-1], "-p", "run.in_process=true", "--root", str(root), "--loss"]
    both = [process(*words, loss, env=away) for loss in ("isr", "top-k")]  # at the same time
    assert [launch.wait(300) for launch in both] == [0, 0]
    assert {cell.loss for cell in Root(root).plan().cells} == {"exact", "noisy-or", "isr", "top-k"}
    assert milbench("run", "--loss", "mean", "--task", TINY, "--name", "apart").code == 0
    assert [*Root(root).names()] == ["apart", "tiny"]
    assert {cell.loss for cell in Root(root).plan().cells} == {"mean"}


def test_an_export_goes_on_elsewhere(milbench: Milbench, root: Path, tmp_path: Path) -> None:
    assert milbench(*WORDS, "exact").code == 0
    assert milbench("export", "--out", str(tmp_path / "all.zip")).code == 0
    there = tmp_path / "there"
    ran = milbench("import", str(tmp_path / "all.zip"), "--root", str(there))
    assert ran.code == 0, ran
    assert "added 2 of 2 cells to tiny" in ran.out
    assert numbers(there) == numbers(root)
    for words in ([*WORDS, "exact"], ["run", "tiny"]):  # the spec came with it
        assert ", 0 to run" in milbench(*words, "--root", str(there)).out
    assert (
        "3 cells, 1 to run"
        in milbench("run", "tiny", "--seeds", "0-2", "--dry-run", "--root", str(there)).out
    )
    cell = next(path for path in Root(there).cells.iterdir() if path.is_dir())
    (cell / "result.json").unlink()
    (Root(root).cells / cell.name / "result.json").unlink()
    (cell / "checkpoint.pt").touch()
    assert milbench("export", "--out", str(tmp_path / "half.zip")).code == 0
    assert (
        "added 0 of 2 cells"
        in milbench("import", str(tmp_path / "half.zip"), "--root", str(there)).out
    )
    assert (cell / "checkpoint.pt").exists(), (
        "what goes on here is worth more than what is not done there"
    )
    assert (
        "added 1 of 2 cells"
        in milbench("import", str(tmp_path / "all.zip"), "--root", str(there)).out
    )
    assert milbench("export", "--out", str(tmp_path / "t.csv")).code == 0
    assert (
        (tmp_path / "t.csv")
        .read_text()
        .startswith("task,loss,network,recipe,supervision,seed,status")
    )


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
        "../escaped.json", "/abs.json", f"cells/{cell}/x.py", "cells/0123456789abcdef/cell.json",
        f"cells/{cell}/a/b.json", f"cells/{cell}/history.csv/",
    ):  # fmt: skip
        complaint = milbench(
            "import", str(forged(tmp_path, member)), "--root", str(there)
        ).complaint()
        assert "an export has no" in complaint
    with (
        zipfile.ZipFile(tmp_path / "good.zip") as good,
        zipfile.ZipFile(tmp_path / "typed.zip", "w") as typed,
    ):
        for name in good.namelist():
            typed.writestr(
                name, b'{"costs": [1]}' if name.endswith("result.json") else good.read(name)
            )
        typed.comment = good.comment
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


def test_an_archive_with_a_flipped_bit_is_imported_whole_or_not_at_all(
    milbench: Milbench, root: Path, tmp_path: Path
) -> None:
    assert milbench("run", "--loss", "exact", "--task", TINY).code == 0
    assert milbench("export", "--out", str(tmp_path / "good.zip")).code == 0
    content = (tmp_path / "good.zip").read_bytes()
    chance = random.Random(0)
    for trial in range(100):
        place = (
            chance.randrange(len(content))
            if trial % 2
            else len(content) - chance.randrange(1, 1500)
        )
        flipped = (
            content[:place]
            + bytes([content[place] ^ 1 << chance.randrange(8)])
            + content[place + 1 :]
        )
        (tmp_path / "bad.zip").write_bytes(flipped)
        there = tmp_path / str(trial)
        if milbench("import", str(tmp_path / "bad.zip"), "--root", str(there)).code == 0:
            assert numbers(there) == numbers(root), place
        else:
            assert not [path for path in there.rglob("*") if path.is_file()], place


def test_a_damaged_plan_is_one_line_and_never_replaced_by_a_smaller_one(
    milbench: Milbench, root: Path
) -> None:
    words = ["run", "--task", TINY, "--loss"]
    assert milbench(*words, "exact").code == 0
    plan = root / "runs/tiny.json"
    whole = json.loads(plan.read_text())
    recipe = whole["cells"][0]["recipe"]
    damages: list[Any] = [
        plan.read_text()[:100], "", "\0" * 99, [], whole | {"cells": [{}]}, whole | {"tasks": {}},
        *(whole | {"spec": whole["spec"] | change} for change in (
            {"name": "x" * 300}, {"name": 3}, {"name": "../x"}, {"margin": [1]}, {"selection": "test"},
        )),
        whole | {"spec": {}},
        whole | {"cells": [whole["cells"][0] | {"recipe": recipe | {"epochs": "x"}}]},
    ]  # fmt: skip
    with zipfile.ZipFile(root / "x.zip", "w") as archive:
        archive.writestr("comparison.json", json.dumps(damages[-1]))
    assert "plan is damaged" in milbench("import", str(root / "x.zip")).complaint()
    for damage in damages:
        text = damage if isinstance(damage, str) else json.dumps(damage)
        plan.write_text(text)
        export = ["export", "--out", str(root / "y.zip")]
        for command in (["status"], ["report"], ["sync"], [*words, "noisy-or"], export):
            assert f"{plan}: the plan is damaged" in milbench(*command).complaint()
        assert plan.read_text() == text
    plan.unlink()
    assert (
        "has 1 cell and no plan of a comparison; the same milbench run"
        in milbench("status").complaint()
    )
    assert ", 0 to run" in milbench(*words, "exact").out
    assert milbench("status").code == 0
