"""Calibration errors by hand, and the metrics of losses against enumeration."""

from __future__ import annotations

import math
from dataclasses import astuple, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch

from milbench import Bags, EvalSplit, Evaluation, Loss, Scores, UsageError, evaluate_bags, load_loss
from milbench.api.reliability import BINS, Bin, calibration_error, load_reliability, save_reliability
from milbench.api.task import Split
from milbench.evaluation.calibration import reliability_bins
from tests._helpers.likelihood_reference import enumerate_bag, every_label_set
from tests._helpers.losses import random_logits

C, K = 2, 3


def test_bins_of_equal_mass_by_hand() -> None:
    probabilities = np.random.default_rng(1).permutation(np.arange(1, 46) / 50)  # three a bin
    happened = probabilities * 50 % 2 < 0.5  # of the even numerators
    bins = reliability_bins(probabilities, happened)
    expected = Fraction(0)
    for b in range(15):
        numerators = [3 * b + 1, 3 * b + 2, 3 * b + 3]
        frequency, mean = Fraction(sum(n % 2 == 0 for n in numerators), 3), Fraction(sum(numerators), 150)
        assert (bins[b].index, bins[b].count) == (b, 3)
        assert (bins[b].probability, bins[b].frequency) == pytest.approx((float(mean), float(frequency)))
        expected += abs(frequency - mean) / 15
    assert calibration_error(bins) == pytest.approx(float(expected))


def test_equal_forecasts_are_counted_together_whatever_the_order_of_the_bags() -> None:
    probabilities = np.repeat([0.0, 0.3, 0.9], [60, 30, 10])
    happened = np.concatenate([np.zeros(60), np.ones(15), np.zeros(15), np.ones(10)]).astype(bool)
    bins = reliability_bins(probabilities, happened)
    assert [(b.index, b.count, b.frequency) for b in bins] == [(0, 60, 0.0), (9, 30, 0.5), (13, 10, 1.0)]
    assert calibration_error(bins) == pytest.approx(0.3 * 0.2 + 0.1 * 0.1)
    order = np.random.default_rng(0).permutation(100)
    for found, other in zip(bins, reliability_bins(probabilities[order], happened[order]), strict=True):
        assert astuple(found) == pytest.approx(astuple(other))


def bags_of(seed: int, count: int = 40) -> list[Bags]:
    rng = torch.Generator().manual_seed(seed)
    logits = random_logits(count, C + 1, K, seed=seed)
    labels = (logits[:, :-1].amax(dim=2) + torch.randn(count, C, generator=rng)) > 0.5
    bags = Bags(logits, labels)
    return [bags.part(0, 15), bags.part(15, count)]


@torch.no_grad()
def scored(loss: Loss, bags: Bags) -> Scores:
    scores = loss.score(bags.instances)
    return replace(
        scores,
        log_prob=loss.label_log_prob(bags.instances, bags.labels),
        even_odds_log_prob=loss.label_log_prob(bags.instances, scores.presence >= 0),
    )


def evaluated(loss: str, validation: list[Bags], test: list[Bags]) -> Evaluation:
    made = load_loss(loss).build(C)
    splits: dict[Split, EvalSplit] = {"validation": EvalSplit((), validation), "test": EvalSplit((), test)}
    return evaluate_bags(lambda bags: scored(made, bags), splits)


def test_the_metrics_of_exact_are_those_of_the_enumeration_of_label_maps() -> None:
    test = bags_of(1)
    found = evaluated("exact", bags_of(0), test)
    sets = every_label_set(C).tolist()
    costs, presences, named = [], [], []
    for bags in test:
        for logits, labels in zip(bags.instances, bags.labels.tolist(), strict=True):
            log_probs = logits.log_softmax(dim=0)
            probs = [enumerate_bag(log_probs, {c for c in range(C) if held[c]})[0] for held in sets]
            costs.append(-math.log(probs[sets.index(labels)]))
            marginals = [sum(p for p, held in zip(probs, sets, strict=True) if held[c]) for c in range(C)]
            presences += [*zip(marginals, labels, strict=True)]
            even = [p >= 0.5 for p in marginals]
            named.append((probs[sets.index(even)], even == labels))
    assert found.outcomes is not None
    assert found.outcomes["nll"].sums.tolist() == pytest.approx(costs, rel=1e-6)
    assert found.metrics["test/nll"] == pytest.approx(np.mean(costs), rel=1e-6)
    for name, forecasts in (("presence_ece", presences), ("set_ece", named)):
        ordered = sorted(forecasts)
        n, total = len(ordered), 0.0
        for b in range(BINS):  # no two are equal
            part = [pair for rank, pair in enumerate(ordered) if BINS * rank // n == b]
            total += abs(sum(p for p, _ in part) - sum(right for _, right in part)) / n
        assert found.metrics[f"test/{name}"] == pytest.approx(total, abs=1e-9)
        assert found.reliability is not None
        assert sum(b.count for b in found.reliability[name]) == n


def test_what_a_loss_does_not_define_is_left_out() -> None:
    """max-pooling has no probabilities; hard-em those of label sets, and a presence that is no log-odds."""
    names = {}
    for loss in ("max-pooling", "hard-em"):
        found = evaluated(loss, bags_of(0), bags_of(1))
        names[loss] = {n for n in found.metrics if "ece" in n or "nll" in n}
        assert not any(math.isnan(value) for value in found.metrics.values())
        assert (found.reliability is None) == (loss == "max-pooling")
    assert names["max-pooling"] == set()
    assert names["hard-em"] == {"validation/nll", "test/nll", "validation/set_ece", "test/set_ece"}


def test_bins_of_a_file_are_checked(tmp_path: Path) -> None:
    path = tmp_path / "reliability.json"
    save_reliability(path, {"presence_ece": [Bin(0, 2, 0.25, 0.5), Bin(14, 1, 1.0, 1.0)]})
    assert load_reliability(path) == {"presence_ece": [Bin(0, 2, 0.25, 0.5), Bin(14, 1, 1.0, 1.0)]}
    text = path.read_text()
    for old, new in (("0.25", "1.25"), ('"index": 14', '"index": 15'), ("{", "")):
        path.write_text(text.replace(old, new, 1))
        with pytest.raises(UsageError, match=r"reliability .*reliability\.json cannot be read"):
            load_reliability(path)
