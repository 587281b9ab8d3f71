"""The most probable label sets against the list of all label sets."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from milbench.likelihood import (
    bag_log_prob,
    best_label_set,
    best_label_set_of_large_bags,
    label_set_distribution,
    likely_label_set,
)
from tests._helpers.likelihood_reference import every_label_set
from tests._helpers.likelihood_strategies import RandomBag, random_bags


@given(random_bags(max_classes=5, max_positions=10), st.integers(1, 2))
def test_best_label_sets_are_the_top_of_the_list(bag: RandomBag, k: int) -> None:
    sets = every_label_set(bag.labels.shape[1])
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
    assert found.log_prob[0, 0].item() <= best + 1e-12 * max(1.0, abs(best))
    assert best <= found.log_prob[0, 0].item() + found.excess.item() + 1e-12 * max(1.0, abs(best))
    assert (found.log_prob[0].diff() <= 0).all()
    assert len({tuple(row) for row in found.labels[0].tolist()}) == 3


@given(random_bags(max_classes=5, max_positions=10))
def test_every_search_finds_the_best_of_all_sets(bag: RandomBag) -> None:
    sets = every_label_set(bag.labels.shape[1])
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
