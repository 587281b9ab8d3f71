"""reports/parts.py keeps finished cells in archives, and restores them into another root."""

import errno
import importlib.util
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch

import milbench
from milbench.inference.trained import load_trained
from milbench.store.folders import Root

REPOSITORY = Path(__file__).parents[1]
RECIPE = {"epochs": 1, "steps_per_epoch": 1, "evaluation_bags": 20}
"""The recipe of a cell that is computed in a blink."""


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script reports/parts.py, which writes its archives into a folder of the test."""
    spec = importlib.util.spec_from_file_location("parts", REPOSITORY / "reports/parts.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "REPORTS", tmp_path / "reports")
    return module


def run(root: Path, losses: str) -> milbench.Comparison:
    """Run a comparison of these losses with the name "long"."""
    return milbench.compare(
        losses,
        "synthetic-bags",
        name="long",
        root=root,
        recipe=RECIPE,
        progress=False,
        in_process=True,
    )


def test_a_restored_cell_is_done_and_has_its_values(parts: ModuleType, tmp_path: Path) -> None:
    trained = run(tmp_path / "here", "exact").table()
    archive = parts.keep(Root(tmp_path / "here"), "long")
    assert len(parts.cells_in(archive)) == 1
    there = Root(tmp_path / "there")
    assert parts.restore(there, "long") == 1
    (state,) = there.states(there.plan("long").cells).values()
    assert state.status == "done"
    restored = milbench.results(tmp_path / "there", "long").table()
    assert restored["mean"].tolist() == trained["mean"].tolist()


def test_a_restored_cell_has_no_weights_to_predict_with(parts: ModuleType, tmp_path: Path) -> None:
    run(tmp_path / "here", "exact")
    parts.keep(Root(tmp_path / "here"), "long")
    there = Root(tmp_path / "there")
    parts.restore(there, "long")
    (cell,) = there.plan("long").cells
    with pytest.raises(milbench.UsageError, match="has no weights: it was kept without them"):
        load_trained(there.find(cell.id), torch.device("cpu"))


def test_an_archive_holds_only_cells_that_earlier_archives_lack(
    parts: ModuleType, tmp_path: Path
) -> None:
    root = Root(tmp_path / "here")
    run(root.path, "exact")
    first = parts.keep(root, "long")
    assert parts.keep(root, "long") is None
    run(root.path, "noisy-or")
    second = parts.keep(root, "long")
    assert parts.cells_in(first).isdisjoint(parts.cells_in(second))
    assert parts.restore(Root(tmp_path / "there"), "long") == 2


def test_compared_cells_keep_the_predictions_for_whole_bags(
    parts: ModuleType, tmp_path: Path
) -> None:
    before = run(tmp_path / "here", "exact").predictions()["exact", 0]
    parts.keep(Root(tmp_path / "here"), "long")
    parts.restore(Root(tmp_path / "there"), "long")
    after = milbench.results(tmp_path / "there", "long").predictions()["exact", 0]
    assert (after["test"].presence == before["test"].presence).all()
    assert set(after.splits) == {"validation", "test"}


def test_no_archive_gets_the_number_of_a_deleted_one(parts: ModuleType, tmp_path: Path) -> None:
    root = Root(tmp_path / "here")
    run(root.path, "exact")
    first = parts.keep(root, "long")
    run(root.path, "noisy-or")
    second = parts.keep(root, "long")
    assert [first.name, second.name] == ["001.tar.gz", "002.tar.gz"]
    first.unlink()
    third = parts.keep(root, "long")
    assert third.name == "003.tar.gz"
    assert second.exists()


def test_an_error_while_cells_are_kept_leaves_no_archive(
    parts: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Root(tmp_path / "here")
    run(root.path, "exact")
    with monkeypatch.context() as patched:
        patched.setattr(parts, "keep_whole_bags", raise_disk_full)
        with pytest.raises(OSError, match="No space"):
            parts.keep(root, "long")
    left = [*(parts.REPORTS / "long" / "parts").iterdir()]
    assert left == []
    assert parts.keep(root, "long").name == "001.tar.gz"


def raise_disk_full(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_single_instances_are_kept_where_losses_are_compared_by_them(
    parts: ModuleType, tmp_path: Path
) -> None:
    run(tmp_path / "here", "exact")
    here = Root(tmp_path / "here")
    plan = here.plan("long")
    spec = plan.spec.model_copy(update={"compare_by": ["instance_error"]})
    here.save(replace(plan, spec=spec))
    parts.keep(here, "long")
    parts.restore(Root(tmp_path / "there"), "long")
    after = milbench.results(tmp_path / "there", "long").predictions()["exact", 0]
    assert {"validation_single", "test_single"} <= set(after.splits)
