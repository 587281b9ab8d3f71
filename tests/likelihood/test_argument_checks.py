"""Every wrong argument is refused in one line that names the shapes."""

import pytest
import torch

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
TAKES_LABELS = [bag_log_prob, instance_posterior, bag_log_prob_bounds]

CASES = {
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


@pytest.mark.parametrize("function", TAKES_LABELS)
@pytest.mark.parametrize("case", CASES)
def test_a_wrong_argument_is_refused_in_one_line(case: str, function) -> None:  # type: ignore[no-untyped-def]
    log_probs, labels, mask, message = CASES[case]
    with pytest.raises(UsageError, match=message) as raised:
        function(log_probs, labels, mask)
    assert isinstance(raised.value, ValueError)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("function", [presence_log_prob, label_set_distribution, best_label_set])
def test_functions_without_labels_check_their_arguments(function) -> None:  # type: ignore[no-untyped-def]
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


def test_label_sets_beyond_the_exact_limit_point_to_the_bounds() -> None:
    log_probs = torch.zeros(1, 21, 30).log_softmax(1)
    with pytest.raises(UsageError, match=r"\(1, 20\).*20.*16.*bag_log_prob_bounds"):
        bag_log_prob(log_probs, torch.ones(1, 20).bool())
    with pytest.raises(UsageError, match=r"above max_labels = 2"):
        bag_log_prob(GOOD, torch.ones(2, 3).bool(), max_labels=2)
    for function in (bag_log_prob, bag_log_prob_from_logits):
        with pytest.raises(UsageError, match="exact limit of 16"):
            function(log_probs, torch.ones(1, 20).bool(), validate=False)
    on_meta = log_probs.to("meta"), torch.ones(1, 20, device="meta").bool()
    with pytest.raises(
        UsageError,
        match=r"may have bags of up to \|L\| = 17, above the exact limit of 16: give max_labels",
    ):
        bag_log_prob(*on_meta, max_labels=17)


def test_other_limits() -> None:
    with pytest.raises(UsageError, match="16 classes"):
        label_set_distribution(torch.zeros(1, 18, 2).log_softmax(1))
    with pytest.raises(UsageError, match="exact_labels must be from 0 to 16, got 17"):
        bag_log_prob_bounds(GOOD, LABELS, exact_labels=17)
