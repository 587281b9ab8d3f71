"""Training targets for losses with more supervision than label sets.

A target is what such a loss learns from besides the label sets, such as counts. It is made from the
truth about the instances of a bag. Nowhere else does that truth reach training.
"""

import torch
from torch import Tensor

from milbench._utils.devices import all_to_device
from milbench.contracts.bags import Bags, Truth
from milbench.contracts.loss import Loss
from milbench.contracts.network import Network
from milbench.errors import UsageError

CENTRAL = 0.25
"""How far a position that shows an instance may be from the middle of the instance's box.

The distance is a share of the box's side. With a quarter, the centre of the position has to be in
the middle half of the box, both across and down.
"""


def make_target(loss: Loss, bags: Bags, logits: Tensor, network: Network) -> Tensor | None:
    """Return the target of B bags: what the loss learns from in training besides the label sets.

    The logits (B, C+1, *positions) are the network's for these bags; the network also says where
    its positions are. The target depends on the loss's `supervision`. It is None for a loss that
    learns from label sets alone, and so does not write `Loss.target_loss`.

    - count: (B, C) int64, how many instances of each class a bag has.
    - order: (B, M) int64, the classes of the instances in their order. M is the largest number of
      instances in a bag; a bag with fewer has -1 in the remaining entries. The caller must have
      checked that the task orders its instances, see
      `milbench.contracts.task.Task.instances_are_ordered`.
    - position: (B, *positions) int64, the class that each position shows, C for background.

    Raises UsageError where the target cannot be made from the truth of the bags, or the network
    does not say where its positions are.
    """
    supervision = loss.supervision
    if not loss.takes_target:
        return None
    if bags.truth is None:
        raise UsageError(
            f"{loss.name} has {supervision} supervision and needs bags whose truth is known"
        )
    truth = bags.truth
    num_classes = bags.labels.shape[1]
    if supervision == "order":
        return truth.classes
    if supervision == "count":
        return _class_counts(truth.classes, num_classes)
    # What is left is the supervision "position".
    if truth.position_classes is not None:
        return truth.position_classes
    centres = network.centres_in(bags)
    if truth.boxes is None or centres is None:
        raise UsageError(f"{loss.name} needs bags with boxes and a network with position centres")
    classes = _position_classes(truth, truth.boxes, centres, num_classes)
    # The K positions of a sequence count as one row. So `classes` is (B, 1, K) there, while logits
    # are (B, C+1, K).
    return classes.view(len(bags), *logits.shape[2:])


def _class_counts(classes: Tensor, num_classes: int) -> Tensor:
    """Return (B, C), how many instances of each class each bag has.

    `classes` (B, M) are those of the instances. Bags with fewer than M instances end in -1.
    """
    is_instance = classes >= 0
    # `one_hot` does not accept -1. Padding becomes class 0 here, and the next step removes it.
    one_hot = torch.nn.functional.one_hot(classes.clamp(min=0), num_classes)
    return one_hot.masked_fill(~is_instance.unsqueeze(-1), 0).sum(dim=1)


def _position_classes(
    truth: Truth, boxes: Tensor, centres: tuple[Tensor, Tensor], background: int
) -> Tensor:
    """Return (B, h, w), the class of the box whose middle is nearest to each position.

    The boxes (B, M, 4) are left, top, right and bottom of each instance. `centres` are the
    coordinates of the h rows and of the w columns of positions, in the units of the boxes.

    The class is `background` where no middle is near enough by `CENTRAL`. A box may be so small
    that no position is near enough; then its nearest position shows it. If two such boxes have the
    same nearest position, it shows only one of them. A box without area is shown nowhere, since
    augmentation has cut its instance away.
    """
    rows, columns = all_to_device([centre.to(boxes.dtype) for centre in centres], boxes.device)
    # All values are (B, M, h, w), or 1 in place of a dimension: bags, boxes, rows and columns.
    ys = rows.view(1, 1, -1, 1)
    xs = columns.view(1, 1, 1, -1)
    left, top, right, bottom = boxes[..., None, None].unbind(dim=2)
    box_classes = truth.classes[..., None, None]

    # The distance of each position from the middle of each box, as a share of the box's sides.
    # Boxes without area are left out below; the clamp only avoids a division by 0.
    height = (bottom - top).clamp(min=1e-6)
    width = (right - left).clamp(min=1e-6)
    distance_down = (ys - (top + bottom) / 2).abs() / height
    distance_across = (xs - (left + right) / 2).abs() / width
    distance = torch.maximum(distance_down, distance_across)
    is_near = distance < CENTRAL
    is_nearest_position = distance == distance.amin(dim=(2, 3), keepdim=True)
    # Where a bag has fewer than M instances, the remaining classes are -1.
    is_box = (box_classes >= 0) & (right > left) & (bottom > top)
    shows = (is_near | is_nearest_position) & is_box

    nearest_box = distance.masked_fill(~shows, torch.inf).argmin(dim=1, keepdim=True)
    classes = box_classes.expand(distance.shape).gather(1, nearest_box).squeeze(1)
    return torch.where(shows.any(dim=1), classes, background)
