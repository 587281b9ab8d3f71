"""What is counted from maps, against loops."""

import itertools

import torch

from milbench.contracts.bags import Truth
from milbench.evaluation.maps import class_hits


def test_hits_on_images_agree_with_a_loop() -> None:
    rng = torch.Generator().manual_seed(0)
    ys = 1.5 + 4 * torch.arange(5).double()
    xs = 2.5 + 4 * torch.arange(6).double()
    corner = torch.randint(0, 16, (20, 3, 2), generator=rng).float()
    classes = torch.randint(-1, 4, (20, 3), generator=rng)
    boxes = torch.cat([corner, corner + 9], dim=2)
    strength = torch.rand(20, 4, 5, 6, generator=rng)
    hits = class_hits(strength, Truth(classes, boxes), (ys, xs))
    for b, c in itertools.product(range(20), range(4)):
        places = itertools.product(range(5), range(6))
        i, j = max(places, key=lambda at: float(strength[b, c][at]))
        expected = False
        for cls, (left, top, right, bottom) in zip(
            classes[b].tolist(), boxes[b].tolist(), strict=True
        ):
            if cls == c and left <= xs[j] < right and top <= ys[i] < bottom:
                expected = True
        assert bool(hits[b, c]) == expected
    assert 0.05 < float(hits.double().mean()) < 0.95
