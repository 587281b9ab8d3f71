"""The loss `attention` against its formula, written out position by position in 600 digits."""

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


def with_random_attention(**params: Any) -> Loss:
    """Return the loss with an attention that is far from uniform, as after a training."""
    loss = per_bag("attention", **params).build(C)
    with torch.no_grad():
        w = loss.get_parameter("w")
        w.copy_(random_logits(*w.shape, seed=11, scale=2.0))
    return loss


def sigmoid(value: Any) -> Any:
    return 1 / (1 + exactly.exp(-value))


def dot(first: list[Any], second: list[Any]) -> Any:
    return sum(a * b for a, b in zip(first, second, strict=True))


class Formula:
    """Attention and presence of one bag by the formula, with the weights of a loss.

    The logits of the bag are (C+1, K).
    """

    attention: list[list[Any]]
    """a[c][k], the attention of class c at position k."""
    presence: list[Any]
    """P_c, the probability that class c is in the bag."""

    def __init__(self, loss: Loss, logits: Tensor) -> None:
        weights = {name: numbers(value.double()) for name, value in loss.named_parameters()}
        z = numbers(logits.double())
        columns = [list(column) for column in zip(*z, strict=True)]
        hidden = [self._hidden(weights, column) for column in columns]
        self.attention = []
        self.presence = []
        for c in range(C):
            # A shared attention has a single row.
            is_shared = len(weights["w"]) == 1
            w = weights["w"][0 if is_shared else c]
            odds = [exactly.exp(dot(w, units)) for units in hidden]
            attention = [value / sum(odds) for value in odds]
            self.attention.append(attention)
            self.presence.append(dot(attention, [sigmoid(value) for value in z[c]]))

    def _hidden(self, weights: dict[str, list[list[Any]]], column: list[Any]) -> list[Any]:
        """Return the hidden units of one position."""
        units = [exactly.tanh(dot(row, column)) for row in weights["v"]]
        if "u" not in weights:
            return units
        gates = [sigmoid(dot(row, column)) for row in weights["u"]]
        return [unit * gate for unit, gate in zip(units, gates, strict=True)]

    def log_odds(self) -> list[float]:
        return [float(exactly.log(p) - exactly.log(1 - p)) for p in self.presence]

    def loss(self, labels: list[bool]) -> float:
        cost = exactly.mpf(0)
        for p, is_held in zip(self.presence, labels, strict=True):
            cost -= exactly.log(p if is_held else 1 - p)
        return float(cost)


BAGS = pytest.mark.parametrize(
    ("logits", "rel", "tiny"),
    [
        *(pytest.param(bag(seed), 1e-11, 0.0, id=f"random {seed}") for seed in range(2)),
        *(
            pytest.param(EXTREME[name].float(), 1e-4, 1e-5, id=name)
            for name in ("wide", "signs", "all low", "all high")
        ),
    ],
)


@pytest.mark.parametrize("form", FORMS, ids=str)
@BAGS
def test_values_agree_with_the_formula(
    logits: Tensor, rel: float, tiny: float, form: dict[str, Any]
) -> None:
    loss = with_random_attention(**form)
    formula = Formula(loss, logits)
    value = loss(logits.repeat(len(ALL_LABELS), 1, 1), ALL_LABELS)
    expected = [formula.loss(labels) for labels in ALL_LABELS.tolist()]
    assert value.tolist() == pytest.approx(expected, rel=rel, abs=tiny)


@pytest.mark.parametrize("form", FORMS, ids=str)
@BAGS
def test_presence_and_scores_are_the_log_odds_of_the_formula(
    logits: Tensor, rel: float, tiny: float, form: dict[str, Any]
) -> None:
    loss = with_random_attention(**form)
    expected = pytest.approx(Formula(loss, logits).log_odds(), rel=rel, abs=tiny)
    found = loss.score(logits[None])
    assert found.presence[0].tolist() == expected
    assert found.classes[0].tolist() == expected


