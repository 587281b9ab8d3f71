"""The store is folders: they can be copied, packed, moved, merged and deleted."""

import json
import os
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest

from milbench.store.cell_folder import CellFolder
from milbench.store.folders import Root
from tests._helpers.command_line import TINY, Milbench, process
from tests._helpers.damage import numbers

WORDS = ["run", "--task", TINY, "--seeds", "0-1", "--loss"]


def test_a_copied_moved_or_merged_store_needs_nothing_computed(
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


def test_losses_run_one_by_one_are_in_one_comparison(milbench: Milbench, root: Path) -> None:
    for loss in ("exact", "noisy-or"):
        assert milbench(*WORDS, loss).code == 0
    assert {cell.loss.name for cell in Root(root).plan().cells} == {"exact", "noisy-or"}
    away = os.environ | {"MLFLOW_TRACKING_URI": "http://127.0.0.1:9"}
    words = [*WORDS[:-1], "-p", "run.in_process=true", "--root", str(root), "--loss"]
    both = [process(*words, loss, env=away) for loss in ("isr", "top-k")]  # at the same time
    assert [launch.wait(300) for launch in both] == [0, 0]
    assert {cell.loss.name for cell in Root(root).plan().cells} == {
        "exact",
        "noisy-or",
        "isr",
        "top-k",
    }
    assert milbench("run", "--loss", "mean", "--task", TINY, "--name", "apart").code == 0
    assert [*Root(root).names()] == ["apart", "tiny"]
    assert {cell.loss.name for cell in Root(root).plan().cells} == {"mean"}


@pytest.fixture
def unpacked(milbench: Milbench, root: Path, tmp_path: Path) -> Path:
    """Another root, with a finished comparison that was packed by tar in the first, which is gone."""
    assert milbench(*WORDS, "exact").code == 0
    packed = tmp_path / "store.tar.gz"
    with tarfile.open(packed, "w:gz") as tar:
        tar.add(root / "runs", "runs")
    shutil.rmtree(root)
    there = tmp_path / "there"
    with tarfile.open(packed) as tar:
        tar.extractall(there, filter="data")
    return there


def test_status_of_an_unpacked_store_says_that_all_is_done(
    milbench: Milbench, unpacked: Path
) -> None:
    said = milbench("status", "--root", str(unpacked)).done()
    assert "2 of 2 cells done" in said


def test_an_unpacked_store_has_a_report(milbench: Milbench, unpacked: Path) -> None:
    milbench("report", "--root", str(unpacked)).done()
    assert (unpacked / "reports/tiny/index.html").exists()


def test_nothing_of_an_unpacked_store_is_trained_again(milbench: Milbench, unpacked: Path) -> None:
    before = numbers(unpacked)
    said = milbench("run", "tiny", "--root", str(unpacked)).done()
    assert ", 0 to run" in said
    assert numbers(unpacked) == before


def test_an_unpacked_store_goes_on_with_further_seeds(milbench: Milbench, unpacked: Path) -> None:
    words = ["run", "tiny", "--seeds", "0-2", "--dry-run"]
    said = milbench(*words, "--root", str(unpacked)).done()
    assert "3 cells, 1 to run" in said


def test_a_damaged_plan_is_never_replaced_by_a_smaller_one(milbench: Milbench, root: Path) -> None:
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
    for damage in damages:
        text = damage if isinstance(damage, str) else json.dumps(damage)
        plan.write_text(text)
        export = ["export", "--out", str(root / "frame.csv")]
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
