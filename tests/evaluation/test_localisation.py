"""Boxes of detections, their overlaps with the truth, and average precision.

Expected values are computed by hand or by torchvision. IoU is intersection over union.
"""

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

Box = tuple[float, float, float, float]
"""Left, top, right and bottom in pixels."""


class Detection(NamedTuple):
    """A box of a class in an image; detections are ranked by mass."""

    image: int
    cls: int
    mass: float
    box: Box


class Detections(NamedTuple):
    """The arguments for detections that the functions of localisation take."""

    components: Components
    boxes: Tensor


def detections(*found: Detection) -> Detections:
    """Return detections as the functions of localisation take them."""
    images = [one.image for one in found]
    classes = [one.cls for one in found]
    masses = [one.mass for one in found]
    boxes = [one.box for one in found]
    # These functions use the box of a component, not where it lies in the map.
    no_middle = np.zeros(len(found))
    no_side = np.zeros(len(found), np.int64)
    components = Components(
        image=np.array(images, np.int64),
        cls=np.array(classes, np.int64),
        mass=np.array(masses, float),
        y=no_middle,
        x=no_middle,
        top=no_side,
        left=no_side,
        bottom=no_side,
        right=no_side,
    )
    return Detections(components, torch.tensor(boxes, dtype=torch.float64).view(-1, 4))


A: Box = (0, 0, 10, 10)
B: Box = (20, 0, 30, 10)
PADDING: Box = (0, 0, 9, 9)
NO_BOX: Box = (0, 0, 0, 0)
TRUTH = Truth(
    classes=torch.tensor([[0, 0], [0, 1], [-1, -1]]),
    boxes=torch.tensor([[A, B], [A, A], [PADDING, NO_BOX]]).float(),
)
"""Three images: with class 0 twice, with classes 0 and 1 in the same box, and with nothing."""

NO_INSTANCES = Truth(torch.tensor([[-1], [-1], [-1]]), torch.zeros(3, 1, 4))

ROWS = torch.tensor([3.0, 5, 7])
COLUMNS = torch.tensor([2.0, 6, 10, 14])


def test_the_box_of_a_component_ends_between_positions() -> None:
    # Positions are 2 pixels apart vertically and 4 pixels horizontally. So a box reaches 1 and 2
    # pixels beyond its outer positions.
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


def test_iou_agrees_with_torchvision() -> None:
    rng = torch.Generator().manual_seed(0)
    corner = torch.randint(0, 8, (60, 2), generator=rng).double()
    size = torch.randint(1, 9, (60, 2), generator=rng).double()
    boxes = torch.cat([corner, corner + size], dim=1)
    expected = box_iou(boxes, boxes)
    assert_close(iou(boxes.unsqueeze(1), boxes), expected)
    # Some of these boxes overlap and some do not.
    assert 0 < (expected == 0).double().mean() < 1


def test_iou_by_hand() -> None:
    first = torch.tensor([0.0, 0, 10, 10])
    second = torch.tensor([5.0, 0, 15, 10])
    # Each has 100 pixels, and they share 50.
    assert iou(first, second) == pytest.approx(50 / (100 + 100 - 50))


def test_empty_boxes_do_not_overlap() -> None:
    assert iou(torch.zeros(4), torch.zeros(4)) == 0


SOME = detections(
    Detection(image=0, cls=0, mass=1.0, box=A),
    # Half of A.
    Detection(image=0, cls=0, mass=2.0, box=(0, 0, 5, 10)),
    # In this image, B has class 0.
    Detection(image=0, cls=1, mass=9.0, box=B),
    # Its IoU with A, which the class has here, is 50 / 150.
    Detection(image=1, cls=1, mass=1.0, box=(5, 0, 15, 10)),
    # This image has no instance.
    Detection(image=2, cls=0, mass=1.0, box=PADDING),
)


def test_mean_iou_takes_the_best_detection_of_each_instance() -> None:
    a_of_first_image = 1
    b_of_first_image = 0
    class_0_of_second_image = 0
    class_1_of_second_image = 1 / 3
    expected = np.mean(
        [a_of_first_image, b_of_first_image, class_0_of_second_image, class_1_of_second_image]
    )
    assert mean_iou(*SOME, TRUTH) == pytest.approx(expected)


def test_mean_iou_without_detections_is_zero() -> None:
    assert mean_iou(*detections(), TRUTH) == 0


def test_mean_iou_without_instances_is_undefined() -> None:
    assert math.isnan(mean_iou(*SOME, NO_INSTANCES))


def test_mean_iou_needs_boxes() -> None:
    with pytest.raises(ValueError, match="boxes"):
        mean_iou(*SOME, Truth(TRUTH.classes))


