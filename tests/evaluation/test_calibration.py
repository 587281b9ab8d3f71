"""Calibration errors by hand, and the metrics of losses against enumeration."""

import math
from dataclasses import astuple, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch

from milbench import Bags, EvalSplit, Evaluation, Scores, UsageError, evaluate_bags, load_loss
from milbench.contracts.reliability import (
    BINS,
    Bin,
    calibration_error,
    load_reliability,
    save_reliability,
)
from milbench.evaluation.metrics import outcomes, reliability, reliability_bins
from tests._helpers.label_maps import LabelMaps
from tests._helpers.likelihood_reference import every_label_set
from tests._helpers.losses import random_logits

C, K = 2, 3


def test_bins_of_equal_mass_by_hand() -> None:
    probabilities = np.random.default_rng(1).permutation(np.arange(1, 46) / 50)  # three a bin
    happened = probabilities * 50 % 2 < 0.5  # of the even numerators
    bins = reliability_bins(probabilities, happened)
    expected = Fraction(0)
    for b in range(15):
        numerators = [3 * b + 1, 3 * b + 2, 3 * b + 3]
        frequency, mean = (
            Fraction(sum(n % 2 == 0 for n in numerators), 3),
            Fraction(sum(numerators), 150),
        )
        assert astuple(bins[b]) == pytest.approx((b, 3, float(mean), float(frequency)))
        expected += abs(frequency - mean) / 15
    assert calibration_error(bins) == pytest.approx(float(expected))


def test_equal_forecasts_are_counted_together_whatever_the_order_of_the_bags() -> None:
    probabilities = np.repeat([0.0, 0.3, 0.9], [60, 30, 10])
    happened = np.repeat([False, True, False, True], [60, 15, 15, 10])
    for order in (np.arange(100), np.random.default_rng(0).permutation(100)):
        bins = reliability_bins(probabilities[order], happened[order])
        assert [(b.index, b.count, b.frequency) for b in bins] == [
            (0, 60, 0.0),
            (9, 30, 0.5),
            (13, 10, 1.0),
        ]
        assert calibration_error(bins) == pytest.approx(0.3 * 0.2 + 0.1 * 0.1)


def bags_of(seed: int) -> list[Bags]:
    rng = torch.Generator().manual_seed(seed)
    logits = random_logits(40, C + 1, K, seed=seed)
    return Bags(
        logits, (logits[:, :-1].amax(dim=2) + torch.randn(40, C, generator=rng)) > 0.5
    ).parts(15)


@torch.no_grad()
def evaluated(name: str) -> Evaluation:
    loss = load_loss(name).build(C)

    def score(bags: Bags) -> Scores:
        scores = loss.score(bags.instances)
        labels, even_odds = (
            loss.label_log_prob(bags.instances, s) for s in (bags.labels, scores.presence >= 0)
        )
        return replace(scores, log_prob=labels, even_odds_log_prob=even_odds)

    return evaluate_bags(
        score, {"validation": EvalSplit((), bags_of(0)), "test": EvalSplit((), bags_of(1))}
    )


def test_the_metrics_of_exact_are_those_of_the_enumeration_of_label_maps() -> None:
    found = evaluated("exact")
    sets, costs, presences, set_forecasts = every_label_set(C).tolist(), [], [], []
    for bags in bags_of(1):
        for logits, labels in zip(bags.instances, bags.labels.tolist(), strict=True):
            maps = LabelMaps(logits)
            probs = [
                float(maps.set_prob[frozenset(c for c in range(C) if held[c])]) for held in sets
            ]
            costs.append(-math.log(probs[sets.index(labels)]))
            marginals = [
                sum(p for p, held in zip(probs, sets, strict=True) if held[c]) for c in range(C)
            ]
            presences += [*zip(marginals, labels, strict=True)]
            even = [p >= 0.5 for p in marginals]
            set_forecasts.append((probs[sets.index(even)], even == labels))
    assert found.predictions is not None
    assert outcomes(found.predictions)["nll"].sums.tolist() == pytest.approx(costs, rel=1e-6)
    bins = reliability(found.predictions["test"])
    assert found.metrics["test/nll"] == pytest.approx(np.mean(costs), rel=1e-6)
    for name, forecasts in (("presence_ece", presences), ("set_ece", set_forecasts)):
        ordered = sorted(forecasts)
        n, total = len(ordered), 0.0
        for b in range(BINS):  # no two are equal
            part = [pair for rank, pair in enumerate(ordered) if BINS * rank // n == b]
            total += abs(sum(p for p, _ in part) - sum(right for _, right in part)) / n
        assert found.metrics[f"test/{name}"] == pytest.approx(
            total, abs=1e-7
        )  # kept in single precision
        assert sum(b.count for b in bins[name]) == n


def test_what_a_loss_does_not_define_is_left_out() -> None:
    """max-pooling has no probabilities; hard-em those of label sets, and a presence that is no log-odds."""
    defined = {"validation/nll", "test/nll", "validation/set_ece", "test/set_ece"}
    for loss, names in (("max-pooling", set[str]()), ("hard-em", defined)):
        found = evaluated(loss)
        assert {n for n in found.metrics if "ece" in n or "nll" in n} == names
        assert not any(math.isnan(value) for value in found.metrics.values())
        assert found.predictions is not None
        assert bool(reliability(found.predictions["test"])) == (loss == "hard-em")


def test_bins_are_written_and_read(tmp_path: Path) -> None:
    path, bins = (
        tmp_path / "reliability.json",
        {"presence_ece": [Bin(0, 2, 0.25, 0.5), Bin(14, 1, 1.0, 1.0)]},
    )
    save_reliability(path, bins)
    assert load_reliability(path) == bins
    path.write_text(path.read_text()[1:])
    with pytest.raises(UsageError, match=r"reliability .*reliability\.json cannot be read"):
        load_reliability(path)
