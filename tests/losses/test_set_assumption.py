"""Which losses can use, by their pooling, what says nothing about which classes occur: absence, frequency, size.

A network gives every instance the same logits wherever it is, so that a bag is a set of columns of logits. Three
changes of it say nothing new about which classes occur, or can only add a class.
"""

from typing import Any

import pytest
import torch
from torch import Tensor

from milbench import Loss
from milbench.contracts.registry import losses
from tests._helpers.losses import per_bag, random_logits

C = 3
K = 8
BY_POSITION = ("max-pooling", {"normalization": "position"})
BY_SOFTMAX = ("noisy-or", {"head": "softmax"})
Case = tuple[str, dict[str, Any]]
"""A loss and its parameters."""


def with_defaults(*names: str) -> list[Case]:
    return [(name, {}) for name in names]


MONOTONE: list[Case] = [
    *with_defaults("exact", "superset", "exact-em", "hard-em", "noisy-or", "isr", "one-vs-rest"),
    BY_SOFTMAX,
    BY_POSITION,
]
"""Another instance never lowers the presence of a class: what a bag lacks cannot speak for a class."""
BLIND_TO_COPIES: list[Case] = [*with_defaults("one-vs-rest"), BY_POSITION]
"""A copy of one instance changes no presence: how often something occurs cannot speak for a class."""
BLIND_TO_SIZE: list[Case] = [
    *BLIND_TO_COPIES,
    *with_defaults("mean", "linear-softmax", "exponential-softmax", "auto-pool", "power-pooling"),
    *with_defaults("generalised-mean", "log-sum-exp", "noisy-and", "attention", "top-k"),
]
"""A bag twice as large, each of its instances twice, has the same presence."""
POOLINGS = sorted(name for name in losses().names() if losses().get(name).supervision == "set")


def case_name(case: Case) -> str:
    name, params = case
    return " ".join([name, *params.values()])


EVERY_CASE = pytest.mark.parametrize(
    "case", [*with_defaults(*POOLINGS), BY_POSITION, BY_SOFTMAX], ids=case_name
)
# Nine instances a bag; the last one is the other instance.
BAGS = random_logits(300, C + 1, K + 1)
ONE_LESS = BAGS[:, :, :K]


def with_random_weights(case: Case) -> Loss:
    """Return a loss whose own weights, if it has any, are as they may be after training."""
    name, params = case
    loss = per_bag(name, **params).double().build(C, 0).double()
    rng = torch.Generator().manual_seed(1)
    for weight in loss.parameters():
        weight.data += torch.randn(weight.shape, generator=rng, dtype=weight.dtype)
    return loss


def change_of_presence(case: Case, before: Tensor, after: Tensor) -> Tensor:
    loss = with_random_weights(case)
    with torch.no_grad():
        return loss.score(after).presence - loss.score(before).presence


@EVERY_CASE
def test_another_instance_may_lower_the_presence_of_a_class(case: Case) -> None:
    change = change_of_presence(case, ONE_LESS, BAGS)
    may_fall = bool((change < -1e-9).any())
    assert may_fall == (case not in MONOTONE)


@EVERY_CASE
def test_copies_of_one_instance_may_change_the_presence(case: Case) -> None:
    copies = BAGS[:, :, :1].expand(-1, -1, K)
    change = change_of_presence(case, BAGS, torch.cat([BAGS, copies], dim=2))
    may_change = bool((change.abs() > 1e-9).any())
    assert may_change == (case not in BLIND_TO_COPIES)


@EVERY_CASE
def test_every_instance_twice_may_change_the_presence(case: Case) -> None:
    change = change_of_presence(case, ONE_LESS, torch.cat([ONE_LESS, ONE_LESS], dim=2))
    may_change = bool((change.abs() > 1e-9).any())
    assert may_change == (case not in BLIND_TO_SIZE)
