"""Boxes, overlaps and average precision by hand and by torchvision."""

import math
from typing import NamedTuple

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


class Detection(NamedTuple):
    """A component as a box (left, top, right, bottom) of a class in an image, with a mass as its score."""

    image: int
    cls: int
    mass: float
    box: tuple[float, float, float, float]


class Detections(NamedTuple):
    """What the functions of localisation take of detections."""

    components: Components
    boxes: Tensor


def detections(*found: Detection) -> Detections:
    # Where a component lies in the map plays no part: its box is given.
    middle = np.zeros(len(found))
    side = np.zeros(len(found), np.int64)
    components = Components(
        image=np.array([one.image for one in found], np.int64),
        cls=np.array([one.cls for one in found], np.int64),
        mass=np.array([one.mass for one in found], float),
        y=middle,
        x=middle,
        top=side,
        left=side,
        bottom=side,
        right=side,
    )
    boxes = torch.tensor([one.box for one in found], dtype=torch.float64)
    return Detections(components, boxes.view(-1, 4))


A = [0.0, 0, 10, 10]
B = [20.0, 0, 30, 10]
PADDING = [0.0, 0, 9, 9]
TRUTH = Truth(
    classes=torch.tensor([[0, 0], [0, 1], [-1, -1]]),
    boxes=torch.tensor([[A, B], [A, A], [PADDING, [0.0] * 4]]),
)
"""Of three images the first has class 0 twice, the second classes 0 and 1 at one place, the third nothing."""

NO_INSTANCES = Truth(torch.tensor([[-1], [-1], [-1]]), torch.zeros(3, 1, 4))

ROWS = torch.tensor([3.0, 5, 7])
COLUMNS = torch.tensor([2.0, 6, 10, 14])


def test_the_box_of_a_component_ends_between_positions() -> None:
    # Positions are 2 pixels apart downwards and 4 across: a box reaches 1 and 2 pixels beyond its outer positions.
    boxes = boxes_of(find_components(draw("11.. .1.. ...7", sure=1.0)), (ROWS, COLUMNS))
    assert boxes.tolist() == [[0, 2, 8, 6], [12, 6, 16, 8]]


def test_a_single_row_is_as_high_as_columns_are_wide() -> None:
    boxes = boxes_of(find_components(draw("1..2")), (torch.tensor([9.0]), COLUMNS))
    assert boxes.tolist() == [[0, 7, 4, 11], [12, 7, 16, 11]]


def test_one_position_alone_has_a_box_of_one_pixel() -> None:
    boxes = boxes_of(find_components(draw("1")), (torch.tensor([9.0]), torch.tensor([2.0])))
    assert boxes.tolist() == [[1.5, 8.5, 2.5, 9.5]]


def test_a_margin_is_added_on_both_sides() -> None:
    boxes = torch.tensor([[0.0, 2, 8, 6], [12, 6, 16, 8]], dtype=torch.float64)
    assert with_margin(boxes, (1.0, 2.0)).tolist() == [[-1, 0, 9, 8], [11, 4, 17, 10]]


def test_iou_is_that_of_torchvision() -> None:
    corner = torch.randint(0, 8, (60, 2)).double()
    size = torch.randint(1, 9, (60, 2)).double()
    boxes = torch.cat([corner, corner + size], dim=1)
    expected = box_iou(boxes, boxes)
    assert_close(iou(boxes.unsqueeze(1), boxes), expected)
    # Some of these boxes overlap and some do not.
    assert 0 < (expected == 0).double().mean() < 1


def test_iou_by_hand() -> None:
    first = torch.tensor([0.0, 0, 10, 10])
    second = torch.tensor([5.0, 0, 15, 10])
    assert iou(first, second) == pytest.approx(50 / 150)


def test_empty_boxes_do_not_overlap() -> None:
    assert iou(torch.zeros(4), torch.zeros(4)) == 0


SOME = detections(
    Detection(0, 0, 1.0, (0, 0, 10, 10)),  # exactly A
    Detection(0, 0, 2.0, (0, 0, 5, 10)),  # half of A
    Detection(0, 1, 9.0, (20, 0, 30, 10)),  # B, by the wrong class
    Detection(1, 1, 1.0, (5, 0, 15, 10)),  # a third of the instance of class 1
    Detection(2, 0, 1.0, (0, 0, 9, 9)),  # padding, which is no instance
)


