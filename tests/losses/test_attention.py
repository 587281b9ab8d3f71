"""Attention against its formula, written out position by position in many digits, with weights that were trained."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from milbench import Loss
from tests._helpers.label_maps import ALL_LABELS, EXTREME, C, K, bag, exactly, numbers
from tests._helpers.losses import per_bag, random_logits

HIDDEN = 5
FORMS: list[dict[str, Any]] = [
    {"attention": attention, "gated": gated, "hidden": HIDDEN}
    for attention in ("class", "shared")
    for gated in (False, True)
]


def trained(**params: Any) -> Loss:
    """Return the loss with an attention that is far from uniform."""
    loss = per_bag("attention", **params).build(C)
    with torch.no_grad():
        w = loss.get_parameter("w")
        w.copy_(random_logits(*w.shape, seed=11, scale=2.0))
    return loss


def defined(loss: Loss, logits: Tensor) -> tuple[list[list[Any]], list[Any]]:
    """Return a[c][k] and P_c of one bag, from the formula."""
    v, w = numbers(loss.get_parameter("v").double()), numbers(loss.get_parameter("w").double())
    z = numbers(logits.double())

    def sigmoid(value: Any) -> Any:
        return 1 / (1 + exactly.exp(-value))

    def hidden(weights: list[list[Any]], k: int) -> list[Any]:
        return [
            sum(weight * z[channel][k] for channel, weight in enumerate(row)) for row in weights
        ]

    attention, pooled = [], []
    for c in range(C):
        query = w[c if len(w) > 1 else 0]
        raised = []
        for k in range(logits.shape[1]):
            units = [exactly.tanh(value) for value in hidden(v, k)]
            if "u" in dict(loss.named_parameters()):
                gates = [
                    sigmoid(value) for value in hidden(numbers(loss.get_parameter("u").double()), k)
                ]
                units = [unit * gate for unit, gate in zip(units, gates, strict=True)]
            raised.append(exactly.exp(sum(a * b for a, b in zip(query, units, strict=True))))
        attention.append([value / sum(raised) for value in raised])
        pooled.append(sum(a * sigmoid(z[c][k]) for k, a in enumerate(attention[c])))
    return attention, pooled


def loss_of(pooled: list[Any], labels: list[bool]) -> float:
    return -float(
        sum(exactly.log(p if held else 1 - p) for p, held in zip(pooled, labels, strict=True))
    )


PRECISE = [(bag(seed), 1e-11, 0.0) for seed in range(2)]
SINGLE = [(EXTREME[name].float(), 1e-4, 1e-5) for name in ("wide", "signs", "all low", "all high")]


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize(("logits", "rel", "tiny"), PRECISE + SINGLE)
def test_values_are_those_of_the_formula(
    logits: Tensor, rel: float, tiny: float, form: dict[str, Any]
) -> None:
    loss = trained(**form)
    _, pooled = defined(loss, logits)
    leaf = logits.repeat(len(ALL_LABELS), 1, 1).requires_grad_()
    value = loss(leaf, ALL_LABELS)
    expected = [loss_of(pooled, held) for held in ALL_LABELS.tolist()]
    assert value.tolist() == pytest.approx(expected, rel=rel, abs=tiny)
    value.sum().backward()
    assert all(t.grad is not None and t.grad.isfinite().all() for t in (leaf, *loss.parameters()))
    log_odds = [float(exactly.log(p) - exactly.log(1 - p)) for p in pooled]
    found = loss.score(logits[None])
    for scores in (found.presence, found.classes):
        assert scores[0].tolist() == pytest.approx(log_odds, rel=rel, abs=tiny)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_gradients_of_logits_and_of_the_losss_own_weights(form: dict[str, Any]) -> None:
    loss = trained(**form).double()
    names = [name for name, _ in loss.named_parameters()]
    weights = [parameter.detach().clone().requires_grad_() for parameter in loss.parameters()]
    logits, labels = (
        torch.stack([bag(0), bag(1)]),
        torch.tensor([[True, False, True], [False, False, False]]),
    )

    def value(z: Tensor, *own: Tensor) -> Tensor:
        found: Tensor = torch.func.functional_call(
            loss, dict(zip(names, own, strict=True)), (z, labels)
        )
        return found

    assert torch.autograd.gradcheck(value, (logits.requires_grad_(), *weights))


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_evidence_and_map_are_attention_times_detector(form: dict[str, Any]) -> None:
    loss = trained(**form)
    attention, _ = defined(loss, bag(0))
    scores = loss.score(bag(0)[None])
    evidence, probs = scores.evidence[0], scores.instances[0]
    for k in range(K):
        odds = [K * float(attention[c][k]) * bag(0)[c, k].exp().item() for c in range(C)]
        for c in range(C):
            part = float(
                exactly.log(attention[c][k] / (1 + exactly.exp(-exactly.mpf(bag(0)[c, k].item()))))
            )
            assert evidence[c, k].item() == pytest.approx(part, rel=1e-11)
            assert probs[c, k].item() == pytest.approx(odds[c] / (1 + sum(odds)), rel=1e-11)
        assert probs[C, k].item() == pytest.approx(1 / (1 + sum(odds)), rel=1e-11)


def test_attention_starts_uniform_so_that_presence_is_the_mean() -> None:
    loss = per_bag("attention").build(C)
    assert_close(loss.score(bag(0)[None]).presence[0].sigmoid(), bag(0)[:C].sigmoid().mean(dim=1))
    assert loss.get_parameter("v").std().item() == pytest.approx((C + 1) ** -0.5, rel=0.1)


def test_a_bag_without_instances_reaches_no_weight() -> None:
    loss, mask = trained(), torch.tensor([[True] * K, [False] * K])
    loss.validate = False
    logits, labels = (
        torch.stack([bag(0), bag(1)]),
        torch.tensor([[True, False, True], [False, False, False]]),
    )
    both, alone = loss(logits, labels, mask), loss(logits[:1], labels[:1])
    assert both[1] == 0
    assert_close(
        *(torch.autograd.grad(value.sum(), [*loss.parameters()]) for value in (both, alone))
    )
