"""Targets may be lists, arrays or tensors of any integer type, and a wrong one is refused.

A target is what a loss needs beside the label set: an order, counts, or a class for each position.
"""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from milbench import UsageError, load_loss
from tests._helpers.losses import random_logits

B, C, K = 3, 3, 5
LABELS = [[0, 2], [1], []]
TARGETS: dict[str, list[Any]] = {
    "ctc": [[0, 2, 0], [1], []],
    "count": [[2, 0, 1], [0, 1, 0], [0, 0, 0]],
    "position": [[0, 2, 3, 3, 0], [3, 3, 1, 3, 3], [3] * 5],
}
LOGITS = random_logits(B, C + 1, K, seed=0)
SIGNED = [np.int8, np.int16, np.int32, np.int64]
UNSIGNED = [np.uint8, np.uint16, np.uint32]


@pytest.mark.parametrize("name", TARGETS)
def test_every_spelling_of_a_target_gives_the_same_loss(name: str) -> None:
    loss = load_loss(name, reduction="none")
    lists = TARGETS[name]
    table = lists
    types = SIGNED + UNSIGNED
    if name == "ctc":
        # Sequences of several lengths are padded with -1, which unsigned integers lack.
        table = [[0, 2, 0], [1, -1, -1], [-1, -1, -1]]
        types = SIGNED
    spellings: dict[str, Any] = {
        "lists": lists,
        "tuples": tuple(tuple(row) for row in lists),
        "list of arrays": [np.array(row, int) for row in lists],
        "list of tensors": [torch.tensor(row, dtype=torch.int32) for row in lists],
        "data frame": pd.DataFrame(table),
        "series": pd.Series(lists),
    }
    for dtype in types:
        array = np.array(table, dtype)
        spellings[f"array of {array.dtype}"] = array
        spellings[f"tensor of {array.dtype}"] = torch.from_numpy(array)
    expected = loss(LOGITS, LABELS, None, torch.tensor(table))
    for spelling, target in spellings.items():
        assert torch.equal(loss(LOGITS, LABELS, None, target), expected), spelling


def changed(name: str, bag: int, row: list[int]) -> list[list[int]]:
    """Return the good target of a loss with another row for one bag."""
    return [row if number == bag else list(given) for number, given in enumerate(TARGETS[name])]


@pytest.mark.parametrize(
    ("name", "target", "complaint"),
    [
        pytest.param(
            "ctc",
            changed("ctc", 0, [1, 3]),
            "ctc: the order of bag 0 holds 3, expected a class from 0 to 2, or -1",
            id="ctc, no class",
        ),
        pytest.param(
            "ctc",
            changed("ctc", 1, [1, 2]),
            "ctc: the label set of bag 1 lacks class 2, and its order has it",
            id="ctc, a class too many",
        ),
        pytest.param(
            "ctc",
            changed("ctc", 1, []),
            "ctc: the label set of bag 1 has class 1, and its order lacks it",
            id="ctc, a class too few",
        ),
        pytest.param(
            "ctc",
            [[0.0, 2.0], [1.0], []],
            "integers of shape (3, M), got float32 of shape (3, 2)",
            id="ctc, floats",
        ),
        pytest.param(
            "ctc",
            [[0, 2], [1]],
            "integers of shape (3, M), got int64 of shape (2, 2)",
            id="ctc, a bag too few",
        ),
        pytest.param(
            "ctc",
            [0, 1, 2],
            "integers of shape (3, M), got int64 of shape (3,)",
            id="ctc, one number a bag",
        ),
        pytest.param(
            "count",
            changed("count", 1, [0, -1, 0]),
            "count: the count of bag 1 holds -1, expected 0 or more",
            id="count, negative",
        ),
        pytest.param(
            "count",
            changed("count", 2, [0, 0, 4]),
            "count: the label set of bag 2 lacks class 2, and its count has it",
            id="count, a class too many",
        ),
        pytest.param(
            "count",
            changed("count", 0, [2, 0, 0]),
            "count: the label set of bag 0 has class 2, and its count lacks it",
            id="count, a class too few",
        ),
        pytest.param(
            "count",
            changed("count", 0, [5, 0, 1]),
            "bag 0 has 6 instances and only 5 positions",
            id="count, more than positions",
        ),
        pytest.param(
            "count",
            changed("count", 0, [2, 0]),
            "needs a target, integers of shape (3, 3), got list",
            id="count, rows of two lengths",
        ),
        pytest.param(
            "count",
            torch.tensor(TARGETS["count"]).bool(),
            "needs a target, integers of shape (3, 3), got bool",
            id="count, truth values",
        ),
        pytest.param(
            "count",
            None,
            "count has count supervision and needs a target, integers of shape (3, 3), got nothing",
            id="count, nothing",
        ),
        pytest.param(
            "position",
            changed("position", 2, [3, 3, 3, 3, -100]),
            "the position of bag 2 holds -100, expected a class",
            id="position, padding that is not masked",
        ),
        pytest.param(
            "position",
            changed("position", 1, [4] * 5),
            "position of bag 1 holds 4, expected a class from 0 to 2",
            id="position, no class",
        ),
        pytest.param(
            "position",
            changed("position", 2, [3, 0, 3, 3, 3]),
            "label set of bag 2 lacks class 0, and its position has",
            id="position, a class too many",
        ),
    ],
)
def test_a_wrong_target_is_reported_in_one_line_with_bag_and_value(
    name: str, target: Any, complaint: str
) -> None:
    assert_refused(name, target, complaint)


