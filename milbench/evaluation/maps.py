"""What is counted from the maps of positions, which are too large to keep."""

import math
from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import Tensor

from milbench.api.bags import Truth
from milbench.api.scores import Scores


def fitting_truth(truth: Truth, scores: Scores) -> Truth:
    """Return the truth without classes by position where a network has more or fewer positions than instances."""
    known = truth.position_classes
    fits = known is None or known.shape[1:] == scores.instances.shape[2:]
    return truth if fits else replace(truth, position_classes=None)


def class_hits(
    strength: Tensor, truth: Truth, centres: tuple[Tensor, Tensor] | None = None
) -> Tensor:
    """Return (B, C) bool, whether the position with the largest strength for each class is on one of its instances.

    The strength is (B, C, *positions). Where the truth is boxes, `centres` are y of every row and x of
    every column of positions in pixels.
    """
    strongest = strength.flatten(2).argmax(dim=2)
    classes = torch.arange(strongest.shape[1])
    if truth.position_classes is not None:
        return truth.position_classes.gather(1, strongest) == classes
    if truth.boxes is None or centres is None:
        raise ValueError("hits on images are judged by boxes and by the centres of the positions")
    ys, xs = centres
    y = ys[strongest // len(xs)].unsqueeze(2)
    x = xs[strongest % len(xs)].unsqueeze(2)
    left, top, right, bottom = truth.boxes.unsqueeze(1).unbind(dim=-1)
    inside = (left <= x) & (x < right) & (top <= y) & (y < bottom)
    is_of_class = truth.classes.unsqueeze(1) == classes.view(1, -1, 1)
    return (inside & is_of_class).any(dim=2)


def wrong_instances(
    instances: Tensor, truth: Truth | None, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return (B,) int64 twice: how many instances of each bag are wrong by (B, C+1, K) scores, and how many there are.

    Both are 0 where the truth is not by position.
    """
    if truth is None or truth.position_classes is None:
        none = torch.zeros(len(instances), dtype=torch.int64)
        return none, none
    if mask is None:
        mask = torch.ones_like(truth.position_classes, dtype=torch.bool)
    wrong = (instances.argmax(dim=1) != truth.position_classes) & mask
    return wrong.sum(dim=1), mask.sum(dim=1)


def posterior_error(batches: Iterable[tuple[Tensor, Tensor]]) -> float:
    """Return the share of wrong instances from what `wrong_instances` returns of each batch; NaN of none."""
    wrong = 0
    count = 0
    for of_batch, sizes in batches:
        wrong += int(of_batch.sum())
        count += int(sizes.sum())
    return wrong / count if count else math.nan
