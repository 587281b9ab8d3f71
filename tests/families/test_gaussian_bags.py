from __future__ import annotations

import math

import pytest
import torch

from milbench import generator
from milbench.families.gaussian_bags import noisy_labels

LABELS = torch.arange(20_000).unsqueeze(1) % 2 ** torch.arange(1, 4) >= 2 ** torch.arange(3)  # every set as often
LARGE = torch.full((20_000,), 9)


def test_errors_are_as_frequent_as_they_say_and_independent() -> None:
    found = noisy_labels(LABELS, LARGE, 0.2, 0.05, generator(1))
    wrong = found != LABELS
    for rate, where in ((0.2, LABELS), (0.05, ~LABELS)):
        for c in range(3):
            of_class = wrong[:, c][where[:, c]].double()
            assert float(of_class.mean()) == pytest.approx(rate, abs=4 * math.sqrt(rate * (1 - rate) / len(of_class)))
    all_there = wrong[LABELS.all(dim=1)].double()
    assert float((all_there[:, 0] * all_there[:, 1]).mean()) == pytest.approx(0.04, abs=4 * math.sqrt(0.04 / 2500))


def test_no_bag_gets_more_labels_than_instances_and_chance_decides_which() -> None:
    labels = torch.zeros(9000, 3, dtype=torch.bool)
    labels[:3000, 1] = True
    sizes = torch.ones(9000, dtype=torch.int64)
    sizes[6000:] = 2
    found = noisy_labels(labels, sizes, 0.0, 0.999, generator(2))
    assert torch.equal(found[:3000], labels[:3000])
    assert (found.sum(dim=1) <= sizes).all()
    shares = found[3000:6000].double().mean(dim=0)
    assert shares.tolist() == pytest.approx([1 / 3] * 3, abs=4 * math.sqrt(2 / 9 / 3000))
    assert float(found[6000:].sum(dim=1).double().mean()) > 1.99


def test_a_class_that_is_left_out_makes_room() -> None:
    labels = torch.tensor([[True, False]]).expand(4000, 2)
    found = noisy_labels(labels, torch.ones(4000, dtype=torch.int64), 0.5, 0.5, generator(3))
    shares = [float((found == torch.tensor(row)).all(dim=1).double().mean()) for row in ([1, 0], [0, 1], [0, 0])]
    assert shares == pytest.approx([0.5, 0.25, 0.25], abs=0.03)