def test_mean_iou_takes_the_best_detection_of_each_instance() -> None:
    # In the first image A is found and B is not; in the second class 0 is not found.
    assert mean_iou(*SOME, TRUTH) == pytest.approx((1 + 0 + 0 + 1 / 3) / 4)


def test_mean_iou_without_detections_is_zero() -> None:
    assert mean_iou(*detections(), TRUTH) == 0


def test_mean_iou_without_instances_is_undefined() -> None:
    assert math.isnan(mean_iou(*SOME, NO_INSTANCES))


def test_mean_iou_needs_boxes() -> None:
    with pytest.raises(ValueError, match="boxes"):
        mean_iou(*SOME, Truth(TRUTH.classes))


def average_precision(found: Detections, truth: Truth) -> float:
    """Return the average precision from what is kept of detections and truth."""
    components, boxes = found
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


def test_average_precision_is_the_mean_over_the_classes() -> None:
    found = detections(
        # Three instances are of class 0. Its detections stand here in another order than that of their scores.
        Detection(0, 0, 0.5, (2, 0, 12, 10)),  # A again, which the second one has found
        Detection(0, 0, 0.9, (0, 0, 10, 10)),  # right
        Detection(0, 0, 0.4, (24, 0, 34, 10)),  # wrong: its IoU with B is 6 / 14
        Detection(1, 0, 0.2, (0, 0, 10, 10)),  # right
        Detection(2, 0, 0.1, (0, 0, 9, 9)),  # nothing is there
        # One instance is of class 1.
        Detection(1, 1, 0.3, (0, 0, 10, 5)),  # an IoU of 1/2 is right
    )
    # Of class 0 the precision is 1, 1/2, 1/3, 2/4, 2/5 at recall 1/3, 1/3, 1/3, 2/3, 2/3:
    # interpolated it is 1 up to a recall of 1/3, 1/2 up to 2/3, and 0 beyond.
    class_0 = (1 + 1 / 2 + 0) / 3
    class_1 = 1
    assert average_precision(found, TRUTH) == pytest.approx((class_0 + class_1) / 2)


def test_average_precision_without_detections_is_zero() -> None:
    assert average_precision(detections(), TRUTH) == 0


def test_average_precision_without_instances_is_undefined() -> None:
    assert math.isnan(average_precision(SOME, NO_INSTANCES))


def test_a_later_right_detection_lifts_the_precision_before_it() -> None:
    found = detections(
        Detection(2, 0, 9.0, (0, 0, 9, 9)),  # nothing is there
        Detection(0, 0, 3.0, (0, 0, 10, 10)),
        Detection(0, 0, 2.0, (20, 0, 30, 10)),
        Detection(1, 0, 1.0, (0, 0, 10, 10)),
    )
    # The padding of the third image counts as an instance here.
    truth = Truth(TRUTH.classes.clamp(max=0), TRUTH.boxes)
    # The precision is 0, then 1/2, 2/3 and 3/4 at recall 1/4, 2/4 and 3/4.
    assert average_precision(found, truth) == pytest.approx((3 / 4 + 3 / 4 + 3 / 4 + 0) / 4)


SMALL = detections(
    Detection(0, 0, 1.0, (8, 14, 10, 16)),
    Detection(1, 0, 1.0, (38, 24, 40, 26)),
)
LARGER_BY_4_AND_8 = Truth(
    torch.tensor([[0], [0]]),
    torch.tensor([[[4.0, 6, 14, 24]], [[34.0, 16, 44, 34]]]),
)


def test_the_margin_is_the_one_that_fits() -> None:
    assert fit_margin(*SMALL, LARGER_BY_4_AND_8) == (4.0, 8.0)


def test_boxes_with_the_margin_are_those_of_the_truth() -> None:
    boxes = with_margin(SMALL.boxes, (4.0, 8.0))
    assert mean_iou(SMALL.components, boxes, LARGER_BY_4_AND_8) == 1


def test_without_detections_there_is_no_margin() -> None:
    assert fit_margin(*detections(), LARGER_BY_4_AND_8) == (0.0, 0.0)
