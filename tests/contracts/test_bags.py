from operator import attrgetter

import torch

from milbench import Bags, Truth, label_matrix


def some_bags() -> Bags:
    classes = torch.tensor([[0, 1], [1, -1], [2, 0], [-1, -1], [2, 2]])
    truth = Truth(classes, torch.arange(40.0).view(5, 2, 4), torch.arange(15).view(5, 3))
    mask = torch.tensor([[True, True, k % 2 == 0] for k in range(5)])
    return Bags(torch.arange(30.0).view(5, 3, 2), label_matrix(classes, 3), mask, truth)


def test_parts_and_selections_hold_all_that_is_known_of_their_bags() -> None:
    bags = some_bags()
    parts, selected = bags.parts(2), bags.selected(torch.tensor([3, 1]))
    assert [len(part) for part in parts] == [2, 2, 1]
    for name in (
        "instances",
        "labels",
        "mask",
        "truth.classes",
        "truth.boxes",
        "truth.position_classes",
    ):
        field = attrgetter(name)
        assert torch.equal(torch.cat([field(part) for part in parts]), field(bags))
        assert torch.equal(field(selected), field(bags)[[3, 1]])
