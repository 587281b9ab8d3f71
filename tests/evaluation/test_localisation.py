"""Boxes, overlaps and average precision by hand and by torchvision."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from torchvision.ops import box_iou

from milbench.contracts.bags import Truth
from milbench.contracts.predictions import Reading
from milbench.evaluation.localisation import (
    boxes_of,
    fit_margin,
    iou,
    mean_iou,
    right_detections,
    with_margin,
)
from milbench.evaluation.metrics import box_average_precision
from milbench.evaluation.reading.components import Components, find_components
from tests._helpers.label_maps import draw


def found(
    *cases: tuple[int, int, float, tuple[float, float, float, float]],
) -> tuple[Components, Tensor]:
    """Components of an image, a class and a mass, and their boxes."""
    image, cls, mass, boxes = zip(*cases, strict=True) if cases else ((), (), (), ())
    known, nowhere = (
        (np.array(image, np.int64), np.array(cls, np.int64), np.array(mass, float)),
        np.zeros(len(cases)),
    )
    where = (nowhere.astype(np.int64),) * 4
    return Components(*known, nowhere, nowhere, *where), torch.tensor(
        boxes, dtype=torch.float64
    ).view(-1, 4)


A, B = [0.0, 0, 10, 10], [20.0, 0, 30, 10]
TRUTH = Truth(
    classes=torch.tensor([[0, 0], [0, 1], [-1, -1]]),
    boxes=torch.tensor([[A, B], [A, A], [[0.0, 0, 9, 9], [0.0] * 4]]),
)


def test_boxes_of_components_by_hand() -> None:
    centres = torch.tensor([3.0, 5, 7]), torch.tensor([2.0, 6, 10, 14])  # steps of 2 and 4 pixels
    boxes = boxes_of(find_components(draw("11.. .1.. ...7", sure=1.0)), centres)
    assert boxes.tolist() == [[0, 2, 8, 6], [12, 6, 16, 8]]
    assert with_margin(boxes, (1.0, 2.0)).tolist() == [[-1, 0, 9, 8], [11, 4, 17, 10]]
    row, column = torch.tensor([9.0]), torch.tensor([2.0])  # the step of the other axis, or 1
    assert boxes_of(find_components(draw("1..2")), (row, centres[1])).tolist() == [
        [0, 7, 4, 11],
        [12, 7, 16, 11],
    ]
    assert boxes_of(find_components(draw("1")), (row, column)).tolist() == [[1.5, 8.5, 2.5, 9.5]]


def test_iou_is_that_of_torchvision() -> None:
    corner, size = torch.randint(0, 8, (60, 2)).double(), torch.randint(1, 9, (60, 2)).double()
    boxes = torch.cat([corner, corner + size], dim=1)
    expected = box_iou(boxes, boxes)
    assert_close(iou(boxes.unsqueeze(1), boxes), expected)
    assert 0 < (expected == 0).double().mean() < 1
    assert iou(boxes.new_zeros(4), boxes.new_zeros(4)) == 0
    assert iou(torch.tensor([0.0, 0, 10, 10]), torch.tensor([5.0, 0, 15, 10])) == pytest.approx(
        1 / 3
    )


def test_mean_iou_by_hand() -> None:
    some = found(
        (0, 0, 1.0, (0, 0, 10, 10)),  # exact
        (0, 0, 2.0, (0, 0, 5, 10)),  # half of the same
        (0, 1, 9.0, (20, 0, 30, 10)),  # the wrong class
        (1, 1, 1.0, (5, 0, 15, 10)),  # a third of the 1; the 0 has none
        (2, 0, 1.0, (0, 0, 9, 9)),  # on padding, which is no instance
    )
    assert mean_iou(*some, TRUTH) == pytest.approx((1 + 0 + 0 + 1 / 3) / 4)
    assert mean_iou(*found(), TRUTH) == 0
    assert math.isnan(mean_iou(*found(), Truth(torch.tensor([[-1]]), torch.zeros(1, 1, 4))))
    with pytest.raises(ValueError, match="boxes"):
        mean_iou(*some, Truth(TRUTH.classes))


def average_precision(some: tuple[Components, Tensor], truth: Truth) -> float:
    """The average precision of what is kept of components, boxes and truth."""
    components, boxes = some
    unread = np.full((len(truth.classes), 0), -1, np.int8)
    return box_average_precision(
        Reading(
            true=truth.classes.numpy(),
            columns=unread,
            strongest=unread,
            components=unread,
            pattern=np.full(len(unread), -1),
            detection_image=components.image,
            detection_class=components.cls,
            detection_mass=components.mass,
            detection_right=right_detections(components, boxes, truth),
        )
    )


def test_average_precision_by_hand() -> None:
    """Class 0 has three instances; by falling score its detections are right, twice the same, wrong, right, wrong."""
    some = found(
        (0, 0, 0.5, (2, 0, 12, 10)),  # the first instance again
        (1, 0, 0.2, (0, 0, 10, 10)),  # right
        (0, 0, 0.9, (0, 0, 10, 10)),  # right
        (0, 0, 0.4, (24, 0, 34, 10)),  # IoU 6 / 14 with the second instance
        (2, 0, 0.1, (0, 0, 9, 9)),  # nothing is there
        (1, 1, 0.3, (0, 0, 10, 5)),  # IoU 1/2, right
    )
    # Precision 1, 1/2, 1/3, 2/4, 2/5 at recall 1/3, 1/3, 1/3, 2/3, 2/3: interpolated 1 up to 1/3, 1/2 up to 2/3.
    zero = (1 + 1 / 2) / 3
    assert average_precision(some, TRUTH) == pytest.approx((zero + 1) / 2)
    nothing = Truth(-torch.ones(3, 1).long(), torch.zeros(3, 1, 4))
    assert average_precision(found(), TRUTH) == 0
    assert math.isnan(average_precision(some, nothing))


def test_a_later_right_detection_lifts_the_precision_before_it() -> None:
    """The precision is 0, then 1/2, 2/3 and 3/4 at recall 1/4, 2/4 and 3/4."""
    late = found((2, 0, 9.0, (0, 0, 9, 9)), (0, 0, 3.0, (0, 0, 10, 10)), (0, 0, 2.0, (20, 0, 30, 10)),
                 (1, 0, 1.0, (0, 0, 10, 10)))  # fmt: skip
    truth = Truth(TRUTH.classes.clamp(max=0), TRUTH.boxes)
    assert average_precision(late, truth) == pytest.approx((3 / 4 + 3 / 4 + 3 / 4) / 4)


def test_the_margin_is_the_one_that_fits() -> None:
    small = found((0, 0, 1.0, (8, 14, 10, 16)), (1, 0, 1.0, (38, 24, 40, 26)))
    truth = Truth(
        torch.tensor([[0], [0]]), torch.tensor([[[4.0, 6, 14, 24]], [[34.0, 16, 44, 34]]])
    )
    assert fit_margin(*small, truth) == (4.0, 8.0)
    assert mean_iou(small[0], with_margin(small[1], (4.0, 8.0)), truth) == 1
    assert fit_margin(*found(), truth) == (0.0, 0.0)
