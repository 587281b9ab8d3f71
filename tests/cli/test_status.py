"""`milbench status`: the state of every cell, and the exit codes of the command."""

from collections.abc import Mapping
from pathlib import Path

from milbench.experiment.cell import Cell
from milbench.experiment.make_plan import make_plan
from milbench.experiment.plan import Plan
from milbench.experiment.spec_files import make_spec
from milbench.store.cell_folder import CellFolder
from milbench.store.folders import Root
from tests._helpers.command_line import TINY, Milbench


def planned(root: Path, seeds: str) -> Plan:
    """Store the plan of a comparison without any computed cell, and return it."""
    plan = make_plan(
        make_spec({"name": "mine", "losses": ["exact"], "tasks": [TINY], "seeds": seeds})
    )
    Root(root).make().save(plan)
    return plan


def begun(root: Path, cell: Cell) -> CellFolder:
    """Return the folder of a cell whose training has begun."""
    folder = Root(root).cell(cell.id)
    folder.begin(cell, str(cell), {})
    return folder


LOSS = {"train/loss": 0.5}
"""The metrics after an epoch, where their values do not matter."""


def finish(folder: CellFolder, metrics: Mapping[str, float] = LOSS) -> None:
    """Make a cell done, with the same metrics after every epoch."""
    for epoch in range(1, folder.cell().recipe.epochs + 1):
        folder.append(epoch, metrics)
    folder.finish({})


def test_every_state_is_shown_with_its_details(milbench: Milbench, root: Path) -> None:
    done, failed, running, missing = planned(root, "0-3").cells
    finish(begun(root, done))
    begun(root, failed).fail("ValueError: it broke", "Traceback ...")
    with begun(root, running).lock():
        ran = milbench("status", "mine")
    assert ran.code == 1
    assert "done" in row_of(done, ran.out)
    assert "failed" in row_of(failed, ran.out)
    assert "ValueError: it broke" in row_of(failed, ran.out)
    assert "running" in row_of(running, ran.out)
    assert "reading data" in row_of(running, ran.out)
    assert "missing" in row_of(missing, ran.out)
    assert f"traceback: {Root(root).cell(failed.id).error}" in ran.out
    *_, summary, step = ran.out.splitlines()
    assert summary == "1 of 4 cells done, 1 running, 1 failed, 1 missing"
    assert step == f"next: milbench run mine --rerun failed --root {root}"


def row_of(cell: Cell, printed: str) -> str:
    """Return the row of a cell in the printed table."""
    rows = [line for line in printed.splitlines() if line.startswith("│")]
    return next(row for row in rows if cell.id in row)


def test_the_exit_code_is_0_if_all_cells_are_done(milbench: Milbench, root: Path) -> None:
    first, second = planned(root, "0-1").cells
    assert milbench("status").code == 1
    finish(begun(root, first))
    assert milbench("status").code == 1
    finish(begun(root, second))
    assert milbench("status").code == 0


def test_scores_are_the_last_errors_of_each_cell(milbench: Milbench, root: Path) -> None:
    for cell in planned(root, "0-1").cells:
        finish(begun(root, cell), {"test/set_error": 0.25})
    assert milbench("status", "--scores").done().count("set error 25.00 %") == 2


def test_a_killed_cell_says_where_it_stopped(milbench: Milbench, root: Path) -> None:
    killed, _ = planned(root, "0-1").cells
    begun(root, killed).write_progress({"doing": "training", "epoch": 38, "epochs": 50})
    printed = milbench("status").out
    assert "interrupted" in row_of(killed, printed)
    assert "at epoch 38 of 50" in row_of(killed, printed)
    assert "0 of 2 cells done, 1 interrupted, 1 missing" in printed


def test_a_checkpoint_alone_tells_where_a_cell_stopped(milbench: Milbench, root: Path) -> None:
    # The history has epoch 1 of 2, so that the cell stopped in epoch 2.
    (cell,) = planned(root, "0").cells
    folder = begun(root, cell)
    folder.append(1, {"train/loss": 0.5})
    folder.checkpoint.write_bytes(b"weights")
    folder.tidy()
    assert "at epoch 2 of 2" in milbench("status").out


def test_a_cell_that_runs_is_not_interrupted(milbench: Milbench, root: Path) -> None:
    (cell,) = planned(root, "0").cells
    folder = begun(root, cell)
    folder.write_progress({"doing": "evaluating", "epoch": 1, "epochs": 2})
    with folder.lock():
        assert "interrupted" not in milbench("status").out
