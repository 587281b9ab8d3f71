"""`Bags`: parts of a batch, and selected bags."""

from operator import attrgetter

import pytest
import torch

from milbench import Bags, Truth, label_matrix

FIELDS = (
    "instances",
    "labels",
    "mask",
    "truth.classes",
    "truth.boxes",
    "truth.position_classes",
)


def five_bags() -> Bags:
    """Return five bags, each of which has other values in every field."""
    classes = torch.tensor([[0, 1], [1, -1], [2, 0], [-1, -1], [2, 2]])
    boxes = torch.arange(40.0).view(5, 2, 4)
    position_classes = torch.arange(15).view(5, 3)
    mask = torch.ones(5, 3, dtype=torch.bool)
    mask[[1, 3], 2] = False
    return Bags(
        torch.arange(30.0).view(5, 3, 2),
        label_matrix(classes, 3),
        mask,
        Truth(classes, boxes, position_classes),
    )


def test_parts_are_as_large_as_asked_for() -> None:
    assert [len(part) for part in five_bags().parts(2)] == [2, 2, 1]


@pytest.mark.parametrize("name", FIELDS)
def test_parts_hold_all_that_is_known_of_their_bags(name: str) -> None:
    bags = five_bags()
    field = attrgetter(name)
    of_parts = [field(part) for part in bags.parts(2)]
    assert torch.equal(torch.cat(of_parts), field(bags))


@pytest.mark.parametrize("name", FIELDS)
def test_selected_bags_keep_all_that_is_known_of_them(name: str) -> None:
    bags = five_bags()
    field = attrgetter(name)
    selected = bags.selected(torch.tensor([3, 1]))
    assert torch.equal(field(selected), field(bags)[[3, 1]])
