"""Presence, all label sets, the best one, and bounds, against exact values found another way."""

from __future__ import annotations

import itertools

import mpmath
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from milbench.likelihood import (
    bag_log_prob,
    bag_log_prob_bounds,
    best_label_set,
    best_label_set_of_large_bags,
    label_set_distribution,
    likely_label_set,
    presence_log_odds,
    presence_log_prob,
    presence_prob,
)
from tests._helpers.likelihood_reference import Precise
from tests._helpers.likelihood_regimes import REGIMES, make
from tests._helpers.likelihood_strategies import Bag, bags

METHODS = ["auto", "noisy-or", "union", "bonferroni", "partition", "hybrid", "beta"]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("regime", REGIMES)
def test_presence_in_700_digits(regime: str, dtype: torch.dtype) -> None:
    log_probs = make(regime, 3, 40).to(dtype)
    tolerance = 1e-12 if dtype == torch.float64 else 1e-5
    with mpmath.workdps(700):
        for c in range(3):
            absent = mpmath.mpf(1)
            for k in range(40):
                column = [mpmath.exp(mpmath.mpf(x)) for x in log_probs[:, k].double().tolist()]
                absent *= 1 - column[c] / sum(column)
            log_present = float(mpmath.log1p(-absent))
            odds = float(mpmath.log1p(-absent) - mpmath.log(absent))
            scale = max(1.0, abs(log_present))
            assert abs(presence_log_prob(log_probs[None])[0, c].item() - log_present) <= tolerance * scale
            assert presence_prob(log_probs[None])[0, c].item() == pytest.approx(float(1 - absent), rel=1e3 * tolerance)
            assert presence_log_odds(log_probs[None])[0, c].item() == pytest.approx(odds, rel=100 * tolerance)


def test_presence_at_the_ends() -> None:
    log_probs = torch.tensor([[[0.0], [-torch.inf], [-torch.inf]]])
    assert presence_log_prob(log_probs).tolist() == [[0.0, -torch.inf]]
    assert presence_log_odds(log_probs).tolist() == [[torch.inf, -torch.inf]]
    assert presence_prob(log_probs, torch.tensor([[False]])).tolist() == [[0.0, 0.0]]


@given(bags(max_classes=4, max_positions=10))
def test_presence_is_the_sum_over_the_sets_that_hold_the_class(bag: Bag) -> None:
    sets = torch.tensor(list(itertools.product([False, True], repeat=bag.labels.shape[1])))
    value = bag_log_prob(bag.log_probs.expand(len(sets), -1, -1), sets).exp()
    assert torch.allclose(presence_prob(bag.log_probs)[0], (value.unsqueeze(-1) * sets).sum(dim=0), atol=1e-12)


@given(bags(max_classes=6, max_positions=20))
def test_distribution_is_every_set_on_its_own(bag: Bag) -> None:
    classes = bag.labels.shape[1]
    table = label_set_distribution(bag.log_probs)[0]
    sets = torch.arange(2**classes).unsqueeze(-1) >> torch.arange(classes) & 1
    expected = bag_log_prob(bag.log_probs.expand(len(sets), -1, -1), sets.bool())
    assert ((table == expected) | ((table - expected).abs() <= 1e-12 * expected.abs().clamp(min=1))).all()


@pytest.mark.parametrize("regime", ["background+24", "all-tiny", "crowded", "nearly-absent"])
def test_distribution_keeps_the_digits_of_rare_sets(regime: str) -> None:
    log_probs = make(regime, 5, 30)
    table = label_set_distribution(log_probs[None])[0]
    for index in (0, 1, 6, 21, 31):
        truth = float(Precise(log_probs, [c for c in range(5) if index >> c & 1]).log_prob())
        assert table[index].item() == pytest.approx(truth, rel=1e-12, abs=1e-12)