def average_precision(found: Detections, truth: Truth) -> float:
    """Return the average precision of detections, computed from a `Reading` that keeps them."""
    components, boxes = found
    # Average precision does not use the strings that were read.
    unread = np.full((len(truth.classes), 0), -1, np.int8)
    kept = Reading(
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
    return box_average_precision(kept)


# Five detections of class 0, by falling mass. The class has three instances.
OF_CLASS_0 = [
    # Right.
    Detection(image=0, cls=0, mass=0.9, box=A),
    # Wrong: its IoU with A is 80 / 120, but A is found already.
    Detection(image=0, cls=0, mass=0.5, box=(2, 0, 12, 10)),
    # Wrong: its IoU with B is 60 / 140.
    Detection(image=0, cls=0, mass=0.4, box=(24, 0, 34, 10)),
    # Right.
    Detection(image=1, cls=0, mass=0.2, box=A),
    # Wrong: nothing is there.
    Detection(image=2, cls=0, mass=0.1, box=PADDING),
]
AVERAGE_PRECISION_OF_CLASS_0 = (1 + 1 / 2 + 0) / 3
"""After each detection, precision is 1, 1/2, 1/3, 2/4, 2/5, and recall 1/3, 1/3, 1/3, 2/3, 2/3.

The interpolated precision is 1 up to a recall of 1/3, 1/2 up to 2/3, and 0 beyond.
"""


def only_class_0(truth: Truth) -> Truth:
    """Return the truth without the instances of other classes."""
    return Truth(truth.classes.masked_fill(truth.classes > 0, -1), truth.boxes)


@pytest.mark.parametrize(
    "order",
    [
        pytest.param([0, 1, 2, 3, 4], id="by falling mass"),
        pytest.param([1, 0, 2, 4, 3], id="mixed"),
    ],
)
def test_average_precision_goes_by_falling_mass(order: list[int]) -> None:
    found = detections(*(OF_CLASS_0[number] for number in order))
    expected = AVERAGE_PRECISION_OF_CLASS_0
    assert average_precision(found, only_class_0(TRUTH)) == pytest.approx(expected)


def test_average_precision_is_the_mean_over_the_classes() -> None:
    # It covers half of the only instance of class 1. An IoU of 1/2 is enough.
    of_class_1 = Detection(image=1, cls=1, mass=0.3, box=(0, 0, 10, 5))
    expected = (AVERAGE_PRECISION_OF_CLASS_0 + 1) / 2
    assert average_precision(detections(*OF_CLASS_0, of_class_1), TRUTH) == pytest.approx(expected)


def test_average_precision_without_detections_is_zero() -> None:
    assert average_precision(detections(), TRUTH) == 0


def test_average_precision_without_instances_is_undefined() -> None:
    assert math.isnan(average_precision(SOME, NO_INSTANCES))


def test_a_later_right_detection_lifts_the_precision_before_it() -> None:
    found = detections(
        # This image has no instance.
        Detection(image=2, cls=0, mass=9.0, box=PADDING),
        Detection(image=0, cls=0, mass=3.0, box=A),
        Detection(image=0, cls=0, mass=2.0, box=B),
        Detection(image=1, cls=0, mass=1.0, box=A),
    )
    # There are four instances, all of class 0. The second image has two of them in the same box,
    # and one of these is found.
    truth = Truth(TRUTH.classes.clamp(max=0), TRUTH.boxes)
    # Precision is 0, then 1/2, 2/3 and 3/4 at recalls of 1/4, 2/4 and 3/4. Interpolated, it is 3/4
    # up to a recall of 3/4, and 0 beyond.
    expected = (3 / 4 + 3 / 4 + 3 / 4 + 0) / 4
    assert average_precision(found, truth) == pytest.approx(expected)


SMALL = detections(
    Detection(image=0, cls=0, mass=1.0, box=(8, 14, 10, 16)),
    Detection(image=1, cls=0, mass=1.0, box=(38, 24, 40, 26)),
)
LARGER_BY_4_AND_8 = Truth(
    torch.tensor([[0], [0]]),
    torch.tensor([[[4.0, 6, 14, 24]], [[34.0, 16, 44, 34]]]),
)


def test_the_margin_is_the_one_that_fits() -> None:
    assert fit_margin(*SMALL, LARGER_BY_4_AND_8) == (4.0, 8.0)


def test_boxes_with_the_margin_are_equal_to_the_truth() -> None:
    boxes = with_margin(SMALL.boxes, (4.0, 8.0))
    assert mean_iou(SMALL.components, boxes, LARGER_BY_4_AND_8) == 1


def test_without_detections_there_is_no_margin() -> None:
    assert fit_margin(*detections(), LARGER_BY_4_AND_8) == (0.0, 0.0)
