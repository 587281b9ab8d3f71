from __future__ import annotations

import torch

from milbench import Bags, Truth, label_matrix


def some_bags() -> Bags:
    classes = torch.tensor([[0, 1], [1, -1], [2, 0], [-1, -1], [2, 2]])
    truth = Truth(classes, torch.arange(40.0).view(5, 2, 4), torch.arange(15).view(5, 3))
    mask = torch.tensor([[True, True, k % 2 == 0] for k in range(5)])
    return Bags(torch.arange(30.0).view(5, 3, 2), label_matrix(classes, 3), mask, truth)


def test_parts_hold_every_bag_once_in_order_with_all_that_is_known_of_it() -> None:
    bags = some_bags()
    parts = bags.parts(2)
    assert [len(part) for part in parts] == [2, 2, 1]
    for name in ("instances", "labels", "mask"):
        assert torch.equal(torch.cat([getattr(part, name) for part in parts]), getattr(bags, name))
    for name in ("classes", "boxes", "position_classes"):
        assert torch.equal(torch.cat([getattr(part.truth, name) for part in parts]), getattr(bags.truth, name))


def test_bags_are_selected_by_number_with_all_that_is_known_of_them() -> None:
    bags = some_bags()
    chosen = bags.selected(torch.tensor([3, 1]))
    for name in ("instances", "labels", "mask"):
        assert torch.equal(getattr(chosen, name), torch.stack([getattr(bags, name)[3], getattr(bags, name)[1]]))
    for name in ("classes", "boxes", "position_classes"):
        whole = getattr(bags.truth, name)
        assert torch.equal(getattr(chosen.truth, name), torch.stack([whole[3], whole[1]]))
