"""What metrics need of the maps of scores over positions, which are too large to keep."""

from dataclasses import replace

import torch
from torch import Tensor

from milbench.contracts.bags import Truth
from milbench.contracts.scores import Scores


def fitting_truth(truth: Truth, scores: Scores) -> Truth:
    """Return the truth without classes by position, where a network has other positions.

    Classes by position can be compared with scores only if the positions of the network are those
    of the instances.
    """
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

    Args:
        evidence: (B, C, K) or, of images, (B, C, h, w).
        truth: the true instances, by position or as boxes.
        centres: y (h,) of the rows and x (w,) of the columns of positions, in pixels; needed where
            the truth is boxes.
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
    # (B, C, 1), to be compared with the boxes of all M instances of a bag.
    y = ys[row].unsqueeze(2)
    x = xs[column].unsqueeze(2)
    left, top, right, bottom = truth.boxes.unsqueeze(1).unbind(dim=-1)
    inside = (left <= x) & (x < right) & (top <= y) & (y < bottom)
    is_of_class = truth.classes.unsqueeze(1) == classes.view(1, -1, 1)
    return (inside & is_of_class).any(dim=2)


def wrong_instances(
    instances: Tensor, truth: Truth | None, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return two tensors (B,) int64: how many instances of each bag are wrong, and how many it has.

    An instance is wrong where the class with its largest score is not its true class. Both numbers
    are 0 where the true class of each position is not known.

    Args:
        instances: (B, C+1, K), the scores of the classes and, last, of background.
        truth: the true instances.
        mask: (B, K) bool, where there is an instance; None: everywhere.
    """
    if truth is None or truth.position_classes is None:
        none = torch.zeros(len(instances), dtype=torch.int64)
        return none, none
    if mask is None:
        mask = torch.ones_like(truth.position_classes, dtype=torch.bool)
    wrong = (instances.argmax(dim=1) != truth.position_classes) & mask
    return wrong.sum(dim=1), mask.sum(dim=1)
