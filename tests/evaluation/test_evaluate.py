"""An evaluation with a limit is one of the first bags."""

from __future__ import annotations

import pytest
import torch

from milbench import Bags, EvalSplit, Scores, Truth, evaluate_splits, label_matrix


def made(sizes: list[int], seed: int) -> list[Bags]:
    """Return batches of random sets of four instances of two classes or background."""
    rng = torch.Generator().manual_seed(seed)
    batches = []
    for size in sizes:
        classes = torch.randint(-1, 2, (size, 4), generator=rng)
        truth = Truth(classes, position_classes=classes.masked_fill(classes < 0, 2))
        batches.append(Bags(torch.randn(size, 4, 2, generator=rng), label_matrix(classes, 2), truth=truth))
    return batches


def score(bags: Bags) -> Scores:
    probs = torch.cat([bags.instances, bags.instances[..., :1].neg()], dim=2).softmax(dim=2).transpose(1, 2)
    highest = probs[:, :-1].amax(dim=2)
    return Scores(highest, highest, probs)


def joined(batches: list[Bags], count: int) -> list[Bags]:
    """Return the first bags of all batches, each as a batch of its own."""
    return [one for bags in batches for one in bags.parts(1)][:count]


@pytest.mark.parametrize("limit", [1, 5, 6, 7, 11, 40])
def test_a_limited_evaluation_is_one_of_the_first_bags(limit: int) -> None:
    lone, bags, calibration = made([4, 9], 0), made([6, 5, 4], 1), made([3, 8], 2)
    found = evaluate_splits(score, {"test": EvalSplit(lone, bags)}, calibration, limit=limit)
    by_hand = EvalSplit(joined(lone, limit), joined(bags, limit))
    assert found == evaluate_splits(score, {"test": by_hand}, joined(calibration, limit))


def test_bags_that_serve_for_instances_too_are_still_scored_once() -> None:
    scored = []

    def counted(bags: Bags) -> Scores:
        scored.append(len(bags))
        return score(bags)

    bags = made([6, 5], 3)
    evaluate_splits(counted, {"validation": EvalSplit(bags, bags)}, limit=8)
    assert scored == [6, 2]
