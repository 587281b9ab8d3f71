"""Training targets against boxes made by hand; and that kinds of supervision are not mixed by accident."""

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

C = 3
NETWORK = AllConvolutional([Layer(C + 1, 2, stride=2)], 1, seed=0)
"""The centres of the positions are those of squares of 2x2 pixels: 1, 3, 5, ..."""


def bags(classes: list[list[int]], boxes: list[list[list[float]]] | None, side: int = 8) -> Bags:
    classes_of_bags = torch.tensor(classes)
    truth = Truth(classes_of_bags, None if boxes is None else torch.tensor(boxes))
    return Bags(
        torch.zeros(len(classes), 1, side, side), label_matrix(classes_of_bags, C), truth=truth
    )


def positions(batch: Bags) -> list[list[list[int]]]:
    classes = target(Position(), batch)
    assert classes.dtype == torch.int64
    shown: list[list[list[int]]] = classes.tolist()
    return shown


def test_a_position_shows_a_box_whose_middle_is_near() -> None:
    whole = [
        [0.0, 0.0, 8.0, 8.0]
    ]  # a quarter of 8 pixels from its middle reaches the centres at 3 and 5
    corner = [
        [4.0, 0.0, 8.0, 2.0]
    ]  # a quarter of 4 pixels reaches none at the sides: the nearest two are 1 away
    assert positions(bags([[1], [2]], [whole, corner])) == [
        [[3, 3, 3, 3], [3, 1, 1, 3], [3, 1, 1, 3], [3, 3, 3, 3]],
        [[3, 3, 2, 2], [3, 3, 3, 3], [3, 3, 3, 3], [3, 3, 3, 3]],
    ]


def test_where_boxes_overlap_the_nearest_middle_wins() -> None:
    left, right = (
        [-2.0, 0.0, 6.0, 8.0],
        [2.0, 0.0, 10.0, 8.0],
    )  # middles at 2 and 6, reaching to 4 and from 4
    further = [3.0, 0.0, 11.0, 8.0]  # its middle at 7
    assert positions(bags([[0, 1]], [[left, right]]))[0][1] == [0, 0, 1, 1]
    assert positions(bags([[1, 0]], [[right, left]]))[0][1] == [0, 0, 1, 1]  # not the first one
    assert positions(bags([[1, 2]], [[right, further]]))[0][1] == [
        3,
        3,
        1,
        1,
    ]  # 7 is as near to 6 as to 8


def test_a_tiny_box_is_shown_by_the_nearest_position() -> None:
    assert positions(bags([[2]], [[[5.9, 1.6, 6.1, 1.8]]]))[0] == [
        [3, 3, 2, 2],
        [3] * 4,
        [3] * 4,
        [3] * 4,
    ]
    assert positions(bags([[2]], [[[5.4, 1.6, 5.5, 1.7]]]))[0] == [
        [3, 3, 2, 3],
        [3] * 4,
        [3] * 4,
        [3] * 4,
    ]


def test_what_augmentation_has_cut_away_is_shown_nowhere() -> None:
    gone, thin = [8.0, 2.0, 8.0, 6.0], [2.0, 0.0, 6.0, 0.0]
    assert positions(bags([[1, 2]], [[gone, thin]]))[0] == [[3] * 4] * 4


def test_entries_that_pad_a_bag_show_nothing() -> None:
    whole, nothing = [0.0, 0.0, 8.0, 8.0], [0.0, 0.0, 0.0, 0.0]
    expected = positions(bags([[1]], [[whole]]))
    assert positions(bags([[1, -1]], [[whole, nothing]])) == expected
    assert positions(bags([[-1, 1]], [[whole, whole]])) == expected
    assert positions(bags([[-1]], [[whole]])) == [[[3] * 4] * 4]


def test_positions_that_are_known_are_passed_on() -> None:
    classes = torch.tensor([[0, 3, 2], [3, 3, 3]])
    network = InstanceMLP(2, C, seed=0)
    batch = Bags(
        torch.zeros(2, 3, 2),
        torch.zeros(2, C).bool(),
        truth=Truth(classes, position_classes=classes),
    )
    result = make_target(Position(), batch, network(batch.instances), network)
    assert result is not None
    assert torch.equal(result, classes)


def test_counts_and_order_are_those_of_the_instances() -> None:
    batch = bags([[2, 0, 2, -1], [1, -1, -1, -1], [-1, -1, -1, -1]], None)
    logits = NETWORK(batch.instances)
    assert make_target(Exact(), batch, logits, NETWORK) is None
    assert target(Count(), batch).tolist() == [[1, 0, 2], [0, 1, 0], [0, 0, 0]]
    assert target(Ctc(), batch).tolist() == [[2, 0, 2, -1], [1, -1, -1, -1], [-1, -1, -1, -1]]


def target(loss: Loss, batch: Bags) -> Tensor:
    result = make_target(loss, batch, NETWORK(batch.instances), NETWORK)
    assert result is not None
    return result


def test_what_is_not_known_cannot_be_a_target() -> None:
    with pytest.raises(UsageError, match="count supervision and needs bags whose truth is known"):
        target(Count(), replace(bags([[0]], None), truth=None))
    with pytest.raises(UsageError, match="position needs bags with boxes"):
        target(Position(), bags([[0]], None))


@pytest.mark.parametrize("supervision", ["set", "counts"])
def test_no_loss_is_given_the_truth_unless_it_says_so(supervision: str) -> None:
    loss = type("Given", (Count,), {"name": "given", "supervision": supervision})
    with pytest.raises(
        UsageError, match=f"unknown supervision of given '{supervision}'.*count, order, position"
    ):
        loss()


def test_kinds_of_supervision_are_not_mixed_unless_that_is_meant(
    milbench: Milbench, tmp_path: Path
) -> None:
    mixed = ("run", "--loss", "exact,position", "--task", TINY, "--dry-run")
    complaint = milbench(*mixed).complaint()
    assert "exact has set supervision, position has position supervision" in complaint
    assert "-p supervision=set,position" in complaint
    assert "-p supervision=set,position" in milbench(*mixed, "-p", "supervision=set").complaint()
    assert milbench(*mixed, "-p", "supervision=position,set").code == 0
    spec = tmp_path / "mixed.toml"
    text = f'losses = ["exact", "position"]\ntasks = ["{TINY}"]\n'
    spec.write_text(text)
    assert "not have the same supervision" in milbench("run", str(spec), "--dry-run").complaint()
    spec.write_text(text + 'supervision = ["set", "position"]\n')
    assert milbench("run", str(spec), "--dry-run").code == 0
    assert (
        milbench("run", "--loss", "count", "--task", TINY, "--dry-run").code == 0
    )  # one kind, whichever


def test_a_loss_that_names_one_class_needs_a_task_that_has_a_network_for_it(
    milbench: Milbench,
) -> None:
    complaint = milbench("run", "--loss", "cross-entropy", "--task", TINY).complaint()
    assert "tiny has no network for losses with the head class" in complaint
