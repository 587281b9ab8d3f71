"""Hits: whether the strongest position of a class lies in one of its boxes, against a loop."""

import itertools

import torch
from torch import Tensor

from milbench.contracts.bags import Truth
from milbench.evaluation.maps import class_hits

# The centres of 5 x 6 positions: y of each row and x of each column, in pixels. They are 4 pixels
# apart.
ROWS = 1.5 + 4 * torch.arange(5).double()
COLUMNS = 2.5 + 4 * torch.arange(6).double()


def is_hit(strength: Tensor, boxes: list[list[float]]) -> bool:
    """Return whether the strongest position of a map (h, w) lies in one of the boxes."""
    positions = itertools.product(range(len(ROWS)), range(len(COLUMNS)))
    row, column = max(positions, key=lambda position: float(strength[position]))
    y = float(ROWS[row])
    x = float(COLUMNS[column])
    return any(left <= x < right and top <= y < bottom for left, top, right, bottom in boxes)


def test_hits_on_images_agree_with_a_loop() -> None:
    rng = torch.Generator().manual_seed(0)
    # 20 bags with 3 boxes of 9 x 9 pixels: left and top, then right and bottom.
    left_top = torch.randint(0, 16, (20, 3, 2), generator=rng).float()
    boxes = torch.cat([left_top, left_top + 9], dim=2)
    # Four classes, and -1 where there is no instance.
    classes = torch.randint(-1, 4, (20, 3), generator=rng)
    strength = torch.rand(20, 4, len(ROWS), len(COLUMNS), generator=rng)
    hits = class_hits(strength, Truth(classes, boxes), (ROWS, COLUMNS))
    for bag in range(20):
        for cls in range(4):
            boxes_of_class = boxes[bag][classes[bag] == cls].tolist()
            assert bool(hits[bag, cls]) == is_hit(strength[bag, cls], boxes_of_class)
    # The test would show nothing if all were hits, or none.
    assert 0.05 < float(hits.double().mean()) < 0.95
