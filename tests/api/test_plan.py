"""The names by which a comparison calls its variants."""

from dataclasses import replace
from typing import Any

import pytest

from milbench.api.plan import Cell, labels


def cell(
    task: dict[str, Any] | None = None, network: str = "mlp", width: int = 64, **loss: Any
) -> Cell:
    of_network = network, {"width": width}, "1"
    return Cell(
        "exact",
        loss,
        "1",
        "set",
        "feature-bags",
        task or {},
        "1",
        "data",
        *of_network,
        {"epochs": 1},
        seed=0,
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
    other = replace(cells[0], task="image-bags")
    assert len({found.task for found in labels([cells[0], other]).values()}) == 2, (
        "by two tasks it is not told apart"
    )


def test_networks_are_named_where_a_task_has_several() -> None:
    cells = [cell(), cell(network="dsmil", width=8), cell(network="dsmil", width=9)]
    assert {label.network for label in labels(cells[:1]).values()} == {""}
    label = [labels(cells)[planned.id].variant for planned in cells]
    assert label == ["exact with mlp", "exact with dsmil width=8", "exact with dsmil width=9"]
