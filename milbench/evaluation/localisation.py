"""Detections: components with boxes around them, and their agreement with true boxes."""

from __future__ import annotations

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

    `centres` are y of every row and x of every column of positions in pixels. A box holds the pixels that are nearer to
    the positions of its component than to any other position of the grid. The receptive field of the network is larger,
    but the class is probable at these positions alone.
    """
    ys, xs = (c.double() for c in centres)
    step_y, step_x = grid_step(ys, xs), grid_step(xs, ys)
    extent = components.top, components.left, components.bottom, components.right
    top, left, bottom, right = (torch.from_numpy(v) for v in extent)
    sides = [xs[left] - step_x / 2, ys[top] - step_y / 2, xs[right - 1] + step_x / 2, ys[bottom - 1] + step_y / 2]
    return torch.stack(sides, dim=1)


def grid_step(centres: Tensor, others: Tensor) -> float:
    """Return the distance in pixels of evenly spaced positions along one axis of a grid, from their centres.

    Where this axis has one position, the distance along the other axis is taken; 1 where that has one too.
    """
    several = [c for c in (centres, others) if len(c) > 1]
    return float(several[0][1] - several[0][0]) if several else 1.0


def with_margin(boxes: Tensor, margin: tuple[float, float]) -> Tensor:
    """Return the boxes (N, 4) with `margin` more pixels (across, down) on each side."""
    x, y = margin
    return boxes + torch.tensor([-x, -y, x, y], dtype=torch.float64)


def fit_margin(components: Components, boxes: Tensor, truth: Truth) -> tuple[float, float]:
    """Return the margin (across, down), of MARGINS each, that gives these detections the largest mean IoU.

    A network that is trained on label sets gives a high probability to a few positions in the middle of an instance;
    its map does not show how much larger the instance is. Of equally good margins the smallest is returned.
    """
    if not len(components):
        return 0.0, 0.0
    margins = ((x, y) for x in MARGINS for y in MARGINS)
    return max(margins, key=lambda margin: (mean_iou(components, with_margin(boxes, margin), truth), -sum(margin)))


def iou(boxes: Tensor, others: Tensor) -> Tensor:
    """Return the intersection over union of boxes (..., 4) pair by pair, 0 where both are empty.

    Boxes are (left, top, right, bottom). `torchvision.ops.box_iou` computes the same for all pairs of two lists, of
    which there would be millions here.
    """
    low = torch.maximum(boxes[..., :2], others[..., :2])
    high = torch.minimum(boxes[..., 2:], others[..., 2:])
    inner = (high - low).clamp(min=0).prod(dim=-1)
    union = _area(boxes) + _area(others) - inner
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


def box_average_precision(components: Components, boxes: Tensor, truth: Truth, classes: int) -> float:
    """Return the average precision at an IoU of 0.5, the mean over the classes that have instances; NaN of none.

    As in PASCAL VOC from 2010 on: the detections of a class are sorted by falling mass. One is right if the instance
    of its class that it overlaps most has an IoU of OVERLAP at least, and no detection before it has matched that one.
    The average precision is the area under precision over recall, where the precision at a recall is the largest at
    this recall or any higher one.

    Source: M. Everingham et al., "The PASCAL Visual Object Classes Challenge: A Retrospective", IJCV 111, 2015.
    """
    # Where classes agree nowhere in the image, all overlaps are 0 and the detection is wrong.
    overlap, nearest = torch.nn.functional.pad(overlaps(components, boxes, truth), (0, 1)).max(dim=1)
    image, cls, mass = (torch.from_numpy(v) for v in (components.image, components.cls, components.mass))
    instance = image * (truth.classes.shape[1] + 1) + nearest
    values = []
    for c in range(classes):
        number = int((truth.classes == c).sum())
        if not number:
            continue
        detections = (cls == c).nonzero().flatten()
        detections = detections[mass[detections].argsort(descending=True, stable=True)]
        overlapping = overlap[detections] >= OVERLAP
        values.append(_area_under(overlapping & _first_of_instance(instance[detections], overlapping), number))
    return sum(values) / len(values) if values else math.nan


def _area(boxes: Tensor) -> Tensor:
    return (boxes[..., 2:] - boxes[..., :2]).clamp(min=0).prod(dim=-1)


def _first_of_instance(instance: Tensor, overlapping: Tensor) -> Tensor:
    """Return which detections are the first of those that overlap their instance."""
    candidates = overlapping.nonzero().flatten()
    _, first = np.unique(instance[candidates].numpy(), return_index=True)
    return torch.zeros_like(overlapping).index_fill(0, candidates[torch.from_numpy(first)], True)


def _area_under(right: Tensor, number: int) -> float:
    """Return the area under precision over recall, from whether each detection is right, by falling score."""
    hits = right.double().cumsum(dim=0)
    precision = hits / torch.arange(1, len(hits) + 1)
    best_from_here = precision.flip(0).cummax(dim=0).values.flip(0)
    return float((best_from_here * right).sum() / number)
