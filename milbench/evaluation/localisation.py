"""Where a class was seen: boxes around components, how they agree with the true ones, and which pixels matter."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from milbench.api.bags import Truth
from milbench.evaluation.reading.components import Blobs

OVERLAP = 0.5
"""From this intersection over union on a detection counts as the instance."""
MARGINS = tuple(2.0 * n for n in range(13))
"""In pixels."""


@dataclass(frozen=True, slots=True)
class Detections:
    """Boxes in many images, one entry each.

    image, cls: (D,) int64, the index of the image and the class.
    score: (D,) float64, the number of positions expected to show the class there: the `mass` of the component.
    boxes: (D, 4) float64, (left, top, right, bottom) in pixels, right and bottom exclusive.
    """

    image: Tensor
    cls: Tensor
    score: Tensor
    boxes: Tensor


def detections(blobs: Blobs, centres: tuple[Tensor, Tensor]) -> Detections:
    """Return the boxes of components: the pixels nearer to their positions than to any other position of the grid.

    centres: y of every row and x of every column of positions in pixels. No receptive field is added: a network looks
    at more than this box, but is sure at these positions.
    """
    ys, xs = (c.double() for c in centres)
    step_y, step_x = _step(ys, xs), _step(xs, ys)
    top, left, bottom, right = (torch.from_numpy(v) for v in (blobs.top, blobs.left, blobs.bottom, blobs.right))
    boxes = [xs[left] - step_x / 2, ys[top] - step_y / 2, xs[right - 1] + step_x / 2, ys[bottom - 1] + step_y / 2]
    image, cls, mass = (torch.from_numpy(v) for v in (blobs.image, blobs.cls, blobs.mass))
    return Detections(image, cls, mass, torch.stack(boxes, dim=1))


def grown(found: Detections, margin: tuple[float, float]) -> Detections:
    """Return the same detections with `margin` more pixels (across, down) on each side of their boxes."""
    x, y = margin
    return replace(found, boxes=found.boxes + torch.tensor([-x, -y, x, y], dtype=torch.float64))


def learn_margin(found: Detections, truth: Truth) -> tuple[float, float]:
    """Return the margin (across, down), of MARGINS each, that gives these detections the largest mean IoU.

    A network that need not say more than which classes there are is sure at a few positions in the middle of an
    instance: how much larger instances are is not to be seen in a map. Of equally good margins the smallest.
    """
    if not len(found.image):
        return 0.0, 0.0
    margins = ((x, y) for x in MARGINS for y in MARGINS)
    return max(margins, key=lambda margin: (mean_iou(grown(found, margin), truth), -sum(margin)))


def iou(boxes: Tensor, others: Tensor) -> Tensor:
    """Return the intersection over union of boxes (..., 4) pair by pair, 0 where both are empty.

    `torchvision.ops.box_iou` is the same for all pairs of two lists, of which there would be millions here.
    """
    low = torch.maximum(boxes[..., :2], others[..., :2])
    high = torch.minimum(boxes[..., 2:], others[..., 2:])
    inner = (high - low).clamp(min=0).prod(dim=-1)
    union = _area(boxes) + _area(others) - inner
    return torch.where(union > 0, inner / union, 0.0)


def overlaps(found: Detections, truth: Truth) -> Tensor:
    """Return (D, M) float64, the IoU of detections with the instances of their image, 0 where the class differs."""
    if truth.boxes is None:
        raise ValueError("detections are judged by boxes")
    same = truth.classes[found.image] == found.cls.unsqueeze(1)
    return iou(found.boxes.unsqueeze(1), truth.boxes.double()[found.image]) * same


def mean_iou(found: Detections, truth: Truth) -> float:
    """Return the mean over all instances of the largest IoU that a detection of their class has; NaN of none."""
    best = torch.zeros(truth.classes.shape, dtype=torch.float64)
    index = found.image.unsqueeze(1).expand(-1, best.shape[1])
    best = best.scatter_reduce(0, index, overlaps(found, truth), "amax")
    return float(best[truth.classes >= 0].mean())


def box_average_precision(found: Detections, truth: Truth, classes: int) -> float:
    """Return the average precision at an IoU of 0.5, the mean over the classes that have instances; NaN of none.

    As in PASCAL VOC from 2010 on: detections of a class by falling score, each with the instance of its class that it
    overlaps most; right if that is by OVERLAP at least and no detection before had the same instance; the area under
    precision over recall, precision at a recall being the best at this recall or any higher one.

    M. Everingham et al., "The PASCAL Visual Object Classes Challenge: A Retrospective", IJCV 111, 2015.
    """
    # Where classes agree nowhere in the image, all overlaps are 0 and the detection is wrong.
    overlap, nearest = torch.nn.functional.pad(overlaps(found, truth), (0, 1)).max(dim=1)
    instance = found.image * (truth.classes.shape[1] + 1) + nearest
    values = []
    for c in range(classes):
        number = int((truth.classes == c).sum())
        if not number:
            continue
        mine = (found.cls == c).nonzero().flatten()
        mine = mine[found.score[mine].argsort(descending=True, stable=True)]
        near = overlap[mine] >= OVERLAP
        values.append(_area_under(near & _first(instance[mine], near), number))
    return sum(values) / len(values) if values else math.nan


def sensitivity(
    network: Callable[[Tensor], Tensor],
    image: Tensor,
    cls: int,
    positions: Tensor,
    log_probs: Callable[[Tensor], Tensor] = lambda logits: logits.log_softmax(dim=1),
) -> Tensor:
    """Return (H, W), how much each pixel of image (N, H, W) matters to a detection.

    That is the sum over the channels of |d log p / d I|, where p is the probability that all of `positions` (h, w) bool
    show the class: log p is the sum over them of log p_{c,k}. With one position it is the quantity of X.-L. Li,
    arXiv:1811.12346, Section 5.5.

    network: images (1, N, H, W) to logits (1, C+1, h, w); log_probs: these to log-probabilities of the same shape.
    """
    with torch.enable_grad():
        leaf = image.detach().clone().requires_grad_()
        log_p = log_probs(network(leaf.unsqueeze(0)))[0, cls]
        (gradient,) = torch.autograd.grad(log_p[positions.to(log_p.device)].sum(), leaf)
    return gradient.abs().sum(dim=0)


def _step(centres: Tensor, others: Tensor) -> float:
    """Return the distance of neighbours; of a single position that of the other axis, 1 pixel where that is single."""
    known = [c for c in (centres, others) if len(c) > 1]
    return float(known[0][1] - known[0][0]) if known else 1.0


def _area(boxes: Tensor) -> Tensor:
    return (boxes[..., 2:] - boxes[..., :2]).clamp(min=0).prod(dim=-1)


def _first(instance: Tensor, counts: Tensor) -> Tensor:
    """Return (D,) bool, whether an entry that counts is the first of its instance."""
    first = torch.zeros_like(counts)
    met: set[int] = set()
    for i in counts.nonzero().flatten().tolist():
        key = int(instance[i])
        first[i] = key not in met
        met.add(key)
    return first


def _area_under(right: Tensor, number: int) -> float:
    """Return the area under precision over recall, from whether each detection is right, by falling score."""
    hits = right.double().cumsum(dim=0)
    precision = hits / torch.arange(1, len(hits) + 1)
    best_from_here = precision.flip(0).cummax(dim=0).values.flip(0)
    return float((best_from_here * right).sum() / number)
