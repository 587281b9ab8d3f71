"""Detections: components with boxes around them, and their agreement with true boxes."""

import math

import numpy as np
import torch
from torch import Tensor

from milbench.api.bags import Truth
from milbench.evaluation.reading.components import Components

OVERLAP = 0.5
"""The least intersection over union at which a detection counts as the instance."""
MARGINS = tuple(2.0 * n for n in range(13))
"""The margins tried, in pixels."""


def boxes_of(components: Components, centres: tuple[Tensor, Tensor]) -> Tensor:
    """Return the boxes (N, 4) float64 of components, (left, top, right, bottom) in pixels, right and bottom exclusive.

    `centres` are y of every row and x of every column of positions in pixels, evenly spaced. A box holds the pixels
    that are nearer to the positions of its component than to any other position of the grid.
    """
    ys, xs = (c.double() for c in centres)
    # Where an axis has one position, the distance along the other axis is taken.
    step_y, step_x = (
        next((float(c[1] - c[0]) for c in axes if len(c) > 1), 1.0) for axes in ((ys, xs), (xs, ys))
    )
    extent = components.top, components.left, components.bottom, components.right
    top, left, bottom, right = (torch.from_numpy(v) for v in extent)
    sides = [
        xs[left] - step_x / 2,
        ys[top] - step_y / 2,
        xs[right - 1] + step_x / 2,
        ys[bottom - 1] + step_y / 2,
    ]
    return torch.stack(sides, dim=1)


def with_margin(boxes: Tensor, margin: tuple[float, float]) -> Tensor:
    """Return the boxes (N, 4) with `margin` more pixels (across, down) on each side."""
    x, y = margin
    return boxes + torch.tensor([-x, -y, x, y], dtype=torch.float64)


def fit_margin(components: Components, boxes: Tensor, truth: Truth) -> tuple[float, float]:
    """Return the margin (across, down), of MARGINS each, that gives these detections the largest mean IoU.

    A network that is trained on label sets finds a few positions in the middle of an instance; its map does not show
    how much larger the instance is. Of equally good margins the smallest is returned.
    """
    if not len(components):
        return 0.0, 0.0
    margins = ((x, y) for x in MARGINS for y in MARGINS)
    return max(
        margins,
        key=lambda margin: (mean_iou(components, with_margin(boxes, margin), truth), -sum(margin)),
    )


def iou(boxes: Tensor, others: Tensor) -> Tensor:
    """Return the intersection over union of boxes (..., 4) pair by pair, 0 where both are empty.

    `torchvision.ops.box_iou` computes it for all pairs of two lists, of which there would be millions here.
    """

    def area(low: Tensor, high: Tensor) -> Tensor:
        return (high - low).clamp(min=0).prod(dim=-1)

    (low, high), (other_low, other_high) = boxes.split(2, dim=-1), others.split(2, dim=-1)
    inner = area(torch.maximum(low, other_low), torch.minimum(high, other_high))
    union = area(low, high) + area(other_low, other_high) - inner
    return torch.where(union > 0, inner / union, 0.0)


def overlaps(components: Components, boxes: Tensor, truth: Truth) -> Tensor:
    """Return (N, M) float64, the IoU of components with the instances of their image, 0 where the class differs.

    `boxes` (N, 4) are theirs. Raises ValueError where the truth has none.
    """
    if truth.boxes is None:
        raise ValueError("detections are judged by boxes")
    image, cls = torch.from_numpy(components.image), torch.from_numpy(components.cls)
    same_class = truth.classes[image] == cls.unsqueeze(1)
    return iou(boxes.unsqueeze(1), truth.boxes.double()[image]) * same_class


def mean_iou(components: Components, boxes: Tensor, truth: Truth) -> float:
    """Return the mean over all instances of the largest IoU that a component of their class has; NaN of none."""
    best = torch.zeros(truth.classes.shape, dtype=torch.float64)
    index = torch.from_numpy(components.image).unsqueeze(1).expand(-1, best.shape[1])
    best = best.scatter_reduce(0, index, overlaps(components, boxes, truth), "amax")
    return float(best[truth.classes >= 0].mean())


def box_average_precision(
    components: Components, boxes: Tensor, truth: Truth, classes: int
) -> float:
    """Return the average precision at an IoU of 0.5, the mean over the classes that have instances; NaN of none.

    As in PASCAL VOC from 2010 on: the detections of a class are sorted by falling mass. One is right if the instance
    of its class that it overlaps most has an IoU of OVERLAP at least, and no detection before it has matched that one.
    The average precision is the area under precision over recall, where the precision at a recall is the largest at
    this recall or any higher one.

    Source: M. Everingham et al., "The PASCAL Visual Object Classes Challenge: A Retrospective", IJCV 111, 2015.
    """
    # Where classes agree nowhere in the image, all overlaps are 0 and the detection is wrong.
    overlap, nearest = torch.nn.functional.pad(overlaps(components, boxes, truth), (0, 1)).max(
        dim=1
    )
    image, cls, mass = (
        torch.from_numpy(v) for v in (components.image, components.cls, components.mass)
    )
    instance = image * (truth.classes.shape[1] + 1) + nearest
    values = []
    for c in range(classes):
        number = int((truth.classes == c).sum())
        if not number:
            continue
        detections = (cls == c).nonzero().flatten()
        detections = detections[mass[detections].argsort(descending=True, stable=True)]
        candidates = (overlap[detections] >= OVERLAP).nonzero().flatten()
        _, first = np.unique(instance[detections[candidates]].numpy(), return_index=True)
        right = (
            torch.zeros(len(detections))
            .double()
            .index_fill(0, candidates[torch.from_numpy(first)], 1)
        )
        precision = right.cumsum(dim=0) / torch.arange(1, len(right) + 1)
        best_from_here = precision.flip(0).cummax(dim=0).values.flip(0)
        values.append(float((best_from_here * right).sum() / number))
    return sum(values) / len(values) if values else math.nan
