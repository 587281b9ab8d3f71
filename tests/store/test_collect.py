"""What is read of a store for a comparison."""

from __future__ import annotations

from pathlib import Path

from milbench.engine.planning import make_plan
from milbench.engine.spec import make_spec
from milbench.store.collect import last_values
from milbench.store.reader import StoreReader
from milbench.store.workspace import Workspace
from tests._helpers.command_line import TINY, Milbench
from tests._helpers.other_machine import client


def test_of_an_epoch_that_was_logged_twice_the_last_value_counts(root: Path) -> None:
    """A cell that is killed between its last epoch and its checkpoint computes and logs that epoch again."""
    plan = make_plan(make_spec({"name": "t", "losses": ["exact"], "tasks": [TINY]}), None)
    (cell,) = plan.cells
    store = client(root)
    tags = {"milbench.kind": "cell", "milbench.cell": cell.id, "milbench.device": "cpu"}
    run = store.create_run("0", 1, tags).info.run_id
    for epoch, value in ((1, 0.5), (2, 0.25), (2, 0.125)):
        store.log_metric(run, "validation/set_error", value, step=epoch)
    store.update_run(run, status="FINISHED")
    assert last_values(StoreReader(Workspace(root)), plan, "validation/set_error") == {cell.id: 0.125}


def test_a_comparison_that_was_deleted_in_the_pages_of_mlflow_comes_back_with_its_command(
    milbench: Milbench, root: Path
) -> None:
    words = ("run", "--loss", "exact", "--task", TINY, "--name", "mine")
    assert milbench(*words).code == 0
    pages = client(root)
    experiment = pages.get_experiment_by_name("mine")
    assert experiment is not None
    pages.delete_experiment(experiment.experiment_id)
    assert "nothing was run yet" in milbench("status", "mine").complaint()
    assert milbench(*words).code == 0
    assert "1 of 1 cells done" in milbench("status", "mine").out


def test_a_gallery_that_is_gone_is_named_and_the_rest_is_reported(milbench: Milbench, root: Path) -> None:
    assert milbench("run", "--loss", "exact", "--task", TINY).code == 0
    (gallery,) = root.glob("runs/artifacts/*/artifacts/gallery.npz")
    gallery.unlink()
    assert milbench("report").code == 0
    assert "Lost from the store: gallery.npz of cell" in (root / "reports/tiny_task/report.md").read_text()
