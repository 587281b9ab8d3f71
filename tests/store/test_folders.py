"""A store is a folder of plain files: it can be copied, packed, moved, merged and deleted."""

import json
import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from milbench.store.cell_folder import CellFolder
from milbench.store.folders import Root
from tests._helpers.command_line import TINY, Milbench, process
from tests._helpers.damage import numbers

WORDS = ["run", "--task", TINY, "--seeds", "0-1", "--loss"]
NOTHING_TO_RUN = ", 0 to run"
"""What a launch says that has no cell to compute."""
NOWHERE = "http://127.0.0.1:9"
"""An address at which no server listens."""

PlanAsJson = dict[str, Any]
"""What the file of a plan holds."""


@pytest.fixture
def store(milbench: Milbench, root: Path) -> Path:
    """A root with two finished cells of the loss exact."""
    milbench(*WORDS, "exact").done()
    return root


def values_of(folder: CellFolder) -> list[tuple[int, str, float]]:
    """Return the history of a cell without its costs, which differ from run to run."""
    return [row for row in folder.history() if not row[1].startswith("cost/")]


def losses_of(root: Path) -> set[str]:
    """Return the losses of the comparison that ran last."""
    return {cell.loss.name for cell in Root(root).plan().cells}


def test_no_cell_of_a_copied_store_is_computed_again(
    milbench: Milbench, store: Path, tmp_path: Path
) -> None:
    whole = numbers(store)
    copied = tmp_path / "copied"
    shutil.copytree(store, copied)
    assert numbers(copied) == whole
    assert NOTHING_TO_RUN in milbench(*WORDS, "exact", "--root", str(copied)).done()


def test_no_cell_of_a_moved_store_is_computed_again(
    milbench: Milbench, store: Path, tmp_path: Path
) -> None:
    whole = numbers(store)
    moved = tmp_path / "moved"
    shutil.move(store, moved)
    assert numbers(moved) == whole
    assert NOTHING_TO_RUN in milbench(*WORDS, "exact", "--root", str(moved)).done()