def test_distribution_of_sixteen_classes_sums_to_one() -> None:
    log_probs = torch.randn(1, 17, 20, dtype=torch.float64).log_softmax(1)
    table = label_set_distribution(log_probs)
    assert table.shape == (1, 2**16)
    assert abs(torch.logsumexp(table, dim=1).item()) < 1e-12


@given(bags(max_classes=5, max_positions=10), st.integers(1, 2))
def test_best_label_sets_are_the_top_of_the_list(bag: Bag, k: int) -> None:
    sets = torch.tensor(list(itertools.product([False, True], repeat=bag.labels.shape[1])))
    value = bag_log_prob(bag.log_probs.expand(len(sets), -1, -1), sets)
    best = best_label_set(bag.log_probs, k=k)
    assert torch.allclose(best.log_prob[0], value.topk(k).values, rtol=1e-11, atol=1e-12)
    again = bag_log_prob(bag.log_probs.expand(k, -1, -1), best.labels[0])
    assert torch.allclose(again, best.log_prob[0], rtol=1e-11, atol=1e-12)
    assert best.excess.item() == 0.0


@given(st.integers(0, 10_000), st.sampled_from([1.0, 4.0, 12.0]), st.sampled_from([0.0, 3.0]))
def test_the_search_bounds_what_it_may_have_missed(seed: int, spread: float, background: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = spread * torch.randn(1, 14, 4, generator=generator, dtype=torch.float64)
    logits[:, -1] += background
    log_probs = logits.log_softmax(1)
    found = best_label_set(log_probs, k=3)
    best = label_set_distribution(log_probs).amax().item()
    assert found.log_prob[0, 0].item() <= best + 1e-12 * abs(best)
    assert best <= found.log_prob[0, 0].item() + found.excess.item() + 1e-12 * max(1.0, abs(best))
    assert (found.log_prob[0].diff() <= 0).all()
    assert len({tuple(row) for row in found.labels[0].tolist()}) == 3


@given(bags(max_classes=5, max_positions=10))
def test_every_search_finds_the_best_of_all_sets(bag: Bag) -> None:
    sets = torch.tensor(list(itertools.product([False, True], repeat=bag.labels.shape[1])))
    best = bag_log_prob(bag.log_probs.expand(len(sets), -1, -1), sets).amax()
    searches = {
        "listed": best_label_set(bag.log_probs).labels[:, 0],
        "large": best_label_set_of_large_bags(bag.log_probs)[0],
        "likely": likely_label_set(bag.log_probs, tried_classes=5),
    }
    for name, labels in searches.items():
        found = bag_log_prob(bag.log_probs, labels)
        if name == "likely":  # exact, unless the best set is less probable than what counts as sure
            found, best = found.exp().clamp(min=0.05), best.exp().clamp(min=0.05)
        assert torch.allclose(found, best, rtol=1e-9, atol=1e-9), name


@pytest.mark.parametrize("sharpness", [0.3, 3.0, 30.0])
def test_the_best_set_of_a_large_bag_is_that_of_the_whole_distribution(sharpness: float) -> None:
    rng = torch.Generator().manual_seed(round(10 * sharpness))
    for classes, shape in ((1, (1,)), (3, (2,)), (7, (5, 8)), (10, (300,)), (4, (70, 70)), (13, (3,))):
        logits = sharpness * torch.randn(2, classes + 1, *shape, generator=rng, dtype=torch.float64)
        logits[:, -1] += torch.tensor(logits[0, 0].numel()).log() + 2
        log_probs = logits.log_softmax(dim=1)
        labels, log_prob = best_label_set_of_large_bags(log_probs)
        table = label_set_distribution(log_probs)
        index = (labels * 2 ** torch.arange(classes)).sum(dim=1)
        assert log_prob.tolist() == pytest.approx(table.amax(dim=1).tolist(), abs=1e-9)
        assert table[torch.arange(2), index].tolist() == pytest.approx(table.amax(dim=1).tolist(), abs=1e-9)


def test_the_likely_set_settles_sure_classes_and_tries_the_others() -> None:
    """Class 0 is surely there; 1 and 2 have a presence of 0.6 each, and at one position exclude each other."""
    probs = torch.zeros(1, 4, 2, dtype=torch.float64)
    probs[0, :, 0] = torch.tensor([0.99, 0.0, 0.0, 0.01])
    probs[0, :, 1] = torch.tensor([0.0, 0.52, 0.48, 0.0])
    log_probs = probs.log()
    assert likely_label_set(log_probs).tolist() == [[True, True, False]]
    assert likely_label_set(log_probs, tried_classes=0).tolist() == [[True, True, False]]
    probs[0, :, 1] = torch.tensor([0.0, 0.48, 0.12, 0.40])
    assert likely_label_set(probs.log(), tried_classes=0).tolist() == [[True, False, False]]  # each more likely absent
    assert likely_label_set(probs.log()).tolist() == [[True, True, False]]  # and yet {0, 1} is the best of all sets
    assert best_label_set(probs.log()).labels[0].tolist() == [[True, True, False]]
    assert likely_label_set(log_probs[:0]).shape == (0, 3)


@pytest.mark.parametrize("method", METHODS)
@given(bag=bags(max_classes=7, max_positions=12), order=st.integers(0, 4), exact_labels=st.integers(0, 4))
def test_bounds_hold(method: str, bag: Bag, order: int, exact_labels: int) -> None:
    exact = Precise(bag.log_probs[0], torch.nonzero(bag.labels[0])[:, 0].tolist()).log_prob()
    lower, upper = bag_log_prob_bounds(*bag, method=method, order=order, exact_labels=exact_labels)
    assert lower.item() <= exact <= upper.item()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("regime", REGIMES)
def test_bounds_hold_on_the_grid(regime: str, dtype: torch.dtype) -> None:
    log_probs = make(regime, 8, 40).to(dtype)
    exact = Precise(log_probs, list(range(6))).log_prob()
    labels = (torch.arange(8) < 6).unsqueeze(0)
    for method in METHODS:
        bounds = bag_log_prob_bounds(log_probs[None], labels, method=method, order=2, exact_labels=3)
        assert bounds.lower.item() <= exact <= bounds.upper.item(), method
        assert bounds.gap.item() == pytest.approx(bounds.upper.item() - bounds.lower.item(), rel=1e-6)


def test_bounds_close_where_they_should() -> None:
    log_probs = make("uniform", 30, 500)[None]
    labels = (torch.arange(30) < 25).unsqueeze(0)
    assert bag_log_prob_bounds(log_probs, labels).gap.item() < 1e-6
    small = (torch.arange(30) < 5).unsqueeze(0)
    rare = make("background+8", 30, 50)[None]
    assert bag_log_prob_bounds(rare, small, exact_labels=5).gap.item() < 1e-10
    assert bag_log_prob_bounds(rare, small, method="bonferroni", order=5, exact_labels=0).gap.item() > 1e-10


def test_beta_series_uses_every_smaller_set_at_full_order() -> None:
    log_probs = make("background+4", 4, 20)[None]
    labels = torch.tensor([[True, True, True, False]])
    exact = bag_log_prob(log_probs, labels).item()
    uppers = [bag_log_prob_bounds(log_probs, labels, method="beta", order=t).upper.item() for t in range(3)]
    assert uppers[0] > uppers[1] > uppers[2] >= exact
    assert uppers[2] == pytest.approx(exact, rel=1e-9)


def test_bounds_are_differentiable() -> None:
    logits = torch.randn(2, 6, 8, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]).bool()
    for side in (0, 1):
        assert torch.autograd.gradcheck(
            lambda z, s=side: bag_log_prob_bounds(z.log_softmax(1), labels, exact_labels=2)[s], (logits,)
        )


def test_more_classes_than_positions_is_bounded_by_minus_infinity() -> None:
    lower, upper = bag_log_prob_bounds(torch.zeros(1, 5, 2).log_softmax(1), torch.ones(1, 4).bool())
    assert lower.item() == upper.item() == -torch.inf
