"""What is counted from the maps of positions, which are too large to keep."""

from dataclasses import replace

import torch
from torch import Tensor

from milbench.contracts.bags import Truth
from milbench.contracts.scores import Scores


def fitting_truth(truth: Truth, scores: Scores) -> Truth:
    """Return the truth, without classes by position where the positions of a network are not the instances."""
    known = truth.position_classes
    if known is None:
        return truth
    positions_are_instances = known.shape[1:] == scores.instances.shape[2:]
    if positions_are_instances:
        return truth
    return replace(truth, position_classes=None)


def class_hits(
    evidence: Tensor, truth: Truth, centres: tuple[Tensor, Tensor] | None = None
) -> Tensor:
    """Return (B, C) bool, whether the strongest evidence for each class is on one of its instances.

    The evidence is (B, C, *positions). Where the truth is boxes, `centres` are y of every row and x
    of every column of positions in pixels.
    """
    strongest = evidence.flatten(2).argmax(dim=2)
    classes = torch.arange(strongest.shape[1])
    if truth.position_classes is not None:
        return truth.position_classes.gather(1, strongest) == classes
    if truth.boxes is None or centres is None:
        raise ValueError(
            "cannot judge hits: the truth has no boxes, or the network has no centres of positions"
        )
    ys, xs = centres
    # Positions are numbered row by row.
    row = strongest // len(xs)
    column = strongest % len(xs)
    # (B, C, 1), to be compared with all M instances of a bag.
    y = ys[row].unsqueeze(2)
    x = xs[column].unsqueeze(2)
    left, top, right, bottom = truth.boxes.unsqueeze(1).unbind(dim=-1)
    inside = (left <= x) & (x < right) & (top <= y) & (y < bottom)
    is_of_class = truth.classes.unsqueeze(1) == classes.view(1, -1, 1)
    return (inside & is_of_class).any(dim=2)


def wrong_instances(
    instances: Tensor, truth: Truth | None, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return two tensors (B,) int64: how many instances of each bag get a wrong class, and how many it has.

    The scores of instances are (B, C+1, K). Both counts are 0 where the truth is not by position.
    """
    if truth is None or truth.position_classes is None:
        none = torch.zeros(len(instances), dtype=torch.int64)
        return none, none
    if mask is None:
        mask = torch.ones_like(truth.position_classes, dtype=torch.bool)
    wrong = (instances.argmax(dim=1) != truth.position_classes) & mask
    return wrong.sum(dim=1), mask.sum(dim=1)