def test_cells_that_were_copied_into_a_store_are_not_computed(
    milbench: Milbench, store: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    milbench(*WORDS, "noisy-or", "--root", str(other)).done()
    shutil.copytree(other / "runs/cells", store / "runs/cells", dirs_exist_ok=True)
    assert NOTHING_TO_RUN in milbench(*WORDS, "exact,noisy-or").done()


def test_a_deleted_cell_counts_as_missing(milbench: Milbench, store: Path) -> None:
    first, _ = Root(store).folders()
    shutil.rmtree(first.path)
    *_, counts, _ = milbench("status").out.splitlines()
    assert counts == "1 of 2 cells done, 1 missing"


def test_a_deleted_cell_is_computed_again_with_the_same_values(
    milbench: Milbench, store: Path
) -> None:
    first, _ = Root(store).folders()
    before = values_of(first)
    shutil.rmtree(first.path)
    milbench(*WORDS, "exact").done()
    assert values_of(first) == before


def test_losses_run_one_by_one_are_in_one_comparison(milbench: Milbench, store: Path) -> None:
    milbench(*WORDS, "noisy-or").done()
    assert losses_of(store) == {"exact", "noisy-or"}


def test_losses_run_at_the_same_time_are_in_one_comparison(store: Path) -> None:
    words = ["run", "--task", TINY, "--seeds", "0-1", "-p", "run.in_process=true"]
    without_mlflow = os.environ | {"MLFLOW_TRACKING_URI": NOWHERE}
    launches = [
        process(*words, "--loss", loss, "--root", str(store), env=without_mlflow)
        for loss in ("isr", "top-k")
    ]
    codes = [launch.wait(300) for launch in launches]
    assert codes == [0, 0]
    assert losses_of(store) == {"exact", "isr", "top-k"}


def test_a_comparison_with_a_name_stays_apart(milbench: Milbench, store: Path) -> None:
    milbench("run", "--loss", "mean", "--task", TINY, "--name", "apart").done()
    assert Root(store).names() == ["apart", "tiny"]
    assert losses_of(store) == {"mean"}


@pytest.fixture
def unpacked(store: Path, tmp_path: Path) -> Path:
    """A root that was unpacked from a tar file of another root, which was then deleted."""
    packed = tmp_path / "store.tar.gz"
    with tarfile.open(packed, "w:gz") as tar:
        tar.add(store / "runs", "runs")
    shutil.rmtree(store)
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


def test_no_cell_of_an_unpacked_store_is_computed_again(milbench: Milbench, unpacked: Path) -> None:
    before = numbers(unpacked)
    said = milbench("run", "tiny", "--root", str(unpacked)).done()
    assert NOTHING_TO_RUN in said
    assert numbers(unpacked) == before


def test_an_unpacked_store_goes_on_with_further_seeds(milbench: Milbench, unpacked: Path) -> None:
    words = ["run", "tiny", "--seeds", "0-2", "--dry-run"]
    said = milbench(*words, "--root", str(unpacked)).done()
    assert "3 cells, 1 to run" in said


def with_spec(plan: PlanAsJson, **changes: Any) -> str:
    """Return the text of a plan with changes of its spec."""
    return json.dumps(plan | {"spec": plan["spec"] | changes})


def with_epochs_in_letters(plan: PlanAsJson) -> str:
    """Return the text of a plan whose only cell has a word in place of its number of epochs."""
    (cell,) = plan["cells"]
    changed = cell | {"recipe": cell["recipe"] | {"epochs": "x"}}
    return json.dumps(plan | {"cells": [changed]})


@pytest.fixture
def one_cell(milbench: Milbench, root: Path) -> Path:
    """The file of the plan of a comparison with one finished cell."""
    milbench("run", "--task", TINY, "--loss", "exact").done()
    return root / "runs/tiny.json"


@pytest.mark.parametrize(
    "damaged",
    [
        pytest.param(lambda plan: json.dumps(plan)[:100], id="cut"),
        pytest.param(lambda plan: "", id="emptied"),
        pytest.param(lambda plan: "\0" * 99, id="zeroed"),
        pytest.param(lambda plan: "[]", id="a list"),
        pytest.param(lambda plan: json.dumps(plan | {"cells": [{}]}), id="an empty cell"),
        pytest.param(lambda plan: json.dumps(plan | {"tasks": {}}), id="no tasks"),
        pytest.param(lambda plan: json.dumps(plan | {"spec": {}}), id="no spec"),
        pytest.param(lambda plan: with_spec(plan, name="x" * 300), id="long name"),
        pytest.param(lambda plan: with_spec(plan, name=3), id="number as a name"),
        pytest.param(lambda plan: with_spec(plan, name="../x"), id="name with a path"),
        pytest.param(lambda plan: with_spec(plan, margin=[1]), id="margin"),
        pytest.param(lambda plan: with_spec(plan, selection="test"), id="selection"),
        pytest.param(with_epochs_in_letters, id="epochs"),
    ],
)
def test_a_damaged_plan_is_never_replaced_by_a_smaller_one(
    milbench: Milbench, one_cell: Path, damaged: Callable[[PlanAsJson], str], tmp_path: Path
) -> None:
    text = damaged(json.loads(one_cell.read_text()))
    one_cell.write_text(text)
    commands = [
        ["status"],
        ["report"],
        ["sync"],
        ["run", "--task", TINY, "--loss", "noisy-or"],
        ["export", "--out", str(tmp_path / "frame.csv")],
    ]
    for command in commands:
        complaint = milbench(*command).complaint()
        assert f"{one_cell}: the plan is damaged" in complaint
    assert one_cell.read_text() == text


def test_without_a_plan_status_says_how_it_is_written_again(
    milbench: Milbench, one_cell: Path
) -> None:
    one_cell.unlink()
    complaint = milbench("status").complaint()
    assert "has 1 cell and no plan of a comparison; the same milbench run" in complaint


def test_a_lost_plan_is_written_again_without_computing_cells(
    milbench: Milbench, one_cell: Path
) -> None:
    one_cell.unlink()
    said = milbench("run", "--task", TINY, "--loss", "exact").done()
    assert NOTHING_TO_RUN in said
    milbench("status").done()
