"""Every wrong argument is refused in one line that names the shapes."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from milbench import UsageError
from milbench.likelihood import (
    bag_log_prob,
    bag_log_prob_bounds,
    bag_log_prob_from_logits,
    best_label_set,
    instance_posterior,
    label_set_distribution,
    presence_log_prob,
)

GOOD = torch.zeros(2, 4, 5).log_softmax(1)
LABELS = torch.zeros(2, 3, dtype=torch.bool)
Function = Callable[..., Any]
TAKES_LABELS = [bag_log_prob, instance_posterior, bag_log_prob_bounds]

CASES: dict[str, tuple[Tensor, Tensor, Tensor | None, str]] = {
    "rank": (torch.zeros(4), LABELS, None, r"\(B, C\+1, \*positions\).*\(4,\)"),
    "integers": (
        torch.zeros(2, 4, 5, dtype=torch.int64),
        LABELS,
        None,
        r"floating point.*\(2, 4, 5\)",
    ),
    "class count": (GOOD, torch.zeros(2, 4), None, r"\(2, 3\).*\(2, 4, 5\).*\(2, 4\)"),
    "batch": (GOOD, torch.zeros(3, 3), None, r"\(2, 3\).*\(3, 3\)"),
    "labels": (GOOD, torch.full((2, 3), 2), None, r"\(2, 3\).*bool or 0/1"),
    "mask shape": (GOOD, LABELS, torch.ones(2, 4).bool(), r"\(2, 5\).*\(2, 4, 5\).*\(2, 4\)"),
    "mask type": (GOOD, LABELS, torch.ones(2, 5), r"mask.*\(2, 5\).*bool"),
    "probabilities": (
        GOOD.exp(),
        LABELS,
        None,
        r"logarithms .* got a sum of 5\.136 at .*\(2, 4, 5\)",
    ),
    "not normalised": (
        GOOD - 1,
        LABELS,
        None,
        r"sum to 1 .* log_softmax; got a sum of 0\.3679.*\(2, 4, 5\)",
    ),
    "nan": (
        GOOD * torch.nan,
        LABELS,
        None,
        r"got a sum of nan at bag 0, position \(0,\), of .*\(2, 4, 5\)",
    ),
}
"""Log-probabilities, label sets and a mask, one of which is wrong, and the message about it."""


@pytest.mark.parametrize("function", TAKES_LABELS)
@pytest.mark.parametrize("case", CASES)
def test_a_wrong_argument_is_refused_in_one_line(case: str, function: Function) -> None:
    log_probs, labels, mask, message = CASES[case]
    with pytest.raises(UsageError, match=message) as raised:
        function(log_probs, labels, mask)
    assert isinstance(raised.value, ValueError)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("function", [presence_log_prob, label_set_distribution, best_label_set])
def test_functions_without_labels_check_their_arguments(function: Function) -> None:
    with pytest.raises(UsageError, match="sum to 1"):
        function(GOOD - 1)


def test_masked_positions_are_not_checked() -> None:
    log_probs = GOOD.clone()
    log_probs[0, :, 0] = 7.0
    mask = torch.ones(2, 5, dtype=torch.bool)
    mask[0, 0] = False
    assert torch.isfinite(bag_log_prob(log_probs, LABELS, mask)).all()


def test_validation_can_be_switched_off() -> None:
    value = bag_log_prob(GOOD - 1, LABELS, validate=False)
    assert torch.allclose(value, bag_log_prob(GOOD, LABELS) - 5)


TWENTY_CLASSES = torch.zeros(1, 21, 30).log_softmax(1)
ALL_TWENTY = torch.ones(1, 20, dtype=torch.bool)


def test_a_label_set_beyond_the_exact_limit_points_to_the_bounds() -> None:
    with pytest.raises(UsageError, match=r"\(1, 20\).*20.*16.*bag_log_prob_bounds"):
        bag_log_prob(TWENTY_CLASSES, ALL_TWENTY)


@pytest.mark.parametrize("function", [bag_log_prob, bag_log_prob_from_logits])
def test_without_validation_the_exact_limit_still_holds(function: Function) -> None:
    with pytest.raises(UsageError, match="exact limit of 16"):
        function(TWENTY_CLASSES, ALL_TWENTY, validate=False)


def test_a_label_set_larger_than_promised_is_refused() -> None:
    with pytest.raises(UsageError, match=r"above max_labels = 2"):
        bag_log_prob(GOOD, torch.ones(2, 3).bool(), max_labels=2)


def test_a_promise_beyond_the_exact_limit_is_refused_without_values() -> None:
    # Tensors on the device "meta" have no values.
    log_probs = TWENTY_CLASSES.to("meta")
    labels = ALL_TWENTY.to("meta")
    complaint = r"may have bags of up to \|L\| = 17, above the exact limit of 16: give max_labels"
    with pytest.raises(UsageError, match=complaint):
        bag_log_prob(log_probs, labels, max_labels=17)


def test_a_distribution_of_too_many_classes_is_refused() -> None:
    with pytest.raises(UsageError, match="16 classes"):
        label_set_distribution(torch.zeros(1, 18, 2).log_softmax(1))


def test_bounds_sum_no_more_classes_than_the_exact_limit() -> None:
    with pytest.raises(UsageError, match="exact_labels must be from 0 to 16, got 17"):
        bag_log_prob_bounds(GOOD, LABELS, exact_labels=17)
