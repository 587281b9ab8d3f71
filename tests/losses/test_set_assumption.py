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
from tests._helpers.losses import per_bag

C, K = 3, 8
POSITION, SOFTMAX = {"normalization": "position"}, {"head": "softmax"}

MONOTONE: list[tuple[str, dict[str, Any]]] = [
    *(
        (name, {})
        for name in ("exact", "superset", "exact-em", "hard-em", "noisy-or", "isr", "one-vs-rest")
    ),
    ("noisy-or", SOFTMAX),
    ("max-pooling", POSITION),
]
"""Another instance never lowers the presence of a class: what a bag lacks cannot speak for a class."""
BLIND_TO_COPIES = [("one-vs-rest", {}), ("max-pooling", POSITION)]
"""A copy of one instance changes no presence: how often something occurs cannot speak for a class."""
BLIND_TO_SIZE = [
    *BLIND_TO_COPIES,
    *(
        (name, {})
        for name in ("mean", "linear-softmax", "exponential-softmax", "auto-pool", "power-pooling")
    ),
    *(
        (name, {})
        for name in ("generalised-mean", "log-sum-exp", "noisy-and", "attention", "top-k")
    ),
]
"""A bag twice as large, each of its instances twice, has the same presence."""
POOLINGS = sorted(name for name in losses().names() if losses().get(name).supervision == "set")
ALL = [*((name, {}) for name in POOLINGS), ("max-pooling", POSITION), ("noisy-or", SOFTMAX)]


def made(name: str, params: dict[str, Any]) -> Loss:
    loss = per_bag(name, **params).double()
    loss.build(C, 0)
    generator = torch.Generator().manual_seed(1)
    for weight in loss.parameters():  # a loss may learn any weights
        weight.data = weight.data + torch.randn(
            weight.shape, generator=generator, dtype=weight.dtype
        )
    return loss.double()


def bags(count: int = 300) -> Tensor:
    return 2 * torch.randn(
        count, C + 1, K + 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )


def case_name(case: tuple[str, dict[str, Any]]) -> str:
    return " ".join([case[0], *map(str, case[1].values())])


@pytest.mark.parametrize("case", ALL, ids=case_name)
def test_what_says_nothing_about_classes(case: tuple[str, dict[str, Any]]) -> None:
    loss, logits = made(*case), bags()
    one_less = logits[:, :, :K]
    with torch.no_grad():
        copied = torch.cat([logits, logits[:, :, :1].expand(-1, -1, K)], dim=2)
        doubled = torch.cat([one_less, one_less], dim=2)
        whole, part, more, double = (
            loss.score(z).presence for z in (logits, one_less, copied, doubled)
        )
    falls, copies, twice = part - whole, more - whole, double - part
    assert bool((falls > 1e-9).any()) == (case not in MONOTONE), "another instance"
    assert bool((copies.abs() > 1e-9).any()) == (case not in BLIND_TO_COPIES), (
        "copies of one instance"
    )
    assert bool((twice.abs() > 1e-9).any()) == (case not in BLIND_TO_SIZE), "every instance twice"
