"""Training targets for more supervision than label sets: the one place where instance truth reaches training."""

import torch
from torch import Tensor

from milbench._utils.devices import all_to_device
from milbench.contracts.bags import Bags, Truth
from milbench.contracts.loss import Loss
from milbench.contracts.network import Network
from milbench.errors import UsageError

CENTRAL = 0.25  # of a box's width and height: a position whose centre is closer to its middle shows the instance


def make_target(loss: Loss, bags: Bags, logits: Tensor, network: Network) -> Tensor | None:
    """Return what a loss is given of B bags in training besides the label sets.

    The logits (B, C+1, *positions) are those of these bags by the network, which says where its positions are. The
    target depends on the loss's `supervision`; it is None for a loss without `target_loss`.

    - count: (B, C) int64, how many instances of each class a bag has.
    - order: (B, M) int64, the classes of the instances in their order, -1 where a bag has fewer than M; the caller
      knows that the task has them in order, see `milbench.contracts.task.Task.instances_are_ordered`.
    - position: (B, *positions) int64, the class that each position shows, C for background.

    Raises UsageError where the truth of the bags does not hold it, or the network does not define its positions.
    """
    supervision = loss.supervision
    if not loss.takes_target:
        return None
    if bags.truth is None:
        raise UsageError(
            f"{loss.name} has {supervision} supervision and needs bags whose truth is known"
        )
    truth, num_classes = bags.truth, bags.labels.shape[1]
    if supervision == "order":
        return truth.classes
    if supervision == "count":
        one_hot = torch.nn.functional.one_hot(truth.classes.clamp(min=0), num_classes)
        return (one_hot * (truth.classes >= 0).unsqueeze(-1)).sum(dim=1)
    if truth.position_classes is not None:
        return truth.position_classes
    centres = network.centres_in(bags)
    if truth.boxes is None or centres is None:
        raise UsageError(f"{loss.name} needs bags with boxes and a network with position centres")
    return _position_classes(truth, truth.boxes, centres, num_classes).view(
        len(bags), *logits.shape[2:]
    )


def _position_classes(
    truth: Truth, boxes: Tensor, centres: tuple[Tensor, Tensor], background: int
) -> Tensor:
    """Return (B, h, w), the class of the box whose middle is nearest, background where no middle is near enough.

    A box that is too small for that is shown by the nearest position, and one without area by none: augmentation has
    cut its instance away. Of two boxes with the same nearest positions one alone is shown.
    """
    ys, xs = all_to_device([c.to(boxes.dtype) for c in centres], boxes.device)
    ys, xs = ys.view(1, 1, -1, 1), xs.view(1, 1, 1, -1)
    left, top, right, bottom = boxes[..., None, None].unbind(dim=2)
    distance = torch.maximum(
        (ys - (top + bottom) / 2).abs() / (bottom - top).clamp(min=1e-6),
        (xs - (left + right) / 2).abs() / (right - left).clamp(min=1e-6),
    )
    shows = (distance < CENTRAL) | (distance == distance.amin(dim=(2, 3), keepdim=True))
    shows &= ((truth.classes >= 0)[..., None, None]) & (right > left) & (bottom > top)
    nearest = distance.masked_fill(~shows, torch.inf).argmin(dim=1)
    classes = (
        truth.classes[..., None, None]
        .expand(distance.shape)
        .gather(1, nearest.unsqueeze(1))
        .squeeze(1)
    )
    return torch.where(shows.any(dim=1), classes, background)
