"""Training targets from boxes and instances, and messages about mixed kinds of supervision.

A target is what a loss with more supervision than label sets gets of each bag: counts of classes,
their order, or a class for each position.
"""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from milbench import (
    AllConvolutional,
    Bags,
    InstanceMLP,
    Layer,
    Loss,
    Truth,
    UsageError,
    label_matrix,
)
from milbench.contracts.targets import make_target
from milbench.losses import Count, Ctc, Exact, Position
from tests._helpers.command_line import TINY, Milbench

NUM_CLASSES = 3
BACKGROUND = NUM_CLASSES

NETWORK = AllConvolutional([Layer(NUM_CLASSES + 1, 2, stride=2)], 1, seed=0)
"""A network with 4x4 positions on an image of 8x8 pixels; their centres are at 1, 3, 5 and 7."""

Box = list[float]
"""Left, top, right, bottom."""

WHOLE_IMAGE = [0.0, 0.0, 8.0, 8.0]
NO_BOX = [0.0, 0.0, 0.0, 0.0]
ONLY_BACKGROUND = ["....", "....", "....", "...."]


def make_bags(classes: list[list[int]], boxes: list[list[Box]] | None = None) -> Bags:
    """Return black images whose label sets and truth say that they show these classes.

    The images have 8x8 pixels. What they show does not matter, since targets are made of the truth.
    Each bag has a list of the classes of its instances, and as many `boxes`; -1 pads the list of a
    bag with fewer instances.
    """
    classes_of_bags = torch.tensor(classes)
    truth = Truth(classes_of_bags)
    if boxes is not None:
        truth = replace(truth, boxes=torch.tensor(boxes))
    images = torch.zeros(len(classes), 1, 8, 8)
    return Bags(images, label_matrix(classes_of_bags, NUM_CLASSES), truth=truth)


def target(loss: Loss, bags: Bags) -> Tensor:
    """Return the target of a loss on bags of images, by `NETWORK`."""
    result = make_target(loss, bags, NETWORK(bags.instances), NETWORK)
    assert result is not None
    return result


def position_map(classes: list[int], boxes: list[Box]) -> list[str]:
    """Return the target of the loss `position` for one image, as a text for each row of positions.

    A text has the class at each position, and a dot for background.
    """
    bag = make_bags([classes], [boxes])
    result = target(Position(), bag)
    assert result.dtype == torch.int64
    return [line_of(row) for row in result[0].tolist()]


def line_of(row: list[int]) -> str:
    """Return the classes of a row of positions as a text."""
    return "".join("." if number == BACKGROUND else str(number) for number in row)


def test_a_position_shows_a_box_whose_middle_is_near() -> None:
    # A position shows a box if it is at most a quarter of the box's side from its middle. From the
    # middle at 4, a quarter of 8 pixels reaches the centres at 3 and 5.
    assert position_map([1], [WHOLE_IMAGE]) == [
        "....",
        ".11.",
        ".11.",
        "....",
    ]


def test_a_small_box_is_shown_by_its_nearest_positions() -> None:
    # The middle is at x = 6 and y = 1. A quarter of 4 pixels, the width, reaches exactly to the
    # centres at x = 5 and 7. A quarter of 2 pixels, the height, reaches only the centre at y = 1.
    assert position_map([2], [[4.0, 0.0, 8.0, 2.0]]) == [
        "..22",
        "....",
        "....",
        "....",
    ]


# Boxes of 8 pixels: a position may show one if it is at most 2 pixels from the middle of the box.
LEFT = [-2.0, 0.0, 6.0, 8.0]
"""A box with its middle at x = 2, which positions up to 4 may show."""
RIGHT = [2.0, 0.0, 10.0, 8.0]
"""A box with its middle at x = 6, which positions from 4 on may show."""
FURTHER_RIGHT = [4.0, 0.0, 12.0, 8.0]
"""A box with its middle at x = 8, which positions from 6 on may show."""


@pytest.mark.parametrize(
    ("classes", "boxes", "row"),
    [
        pytest.param([0, 1], [LEFT, RIGHT], "0011", id="left box first"),
        pytest.param([1, 0], [RIGHT, LEFT], "0011", id="right box first"),
        # The last position, at 7, is equally near to the middles at 6 and 8.
        pytest.param([1, 2], [RIGHT, FURTHER_RIGHT], "..11", id="first of two equally near"),
    ],
)
def test_where_boxes_overlap_the_nearest_middle_wins(
    classes: list[int], boxes: list[Box], row: str
) -> None:
    second_row = position_map(classes, boxes)[1]
    assert second_row == row


@pytest.mark.parametrize(
    ("box", "first_row"),
    [
        pytest.param([5.4, 1.6, 5.5, 1.7], "..2.", id="nearer to 5 than to 7"),
        pytest.param([5.9, 1.6, 6.1, 1.8], "..22", id="as near to 5 as to 7"),
    ],
)
def test_a_tiny_box_is_shown_by_the_nearest_position(box: Box, first_row: str) -> None:
    assert position_map([2], [box]) == [first_row, "....", "....", "...."]


