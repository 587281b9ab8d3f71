"""The names by which a comparison calls its variants, and the ids of cells."""

import csv
import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from milbench.contracts.folds import Folds
from milbench.experiment.cell import CELL_FORMAT, FORMAT_OF_BEFORE, Cell
from milbench.experiment.display_names import labels
from milbench.experiment.make_plan import make_plan
from milbench.experiment.plan_file import plan_from_json, plan_to_json
from milbench.experiment.spec_files import make_spec
from tests._helpers.cells import make_cell
from tests._helpers.command_line import TINY

REPORTS = Path(__file__).parents[2] / "reports"
PUBLISHED = sorted(path.parent.name for path in REPORTS.glob("*/comparison.json.gz"))


def cell(
    task: dict[str, Any] | None = None, network: str = "mlp", width: int = 64, **loss: Any
) -> Cell:
    return make_cell(
        network=network,
        loss_params=loss,
        task_params=task or {},
        network_params={"width": width},
    )


@pytest.mark.parametrize(("cells", "names"), [
    ([cell()], ["exact"]),
    ([cell(a=1, b=2), cell(a=1, b=3)], ["exact b=2", "exact b=3"]),
    ([cell(a=1, b=1), cell(a=2, b=2)], ["exact a=1", "exact a=2"]),
    ([cell(w="x/one.pt"), cell(w="y/two.pt")], ["exact w=one", "exact w=two"]),
    ([cell(w="x/one.pt"), cell(w="y/one.pt")], ["exact w=x/one.pt", "exact w=y/one.pt"]),
])  # fmt: skip
def test_losses_are_named_by_the_parameters_in_which_they_differ(
    cells: list[Cell], names: list[str]
) -> None:
    assert [labels(cells)[planned.id].loss for planned in cells] == names


def test_tables_stand_in_place_of_their_task() -> None:
    cells = [cell(task={"table": table}) for table in ("here/birds.csv", "here/bats.csv")]
    assert [labels(cells)[one.id].task for one in cells] == ["birds", "bats"]
    assert [found.task for found in labels(cells[:1]).values()] == ["birds"]
    other = make_cell(task="image-bags", task_params={"table": "here/birds.csv"})
    assert len({found.task for found in labels([cells[0], other]).values()}) == 2, (
        "by two tasks it is not told apart"
    )


def test_networks_are_named_where_a_task_has_several() -> None:
    cells = [cell(), cell(network="dsmil", width=8), cell(network="dsmil", width=9)]
    assert {label.network for label in labels(cells[:1]).values()} == {""}
    label = [labels(cells)[planned.id].variant for planned in cells]
    assert label == ["exact with mlp", "exact with dsmil width=8", "exact with dsmil width=9"]


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_cells_keep_the_ids_of_their_frames(name: str) -> None:
    plan = plan_from_json(gzip.decompress((REPORTS / name / "comparison.json.gz").read_bytes()))
    with gzip.open(REPORTS / name / "results.csv.gz", "rt", encoding="utf-8") as file:
        ids = {row["cell"] for row in csv.DictReader(file)}
    assert {cell.id for cell in plan.cells} <= ids


def test_a_cell_without_a_format_has_that_of_before() -> None:
    record = cell().to_record()
    del record["format"]
    assert Cell.from_record(record).id == replace(cell(), format=FORMAT_OF_BEFORE).id


def test_another_format_is_another_cell() -> None:
    assert cell().id != replace(cell(), format=FORMAT_OF_BEFORE).id


def test_planned_cells_have_the_newest_format() -> None:
    planned = make_plan(make_spec({"name": "t", "losses": ["exact"], "tasks": [TINY], "seeds": 0}))
    assert {one.format for one in planned.cells} == {CELL_FORMAT}


def test_a_launch_leaves_out_cells_of_an_earlier_format() -> None:
    new = make_plan(make_spec({"name": "t", "losses": ["exact"], "tasks": [TINY], "seeds": 0}))
    old = replace(new, cells=[replace(new.cells[0], format=FORMAT_OF_BEFORE)])
    assert new.joined(old).cells == new.cells


@pytest.mark.parametrize(
    ("stored", "folds"),
    [
        pytest.param([5, 2], Folds(5, repeats=2), id="repeated"),
        pytest.param([5, 0], Folds(5, repeats=None), id="any-number-of-repetitions"),
    ],
)
def test_folds_in_plans_of_before_are_read(stored: list[int], folds: Folds) -> None:
    plan = make_plan(make_spec({"name": "t", "losses": ["exact"], "tasks": [TINY], "seeds": 0}))
    content = json.loads(plan_to_json(plan))
    # Plans of before had no digest.
    del content["digest"]
    (key,) = content["tasks"]
    content["tasks"][key]["folds"] = stored
    read = plan_from_json(json.dumps(content).encode())
    assert read.tasks[key].folds == folds


def test_own_notes_are_those_that_the_spec_lacks() -> None:
    values = {"name": "t", "losses": ["exact"], "tasks": [TINY], "notes": ["A.", "A."]}
    plan = make_plan(make_spec(values))
    assert replace(plan, notes=[*plan.notes, "B."]).own_notes == ["B."]
