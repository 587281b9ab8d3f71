"""Detections: components with boxes around them, and their agreement with true boxes."""

from __future__ import annotations

import math

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
    known = [c for c in (centres, others) if len(c) > 1]
    return float(known[0][1] - known[0][0]) if known else 1.0


def with_margin(boxes: Tensor, margin: tuple[float, float]) -> Tensor:
    """Return the boxes (N, 4) with `margin` more pixels (across, down) on each side."""
    x, y = margin
    return boxes + torch.tensor([-x, -y, x, y], dtype=torch.float64)


def fit_margin(found: Components, boxes: Tensor, truth: Truth) -> tuple[float, float]:
    """Return the margin (across, down), of MARGINS each, that gives these detections the largest mean IoU.

    A network that is trained on label sets gives a high probability to a few positions in the middle of an instance;
    its map does not show how much larger the instance is. Of equally good margins the smallest is returned.
    """
    if not len(found):
        return 0.0, 0.0
    margins = ((x, y) for x in MARGINS for y in MARGINS)
    return max(margins, key=lambda margin: (mean_iou(found, with_margin(boxes, margin), truth), -sum(margin)))


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


def overlaps(found: Components, boxes: Tensor, truth: Truth) -> Tensor:
    """Return (N, M) float64, the IoU of components with the instances of their image, 0 where the class differs.

    `boxes` (N, 4) are theirs. Raises ValueError where the truth has none.
    """
    if truth.boxes is None:
        raise ValueError("detections are judged by boxes")
    image, cls = torch.from_numpy(found.image), torch.from_numpy(found.cls)
    same = truth.classes[image] == cls.unsqueeze(1)
    return iou(boxes.unsqueeze(1), truth.boxes.double()[image]) * same


def mean_iou(found: Components, boxes: Tensor, truth: Truth) -> float:
    """Return the mean over all instances of the largest IoU that a component of their class has; NaN of none."""
    best = torch.zeros(truth.classes.shape, dtype=torch.float64)
    index = torch.from_numpy(found.image).unsqueeze(1).expand(-1, best.shape[1])
    best = best.scatter_reduce(0, index, overlaps(found, boxes, truth), "amax")
    return float(best[truth.classes >= 0].mean())


def box_average_precision(found: Components, boxes: Tensor, truth: Truth, classes: int) -> float:
    """Return the average precision at an IoU of 0.5, the mean over the classes that have instances; NaN of none.

    As in PASCAL VOC from 2010 on: the detections of a class are sorted by falling mass. One is right if the instance
    of its class that it overlaps most has an IoU of OVERLAP at least, and no detection before it has matched that one.
    The average precision is the area under precision over recall, where the precision at a recall is the largest at
    this recall or any higher one.

    Source: M. Everingham et al., "The PASCAL Visual Object Classes Challenge: A Retrospective", IJCV 111, 2015.
    """
    # Where classes agree nowhere in the image, all overlaps are 0 and the detection is wrong.
    overlap, nearest = torch.nn.functional.pad(overlaps(found, boxes, truth), (0, 1)).max(dim=1)
    image, cls, mass = (torch.from_numpy(v) for v in (found.image, found.cls, found.mass))
    instance = image * (truth.classes.shape[1] + 1) + nearest
    values = []
    for c in range(classes):
        number = int((truth.classes == c).sum())
        if not number:
            continue
        mine = (cls == c).nonzero().flatten()
        mine = mine[mass[mine].argsort(descending=True, stable=True)]
        near = overlap[mine] >= OVERLAP
        values.append(_area_under(near & _first_of_instance(instance[mine], near), number))
    return sum(values) / len(values) if values else math.nan


def _area(boxes: Tensor) -> Tensor:
    return (boxes[..., 2:] - boxes[..., :2]).clamp(min=0).prod(dim=-1)


def _first_of_instance(instance: Tensor, near: Tensor) -> Tensor:
    first = torch.zeros_like(near)
    found: set[int] = set()
    for i in near.nonzero().flatten().tolist():
        number = int(instance[i])
        first[i] = number not in found
        found.add(number)
    return first


def _area_under(right: Tensor, number: int) -> float:
    """Return the area under precision over recall, from whether each detection is right, by falling score."""
    hits = right.double().cumsum(dim=0)
    precision = hits / torch.arange(1, len(hits) + 1)
    best_from_here = precision.flip(0).cummax(dim=0).values.flip(0)
    return float((best_from_here * right).sum() / number)
