"""Detections: components with boxes around them, and their agreement with true boxes."""

import itertools

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from milbench.contracts.bags import Truth
from milbench.evaluation.reading.components import Components

OVERLAP = 0.5
"""The least intersection over union at which a detection counts as the instance."""
MARGINS = tuple(2.0 * n for n in range(13))
"""The margins tried, in pixels."""


def boxes_of(components: Components, centres: tuple[Tensor, Tensor]) -> Tensor:
    """Return the boxes (N, 4) float64 of components, (left, top, right, bottom) in pixels, right and bottom exclusive.

    `centres` are y of every row and x of every column of positions in pixels, evenly spaced. A box
    holds the pixels that are nearer to the positions of its component than to any other position of
    the grid.
    """
    ys = centres[0].double()
    xs = centres[1].double()
    # Where an axis has one position, the distance along the other axis is taken.
    step_y = _step(ys) or _step(xs) or 1.0
    step_x = _step(xs) or _step(ys) or 1.0
    left = xs[torch.from_numpy(components.left)] - step_x / 2
    top = ys[torch.from_numpy(components.top)] - step_y / 2
    right = xs[torch.from_numpy(components.right) - 1] + step_x / 2
    bottom = ys[torch.from_numpy(components.bottom) - 1] + step_y / 2
    return torch.stack([left, top, right, bottom], dim=1)


def _step(axis: Tensor) -> float | None:
    """Return the distance between positions along an axis; None where there is one position."""
    if len(axis) < 2:
        return None
    return float(axis[1] - axis[0])


def with_margin(boxes: Tensor, margin: tuple[float, float]) -> Tensor:
    """Return the boxes (N, 4) with `margin` more pixels (across, down) on each side."""
    x, y = margin
    return boxes + torch.tensor([-x, -y, x, y], dtype=torch.float64)


def fit_margin(components: Components, boxes: Tensor, truth: Truth) -> tuple[float, float]:
    """Return the margin (across, down), of MARGINS each, that gives these detections the largest mean IoU.

    A network that is trained on label sets finds a few positions in the middle of an instance; its
    map does not show how much larger the instance is. Of equally good margins the smallest is
    returned.
    """
    if not len(components):
        return 0.0, 0.0

    def merit(margin: tuple[float, float]) -> tuple[float, float]:
        agreement = mean_iou(components, with_margin(boxes, margin), truth)
        return agreement, -sum(margin)

    return max(itertools.product(MARGINS, MARGINS), key=merit)


def iou(boxes: Tensor, others: Tensor) -> Tensor:
    """Return the intersection over union of boxes (..., 4) pair by pair, 0 where both are empty.

    `torchvision.ops.box_iou` computes it for all pairs of two lists, of which there would be
    millions here.
    """
    low, high = boxes.split(2, dim=-1)
    other_low, other_high = others.split(2, dim=-1)
    intersection = _area(torch.maximum(low, other_low), torch.minimum(high, other_high))
    union = _area(low, high) + _area(other_low, other_high) - intersection
    return torch.where(union > 0, intersection / union, 0.0)


def _area(low: Tensor, high: Tensor) -> Tensor:
    """Return the areas (...) of boxes from their corners (..., 2), 0 where a low end is above the high one."""
    return (high - low).clamp(min=0).prod(dim=-1)


def overlaps(components: Components, boxes: Tensor, truth: Truth) -> Tensor:
    """Return (N, M) float64, the IoU of components with the instances of their image, 0 where the class differs.

    `boxes` (N, 4) are theirs. Raises ValueError where the truth has none.
    """
    if truth.boxes is None:
        raise ValueError("detections are judged by boxes")
    image = torch.from_numpy(components.image)
    cls = torch.from_numpy(components.cls)
    is_other_class = truth.classes[image] != cls.unsqueeze(1)
    of_all = iou(boxes.unsqueeze(1), truth.boxes.double()[image])
    return of_all.masked_fill(is_other_class, 0.0)


def mean_iou(components: Components, boxes: Tensor, truth: Truth) -> float:
    """Return the mean over all instances of the largest IoU that a component of their class has; NaN of none."""
    return float(best_ious(components, boxes, truth)[truth.classes >= 0].mean())


def best_ious(components: Components, boxes: Tensor, truth: Truth) -> Tensor:
    """Return (B, M) float64, the largest IoU that each instance has with a component of its class, 0 without one."""
    best = torch.zeros(truth.classes.shape, dtype=torch.float64)
    # Each component (a row of N) goes into the row of its image, for all M instances there.
    image = torch.from_numpy(components.image).unsqueeze(1).expand(-1, best.shape[1])
    return best.scatter_reduce(0, image, overlaps(components, boxes, truth), "amax")


def right_detections(components: Components, boxes: Tensor, truth: Truth) -> NDArray[np.bool_]:
    """Return (N,), which components are right as detections.

    Those of a class are taken by falling mass. One is right if the instance of its class that it
    overlaps most has an IoU of OVERLAP at least, and no detection before it has matched that
    instance.
    """
    # A last column of zeros: where classes agree nowhere in the image, no instance is overlapped.
    padded = torch.nn.functional.pad(overlaps(components, boxes, truth), (0, 1))
    overlap, nearest = padded.max(dim=1)
    # A number for each instance of all images.
    instance = components.image * padded.shape[1] + nearest.numpy()
    candidates = np.flatnonzero(overlap.numpy() >= OVERLAP)
    by_mass = candidates[np.argsort(-components.mass[candidates], kind="stable")]
    # An instance has one class, so that the first of all that match it is the first of its class.
    _, first = np.unique(instance[by_mass], return_index=True)
    right = np.zeros(len(components), bool)
    right[by_mass[first]] = True
    return right
