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
    assert bags.truth is not None
    for start, part in zip((0, 2, 4), parts, strict=True):
        assert part.truth is not None
        assert part.mask is not None
        assert part.truth.boxes is not None
        assert part.truth.position_classes is not None
        for k in range(len(part)):
            assert part.instances[k].tolist() == [
                [6.0 * (start + k) + 2 * i, 6.0 * (start + k) + 2 * i + 1] for i in range(3)
            ]
            assert part.mask[k].tolist() == [True, True, (start + k) % 2 == 0]
            assert part.truth.boxes[k, 0, 0] == 8 * (start + k)
            assert part.truth.position_classes[k].tolist() == [3 * (start + k) + i for i in range(3)]
            assert set(part.labels[k].nonzero().flatten().tolist()) == set(part.truth.classes[k].tolist()) - {-1}


def test_bags_are_selected_by_number_with_all_that_is_known_of_them() -> None:
    bags = some_bags()
    chosen = bags.selected(torch.tensor([3, 1]))
    for name in ("instances", "labels", "mask"):
        assert torch.equal(getattr(chosen, name), torch.stack([getattr(bags, name)[3], getattr(bags, name)[1]]))
    for name in ("classes", "boxes", "position_classes"):
        whole = getattr(bags.truth, name)
        assert torch.equal(getattr(chosen.truth, name), torch.stack([whole[3], whole[1]]))
