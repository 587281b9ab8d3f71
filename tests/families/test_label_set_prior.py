from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import pytest
import torch
from scipy.stats import chisquare
from torch import Tensor

from milbench import generator
from milbench.families.label_set_prior import LabelSetPrior, LabelSetRule, independent_log_prob, presence_among
from tests._helpers.enumerated_bags import bags_of, of_sets

RATES = [0.15, 0.1, 0.05, 0.2, 0.5]
KINDS: list[dict[str, Any]] = [
    {"kind": "together"},
    {"kind": "mostly-together"},
    {"kind": "exclusive"},
    {"kind": "constant"},
    {"kind": "uniform", "labels_per_bag": 3},
]


def number(members: frozenset[int]) -> int:
    return sum(1 << c for c in members)


def prior_of(largest: int, rates: list[float] = RATES, mean_size: float = 3.0, **rule: Any) -> LabelSetPrior:
    values = torch.tensor(rates, dtype=torch.float64)
    return LabelSetPrior(LabelSetRule(**rule), values, presence_among(values, mean_size), largest)


def test_label_sets_of_independent_instances_are_the_alternating_sum_in_exact_arithmetic() -> None:
    """With a rare class: q is down to 1e-16, where the alternating sum in floating point has no digit left."""
    rates = [Fraction(1, 4), Fraction(1, 10**8), Fraction(1, 10**8)]
    rates.append(1 - sum(rates, Fraction(0)))
    largest = 6
    found = independent_log_prob(torch.tensor([float(r) for r in rates], dtype=torch.float64), largest).exp()
    for size, members in itertools.product(range(largest + 1), range(8)):
        within = [c for c in range(3) if members >> c & 1]
        exact = Fraction(0)
        for n in range(len(within) + 1):
            for absent in itertools.combinations(within, n):
                allowed = rates[-1] + sum((rates[c] for c in within if c not in absent), Fraction(0))
                exact += (-1) ** n * allowed**size
        assert float(found[size, members]) == pytest.approx(float(exact), rel=1e-12, abs=0)


@pytest.mark.parametrize("rule", [{"kind": "independent"}, *KINDS], ids=lambda rule: rule["kind"])
@pytest.mark.parametrize("empty_share", [None, 0.0, 0.4])
def test_priors_are_those_of_the_enumerated_rules(rule: dict[str, Any], empty_share: float | None) -> None:
    if rule["kind"] == "constant":
        empty_share = None  # a class in every bag leaves no bag empty
    found = prior_of(5, **rule, empty_share=empty_share)
    for size in (2, 3, 5):  # `together` has no set that fits one instance but the empty one
        expected = torch.zeros(16, dtype=torch.float64)
        for members, p in of_sets(bags_of(size, RATES, **rule, mean_size=3, empty_share=empty_share), 4).items():
            expected[number(members)] = p
        torch.testing.assert_close(found.log_prob[size].exp(), expected)
        torch.testing.assert_close(found.log_weight[size].exp() * found.log_independent[size].exp(), expected)
        assert (found.log_prob[size] == -torch.inf).equal(expected == 0)


@pytest.mark.parametrize("rule", [{"kind": "independent", "empty_share": 0.3}, *KINDS], ids=lambda rule: rule["kind"])
def test_label_sets_are_drawn_from_the_prior_of_the_size(rule: dict[str, Any]) -> None:
    prior, count = prior_of(4, **rule), 8000
    sizes = torch.arange(count) % 2 + 2
    sets = prior.draw(sizes, torch.rand(count, dtype=torch.float64, generator=generator("sets", rule["kind"])))
    for size in (2, 3):
        agrees(sets[sizes == size].bincount(minlength=16), prior.log_prob[size].exp())


def agrees(counts: Tensor, probs: Tensor) -> None:
    assert not counts[probs == 0].any()
    expected = probs * counts.sum()
    assert chisquare(counts[probs > 0], expected[probs > 0]).pvalue > 1e-3
