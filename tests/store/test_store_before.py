"""A store that an older version of milbench wrote can still be read and reported.

The store in the folder `store_before` has two epochs of three steps. It was written before cells
kept their predictions, by this command:

    milbench run --loss exact,noisy-or --task synthetic-bags --seeds 0-1 --name before
"""

import shutil
from pathlib import Path

import pytest

import milbench
from milbench.report.study import Study
from milbench.store.folders import Root, results

STORE = Path(__file__).parent / "store_before"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A copy of the store, in which a test may write."""
    return Path(shutil.copytree(STORE, tmp_path / "store"))


def test_its_plan_names_the_folders_of_its_cells(store: Path) -> None:
    planned = {cell.id for cell in Root(store).plan("before").cells}
    folders = {path.name for path in (store / "runs/cells").iterdir()}
    assert planned == folders


def test_its_cells_are_done_and_whole(store: Path) -> None:
    plan = Root(store).plan("before")
    states = Root(store).states(plan.cells, weights=True)
    # Two losses with two seeds.
    assert len(states) == 4
    assert {state.status for state in states.values()} == {"done"}


def test_outcomes_and_calibration_of_its_cells_are_read(store: Path) -> None:
    study = Study(results(store, "before"))
    assert study.noise("synthetic-bags") is not None
    for cell in study.plan.cells:
        evidence = study.evidence(cell.id)
        assert {"set_error", "posterior_error"} <= evidence.outcomes[0].keys()
        assert list(evidence.counts[cell.id]) == ["0", "1", "2"]
        assert evidence.reliability["presence_ece"]


def test_its_page_is_written(store: Path) -> None:
    page = milbench.results(store, "before").report(store / "page")
    assert "synthetic-bags" in page.read_text("utf-8")


def test_its_cells_have_no_predictions(store: Path) -> None:
    assert milbench.results(store, "before").predictions() == {}