@pytest.mark.parametrize("form", FORMS, ids=str)
@BAGS
def test_gradients_are_finite_for_every_label_set(
    logits: Tensor, rel: float, tiny: float, form: dict[str, Any]
) -> None:
    loss = with_random_attention(**form)
    leaf = logits.repeat(len(ALL_LABELS), 1, 1).requires_grad_()
    loss(leaf, ALL_LABELS).sum().backward()
    for values in (leaf, *loss.parameters()):
        assert values.grad is not None
        assert values.grad.isfinite().all()


TWO_BAGS = torch.stack([bag(0), bag(1)])
TWO_LABELS = torch.tensor([[True, False, True], [False, False, False]])


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_gradients_by_logits_and_weights_agree_with_differences(form: dict[str, Any]) -> None:
    loss = with_random_attention(**form).double()
    names = [name for name, _ in loss.named_parameters()]
    weights = [parameter.detach().clone().requires_grad_() for parameter in loss.parameters()]

    def value(logits: Tensor, *own: Tensor) -> Tensor:
        named = dict(zip(names, own, strict=True))
        found: Tensor = torch.func.functional_call(loss, named, (logits, TWO_LABELS))
        return found

    logits = TWO_BAGS.clone().requires_grad_()
    assert torch.autograd.gradcheck(value, (logits, *weights))


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_evidence_is_the_logarithm_of_attention_times_detector(form: dict[str, Any]) -> None:
    loss = with_random_attention(**form)
    attention = Formula(loss, bag(0)).attention
    evidence = loss.score(bag(0)[None]).evidence[0]
    z = numbers(bag(0))
    for c in range(C):
        expected = [float(exactly.log(attention[c][k] * sigmoid(z[c][k]))) for k in range(K)]
        assert evidence[c].tolist() == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_the_odds_in_a_map_are_relative_attention_times_odds_of_detectors(
    form: dict[str, Any],
) -> None:
    loss = with_random_attention(**form)
    attention = Formula(loss, bag(0)).attention
    probs = loss.score(bag(0)[None]).instances[0]
    z = numbers(bag(0))
    for k in range(K):
        # Relative attention is attention divided by its mean, 1 / K.
        odds = [K * attention[c][k] * exactly.exp(z[c][k]) for c in range(C)]
        # The background, which is last, has odds of 1.
        total = 1 + sum(odds)
        expected = [float(value / total) for value in [*odds, 1]]
        assert probs[:, k].tolist() == pytest.approx(expected, rel=1e-11)


def test_attention_starts_uniform_so_that_presence_is_the_mean() -> None:
    loss = per_bag("attention").build(C)
    presence = loss.score(bag(0)[None]).presence[0]
    assert_close(presence.sigmoid(), bag(0)[:C].sigmoid().mean(dim=1))


def test_weights_start_with_deviation_1_over_root_of_their_inputs() -> None:
    loss = per_bag("attention").build(C)
    inputs = C + 1
    assert loss.get_parameter("v").std().item() == pytest.approx(inputs**-0.5, rel=0.1)


@pytest.fixture
def with_empty_bag() -> Loss:
    """Return the loss without checks, which would refuse a bag without instances."""
    loss = with_random_attention()
    loss.validate = False
    return loss


SECOND_IS_EMPTY = torch.tensor([[True] * K, [False] * K])


def test_a_bag_without_instances_and_labels_costs_nothing(with_empty_bag: Loss) -> None:
    value = with_empty_bag(TWO_BAGS, TWO_LABELS, SECOND_IS_EMPTY)
    assert value[1] == 0


def test_a_bag_without_instances_reaches_no_weight(with_empty_bag: Loss) -> None:
    loss = with_empty_bag
    weights = list(loss.parameters())
    both = loss(TWO_BAGS, TWO_LABELS, SECOND_IS_EMPTY)
    alone = loss(TWO_BAGS[:1], TWO_LABELS[:1])
    gradients = torch.autograd.grad(both.sum(), weights)
    assert_close(gradients, torch.autograd.grad(alone.sum(), weights))