@pytest.mark.parametrize(
    ("name", "target", "complaint"),
    [
        pytest.param("count", changed("count", 1, [0, -1, 0]), "bag 1 holds -1", id="count"),
        pytest.param("position", changed("position", 1, [4] * 5), "bag 1 holds 4", id="position"),
        pytest.param(
            "position",
            changed("position", 2, [3, 3, 3, 3, -100]),
            "bag 2 holds -100",
            id="position-of-padding",
        ),
    ],
)
def test_a_wrong_tensor_is_refused_as_lists_are(name: str, target: Any, complaint: str) -> None:
    assert_refused(name, torch.tensor(target), complaint)


def assert_refused(name: str, target: Any, complaint: str) -> None:
    with pytest.raises(UsageError) as error:
        load_loss(name)(LOGITS, LABELS, None, target)
    assert complaint in str(error.value)
    assert "\n" not in str(error.value)


def test_masked_positions_of_a_target_may_hold_anything() -> None:
    """The target may also lack classes of the label set: one instance's box may hide another's."""
    loss = load_loss("position")
    mask = torch.tensor([True, True, False, True, False]).expand(B, K)
    # Bags 0 and 1 lack class 2 and class 1 of their label sets; 3 is the background.
    target = torch.tensor([[0, 0, 3, 3, 3], [3] * 5, [3] * 5])
    padded = target.masked_fill(~mask, -100)
    assert torch.equal(loss(LOGITS, LABELS, mask, padded), loss(LOGITS, LABELS, mask, target))


EMPTY_TARGETS = {
    "ctc": torch.zeros(0, 2, dtype=torch.int64),
    "count": torch.zeros(0, C, dtype=torch.int64),
    "position": torch.zeros(0, 1, dtype=torch.int64),
}


@pytest.mark.parametrize("labels", [[], torch.zeros(0, C)], ids=["list", "matrix"])
@pytest.mark.parametrize("name", ["exact", "noisy-or", "cross-entropy", *TARGETS])
def test_a_batch_without_bags_has_a_sum_and_no_mean(name: str, labels: Any) -> None:
    logits = torch.zeros(0, C + 1, 1, requires_grad=True)
    target = EMPTY_TARGETS.get(name)
    value = load_loss(name, reduction="sum")(logits, labels, None, target)
    value.backward()
    assert value.item() == 0
    with pytest.raises(UsageError, match=f"^{name}: a batch without bags has no mean loss"):
        load_loss(name)(logits, labels, None, target)
