"""What is counted from maps, against loops."""

import itertools

import torch
from torch import Tensor

from milbench.contracts.bags import Truth
from milbench.evaluation.maps import class_hits

ROWS = 1.5 + 4 * torch.arange(5).double()
COLUMNS = 2.5 + 4 * torch.arange(6).double()


def is_hit(strength: Tensor, boxes: list[list[float]]) -> bool:
    """Return whether the strongest position of a map (h, w) lies in one of the boxes."""
    places = itertools.product(range(len(ROWS)), range(len(COLUMNS)))
    row, column = max(places, key=lambda place: float(strength[place]))
    y = float(ROWS[row])
    x = float(COLUMNS[column])
    return any(left <= x < right and top <= y < bottom for left, top, right, bottom in boxes)


def test_hits_on_images_agree_with_a_loop() -> None:
    rng = torch.Generator().manual_seed(0)
    corner = torch.randint(0, 16, (20, 3, 2), generator=rng).float()
    boxes = torch.cat([corner, corner + 9], dim=2)
    classes = torch.randint(-1, 4, (20, 3), generator=rng)
    strength = torch.rand(20, 4, 5, 6, generator=rng)
    hits = class_hits(strength, Truth(classes, boxes), (ROWS, COLUMNS))
    for bag in range(20):
        for cls in range(4):
            boxes_of_class = boxes[bag][classes[bag] == cls].tolist()
            assert bool(hits[bag, cls]) == is_hit(strength[bag, cls], boxes_of_class)
    # Both answers have to occur.
    assert 0.05 < float(hits.double().mean()) < 0.95
