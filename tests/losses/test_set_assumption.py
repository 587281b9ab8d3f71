"""Which losses let presence depend on absence, on frequency, or on the size of a bag.

In these tests each position is an instance, and the order does not matter. In truth, another
instance can only add a class to a bag, and a copy of an instance adds none. Some losses follow
this; with other losses, another instance may lower the presence of a class, or copies change it.
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
"""Losses with which another instance never lowers the presence of a class.

No class is then present because of what a bag lacks.
"""
BLIND_TO_COPIES: list[Case] = [*with_defaults("one-vs-rest"), BY_POSITION]
"""Losses with which copies of one instance change no presence.

No class is then present because of how often something occurs.
"""
BLIND_TO_SIZE: list[Case] = [
    *BLIND_TO_COPIES,
    *with_defaults("mean", "linear-softmax", "exponential-softmax", "auto-pool", "power-pooling"),
    *with_defaults("generalised-mean", "log-sum-exp", "noisy-and", "attention", "top-k"),
]
"""Losses with which a bag that has each instance twice has the same presence."""
SET_LOSSES = sorted(name for name in losses().names() if losses().get(name).supervision == "set")


def case_name(case: Case) -> str:
    name, params = case
    return " ".join([name, *params.values()])


EVERY_CASE = pytest.mark.parametrize(
    "case", [*with_defaults(*SET_LOSSES), BY_POSITION, BY_SOFTMAX], ids=case_name
)
# 300 bags of nine instances. ONE_LESS lacks the last instance of each.
BAGS = random_logits(300, C + 1, K + 1)
ONE_LESS = BAGS[:, :, :K]


def with_random_weights(case: Case) -> Loss:
    """Return a loss whose own weights, if it has any, are as they may be after training."""
    name, params = case
    # `build` makes the weights whose number depends on the classes.
    loss = per_bag(name, **params).build(C, 0).double()
    rng = torch.Generator().manual_seed(1)
    for weight in loss.parameters():
        weight.data += torch.randn(weight.shape, generator=rng, dtype=weight.dtype)
    return loss


def change_of_presence(case: Case, before: Tensor, after: Tensor) -> Tensor:
    loss = with_random_weights(case)
    with torch.no_grad():
        return loss.score(after).presence - loss.score(before).presence


@EVERY_CASE
def test_another_instance_lowers_a_presence_unless_the_loss_is_monotone(case: Case) -> None:
    change = change_of_presence(case, ONE_LESS, BAGS)
    falls = bool((change < -1e-9).any())
    assert falls == (case not in MONOTONE)


@EVERY_CASE
def test_copies_of_one_instance_change_a_presence_unless_the_loss_is_blind(case: Case) -> None:
    copies = BAGS[:, :, :1].expand(-1, -1, K)
    change = change_of_presence(case, BAGS, torch.cat([BAGS, copies], dim=2))
    changes = bool((change.abs() > 1e-9).any())
    assert changes == (case not in BLIND_TO_COPIES)


@EVERY_CASE
def test_every_instance_twice_changes_a_presence_unless_the_loss_is_blind(case: Case) -> None:
    change = change_of_presence(case, ONE_LESS, torch.cat([ONE_LESS, ONE_LESS], dim=2))
    changes = bool((change.abs() > 1e-9).any())
    assert changes == (case not in BLIND_TO_SIZE)
