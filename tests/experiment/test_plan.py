"""Plans: the names that a comparison gives to its variants, and the ids of cells."""

import csv
import gzip
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from milbench.experiment.cell import CELL_FORMAT, Cell
from milbench.experiment.display_names import labels
from milbench.experiment.make_plan import make_plan
from milbench.experiment.plan import Plan
from milbench.experiment.plan_file import plan_from_json
from milbench.experiment.spec_files import make_spec
from tests._helpers.cells import make_cell
from tests._helpers.command_line import TINY

REPORTS = Path(__file__).parents[2] / "reports"
PUBLISHED = sorted(path.parent.name for path in REPORTS.glob("*/comparison.json.gz"))
"""The names of the reports in this repository."""


def with_loss(**params: Any) -> Cell:
    """Return a cell whose loss has these parameters."""
    return make_cell(loss_params=params)


def with_network(name: str, width: int) -> Cell:
    """Return a cell with a network of this width."""
    return make_cell(network=name, network_params={"width": width})


def on_table(table: str, task: str = "feature-bags") -> Cell:
    """Return a cell of a task that reads a table."""
    return make_cell(task=task, task_params={"table": table})


@pytest.mark.parametrize(
    ("cells", "names"),
    [
        pytest.param([with_loss()], ["exact"], id="one loss"),
        pytest.param(
            [with_loss(a=1, b=2), with_loss(a=1, b=3)],
            ["exact b=2", "exact b=3"],
            id="one parameter differs",
        ),
        pytest.param(
            [with_loss(a=1, b=1), with_loss(a=2, b=2)],
            ["exact a=1", "exact a=2"],
            id="the first of two is enough",
        ),
        pytest.param(
            [with_loss(w="x/one.pt"), with_loss(w="y/two.pt")],
            ["exact w=one", "exact w=two"],
            id="files by their stems",
        ),
        pytest.param(
            [with_loss(w="x/one.pt"), with_loss(w="y/one.pt")],
            ["exact w=x/one.pt", "exact w=y/one.pt"],
            id="files of one stem by their paths",
        ),
    ],
)
def test_losses_are_named_by_the_parameters_in_which_they_differ(
    cells: list[Cell], names: list[str]
) -> None:
    label_of = labels(cells)
    assert [label_of[cell.id].loss for cell in cells] == names


@pytest.mark.parametrize(
    ("tables", "names"),
    [
        pytest.param(["here/birds.csv"], ["birds"], id="one table"),
        pytest.param(["here/birds.csv", "here/bats.csv"], ["birds", "bats"], id="two tables"),
    ],
)
def test_a_task_is_named_by_the_table_it_reads(tables: list[str], names: list[str]) -> None:
    cells = [on_table(table) for table in tables]
    label_of = labels(cells)
    assert [label_of[cell.id].task for cell in cells] == names


def test_two_tasks_that_read_one_table_have_different_names() -> None:
    cells = [on_table("here/birds.csv"), on_table("here/birds.csv", task="image-bags")]
    names = {label.task for label in labels(cells).values()}
    assert len(names) == 2


def test_the_only_network_of_a_task_is_not_named() -> None:
    (label,) = labels([with_network("mlp", width=64)]).values()
    assert label.network == ""


def test_networks_are_named_where_a_task_has_several() -> None:
    cells = [with_network("mlp", 64), with_network("dsmil", 8), with_network("dsmil", 9)]
    label_of = labels(cells)
    names = [label_of[cell.id].variant for cell in cells]
    assert names == ["exact with mlp", "exact with dsmil width=8", "exact with dsmil width=9"]


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_cells_keep_the_ids_of_their_frames(name: str) -> None:
    packed = (REPORTS / name / "comparison.json.gz").read_bytes()
    plan = plan_from_json(gzip.decompress(packed))
    with gzip.open(REPORTS / name / "results.csv.gz", "rt", encoding="utf-8") as file:
        ids = {row["cell"] for row in csv.DictReader(file)}
    assert {cell.id for cell in plan.cells} <= ids


def test_another_format_is_another_cell() -> None:
    cell = make_cell()
    assert cell.id != replace(cell, format=CELL_FORMAT - 1).id


def tiny_plan(**values: Any) -> Plan:
    """Return the plan of one cell on the tiny task; `values` are fields of its spec."""
    spec = make_spec({"name": "t", "losses": ["exact"], "tasks": [TINY], "seeds": 0, **values})
    return make_plan(spec)


def test_planned_cells_have_the_newest_format() -> None:
    assert {cell.format for cell in tiny_plan().cells} == {CELL_FORMAT}


def test_a_launch_leaves_out_cells_of_an_earlier_format() -> None:
    new = tiny_plan()
    old = replace(new, cells=[replace(new.cells[0], format=CELL_FORMAT - 1)])
    assert new.joined(old).cells == new.cells


def test_a_plan_knows_which_notes_are_not_of_its_spec() -> None:
    # A note that the spec has twice is left out twice.
    plan = tiny_plan(notes=["A.", "A."])
    with_a_note = replace(plan, notes=[*plan.notes, "B."])
    assert with_a_note.own_notes == ["B."]