@pytest.mark.parametrize(
    "box",
    [
        pytest.param([8.0, 2.0, 8.0, 6.0], id="no width"),
        pytest.param([2.0, 0.0, 6.0, 0.0], id="no height"),
    ],
)
def test_a_box_that_augmentation_has_cut_away_is_shown_nowhere(box: Box) -> None:
    assert position_map([1], [box]) == ONLY_BACKGROUND


@pytest.mark.parametrize(
    ("classes", "boxes"),
    [
        pytest.param([1, -1], [WHOLE_IMAGE, NO_BOX], id="padded at the end"),
        pytest.param([-1, 1], [WHOLE_IMAGE, WHOLE_IMAGE], id="padded in front, with a box"),
    ],
)
def test_entries_that_pad_a_bag_show_nothing(classes: list[int], boxes: list[Box]) -> None:
    assert position_map(classes, boxes) == position_map([1], [WHOLE_IMAGE])


def test_a_bag_of_padding_alone_is_background() -> None:
    assert position_map([-1], [WHOLE_IMAGE]) == ONLY_BACKGROUND


def test_known_classes_of_positions_are_the_target() -> None:
    # Two bags of three instances. The network has a position for each instance.
    classes = torch.tensor([[0, BACKGROUND, 2], [BACKGROUND, BACKGROUND, BACKGROUND]])
    network = InstanceMLP(2, NUM_CLASSES, seed=0)
    bags = Bags(
        torch.zeros(2, 3, 2),
        torch.zeros(2, NUM_CLASSES).bool(),
        truth=Truth(classes, position_classes=classes),
    )
    result = make_target(Position(), bags, network(bags.instances), network)
    assert result is not None
    assert torch.equal(result, classes)


INSTANCES = [[2, 0, 2, -1], [1, -1, -1, -1], [-1, -1, -1, -1]]
"""The classes of the instances in three bags, in order; the last bag is empty."""


def test_a_loss_for_label_sets_gets_no_target() -> None:
    bags = make_bags(INSTANCES)
    assert make_target(Exact(), bags, NETWORK(bags.instances), NETWORK) is None


def test_the_target_of_counts_is_counted_from_the_instances() -> None:
    # The first bag has one instance of class 0, none of class 1 and two of class 2.
    assert target(Count(), make_bags(INSTANCES)).tolist() == [[1, 0, 2], [0, 1, 0], [0, 0, 0]]


def test_the_target_of_the_order_is_the_order_of_the_instances() -> None:
    assert target(Ctc(), make_bags(INSTANCES)).tolist() == INSTANCES


def test_counts_need_bags_whose_truth_is_known() -> None:
    bags = replace(make_bags([[0]]), truth=None)
    with pytest.raises(UsageError, match="count supervision and needs bags whose truth is known"):
        target(Count(), bags)


def test_positions_need_boxes() -> None:
    with pytest.raises(UsageError, match="position needs bags with boxes"):
        target(Position(), make_bags([[0]]))


@pytest.mark.parametrize(
    "supervision",
    [
        # A loss with a target, as `Count` is, gets more of the truth than label sets. If it could
        # declare `set`, it would get more than it declares.
        pytest.param("set", id="less than it gets"),
        pytest.param("counts", id="misspelt"),
    ],
)
def test_a_loss_with_a_target_says_that_it_needs_more_than_label_sets(supervision: str) -> None:
    loss = type("Given", (Count,), {"name": "given", "supervision": supervision})
    with pytest.raises(
        UsageError, match=f"unknown supervision of given '{supervision}'.*count, order, position"
    ):
        loss()


MIXED = ("run", "--loss", "exact,position", "--task", TINY, "--dry-run")
"""A command that compares a loss for label sets with a loss that knows the class of each position.

Such a comparison is not fair, so that a user has to allow it.
"""


def test_mixed_supervision_is_refused_with_the_way_to_allow_it(milbench: Milbench) -> None:
    complaint = milbench(*MIXED).complaint()
    assert "exact has set supervision, position has position supervision" in complaint
    assert "-p supervision=set,position" in complaint


def test_naming_one_of_two_kinds_of_supervision_is_not_enough(milbench: Milbench) -> None:
    complaint = milbench(*MIXED, "-p", "supervision=set").complaint()
    assert "-p supervision=set,position" in complaint


def test_supervision_is_mixed_where_both_kinds_are_named(milbench: Milbench) -> None:
    assert milbench(*MIXED, "-p", "supervision=position,set").code == 0


def test_a_spec_that_mixes_supervision_is_refused(milbench: Milbench, tmp_path: Path) -> None:
    spec = tmp_path / "mixed.toml"
    spec.write_text(f'losses = ["exact", "position"]\ntasks = ["{TINY}"]\n')
    assert "not have the same supervision" in milbench("run", str(spec), "--dry-run").complaint()


def test_a_spec_may_name_both_kinds_of_supervision(milbench: Milbench, tmp_path: Path) -> None:
    spec = tmp_path / "mixed.toml"
    spec.write_text(
        f'losses = ["exact", "position"]\ntasks = ["{TINY}"]\nsupervision = ["set", "position"]\n'
    )
    assert milbench("run", str(spec), "--dry-run").code == 0


def test_one_kind_of_supervision_needs_no_permission(milbench: Milbench) -> None:
    assert milbench("run", "--loss", "count", "--task", TINY, "--dry-run").code == 0
