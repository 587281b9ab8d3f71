"""Boxes around components, and how well they agree with the true boxes of instances.

A component with its box is a detection.
"""

import itertools

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from milbench.contracts.bags import Truth
from milbench.evaluation.reading.components import Components

OVERLAP = 0.5
"""The least intersection over union (IoU) at which a detection may count as right."""
MARGINS = tuple(2.0 * n for n in range(13))
"""The margins that are tried along each axis, in pixels."""


def boxes_of(components: Components, centres: tuple[Tensor, Tensor]) -> Tensor:
    """Return the boxes (N, 4) float64 of components: left, top, right, bottom in pixels.

    Right and bottom are exclusive. A box extends half the distance between positions beyond the
    outermost positions of its component. `centres` are y of the rows and x of the columns of
    positions in pixels, evenly spaced.
    """
    ys = centres[0].double()
    xs = centres[1].double()
    # An axis with a single position takes the distance along the other axis.
    step_y = _step(ys) or _step(xs) or 1.0
    step_x = _step(xs) or _step(ys) or 1.0
    left = xs[torch.from_numpy(components.left)] - step_x / 2
    top = ys[torch.from_numpy(components.top)] - step_y / 2
    right = xs[torch.from_numpy(components.right) - 1] + step_x / 2
    bottom = ys[torch.from_numpy(components.bottom) - 1] + step_y / 2
    return torch.stack([left, top, right, bottom], dim=1)


def _step(axis: Tensor) -> float | None:
    """Return the distance between positions along an axis; None where there is only one."""
    if len(axis) < 2:
        return None
    return float(axis[1] - axis[0])


def with_margin(boxes: Tensor, margin: tuple[float, float]) -> Tensor:
    """Return the boxes (N, 4), larger by `margin` pixels (across, down) on each side."""
    x, y = margin
    return boxes + torch.tensor([-x, -y, x, y], dtype=torch.float64)


def fit_margin(components: Components, boxes: Tensor, truth: Truth) -> tuple[float, float]:
    """Return the margin (across, down) of MARGINS for which the mean IoU is largest.

    A network that is trained on label sets finds a few positions in the middle of an instance. Its
    map does not show how much larger the instance is, so that this is learnt from true boxes. Where
    several margins are equally good, the smallest one is returned.
    """
    if not len(components):
        return 0.0, 0.0

    def merit(margin: tuple[float, float]) -> tuple[float, float]:
        agreement = mean_iou(components, with_margin(boxes, margin), truth)
        return agreement, -sum(margin)

    return max(itertools.product(MARGINS, MARGINS), key=merit)


def iou(boxes: Tensor, others: Tensor) -> Tensor:
    """Return the intersection over union of boxes (..., 4) pair by pair, 0 where both are empty.

    `torchvision.ops.box_iou` would compare each box with the boxes of all images, which would be
    millions of pairs.
    """
    low, high = boxes.split(2, dim=-1)
    other_low, other_high = others.split(2, dim=-1)
    intersection = _area(torch.maximum(low, other_low), torch.minimum(high, other_high))
    union = _area(low, high) + _area(other_low, other_high) - intersection
    return torch.where(union > 0, intersection / union, 0.0)


def _area(low: Tensor, high: Tensor) -> Tensor:
    """Return the areas (...) of boxes from their lower and higher corners (..., 2).

    It is 0 where the lower corner is beyond the higher one, as of boxes that do not overlap.
    """
    return (high - low).clamp(min=0).prod(dim=-1)


def overlaps(components: Components, boxes: Tensor, truth: Truth) -> Tensor:
    """Return (N, M) float64, the IoU of each component with the instances of its image.

    It is 0 where the classes differ. `boxes` (N, 4) are the boxes of the components. Raises
    ValueError where the truth has no boxes.
    """
    if truth.boxes is None:
        raise ValueError("detections are judged by boxes")
    image = torch.from_numpy(components.image)
    cls = torch.from_numpy(components.cls)
    is_other_class = truth.classes[image] != cls.unsqueeze(1)
    of_all = iou(boxes.unsqueeze(1), truth.boxes.double()[image])
    return of_all.masked_fill(is_other_class, 0.0)


def mean_iou(components: Components, boxes: Tensor, truth: Truth) -> float:
    """Return the mean of `best_ious` over all instances; NaN where there are none."""
    return float(best_ious(components, boxes, truth)[truth.classes >= 0].mean())


def best_ious(components: Components, boxes: Tensor, truth: Truth) -> Tensor:
    """Return (B, M) float64, for each instance the largest IoU with a component of its class.

    It is 0 where the image has no such component.
    """
    best = torch.zeros(truth.classes.shape, dtype=torch.float64)
    # (N, M): the row of `best` in which each component is compared with M instances.
    image = torch.from_numpy(components.image).unsqueeze(1).expand(-1, best.shape[1])
    return best.scatter_reduce(0, image, overlaps(components, boxes, truth), "amax")


def right_detections(components: Components, boxes: Tensor, truth: Truth) -> NDArray[np.bool_]:
    """Return (N,), which components are right as detections.

    Components are judged by falling mass. A component is right under two conditions: it overlaps
    an instance of its class by an IoU of OVERLAP or more, and no component before it has matched
    the same instance. Only the instance that it overlaps most is considered.
    """
    # The last column of zeros gives `max` a value where the bags have no instances, M = 0.
    padded = torch.nn.functional.pad(overlaps(components, boxes, truth), (0, 1))
    overlap, nearest = padded.max(dim=1)
    # An index that tells all instances of all images apart.
    instance = components.image * padded.shape[1] + nearest.numpy()
    candidates = np.flatnonzero(overlap.numpy() >= OVERLAP)
    by_mass = candidates[np.argsort(-components.mass[candidates], kind="stable")]
    # `unique` returns where each instance occurs first: the heaviest component that matches it.
    _, first = np.unique(instance[by_mass], return_index=True)
    right = np.zeros(len(components), bool)
    right[by_mass[first]] = True
    return right
