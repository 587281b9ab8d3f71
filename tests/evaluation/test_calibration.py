"""Calibration errors by hand, and the metrics of losses against enumeration."""

import math
from dataclasses import astuple, dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

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
from tests._helpers.losses import random_logits

C, K = 2, 3


def test_bins_of_equal_mass_by_hand() -> None:
    # Of 45 forecasts 1/50, 2/50, ..., 45/50 each of 15 bins gets three. What happens has an even numerator.
    probabilities = np.arange(1, 46) / 50
    happened = np.arange(1, 46) % 2 == 0
    order = np.random.default_rng(1).permutation(45)
    bins = reliability_bins(probabilities[order], happened[order])
    expected_error = Fraction(0)
    for index in range(15):
        numerators = [3 * index + 1, 3 * index + 2, 3 * index + 3]
        even = [n for n in numerators if n % 2 == 0]
        frequency = Fraction(len(even), 3)
        mean = Fraction(sum(numerators), 3 * 50)
        assert astuple(bins[index]) == pytest.approx((index, 3, float(mean), float(frequency)))
        expected_error += abs(frequency - mean) / 15
    assert calibration_error(bins) == pytest.approx(float(expected_error))


@pytest.mark.parametrize(
    "order",
    [
        pytest.param(np.arange(100), id="sorted"),
        pytest.param(np.random.default_rng(0).permutation(100), id="shuffled"),
    ],
)
def test_equal_forecasts_are_counted_together_in_any_order(order: NDArray[np.int64]) -> None:
    probabilities = np.repeat([0.0, 0.3, 0.9], [60, 30, 10])
    happened = np.repeat([False, True, False, True], [60, 15, 15, 10])
    bins = reliability_bins(probabilities[order], happened[order])
    assert [(b.index, b.count, b.frequency) for b in bins] == [
        (0, 60, 0.0),
        (9, 30, 0.5),
        (13, 10, 1.0),
    ]
    assert calibration_error(bins) == pytest.approx(0.3 * 0.2 + 0.1 * 0.1)


def bags_of(seed: int) -> list[Bags]:
    """Return 40 bags in batches of 15, whose instances are the logits that a loss is given."""
    rng = torch.Generator().manual_seed(seed)
    logits = random_logits(40, C + 1, K, seed=seed)
    noise = torch.randn(40, C, generator=rng)
    labels = logits[:, :-1].amax(dim=2) + noise > 0.5
    return Bags(logits, labels).parts(15)


@torch.no_grad()
def evaluated(name: str) -> Evaluation:
    loss = load_loss(name).build(C)

    def score(bags: Bags) -> Scores:
        scores = loss.score(bags.instances)
        return replace(
            scores,
            log_prob=loss.label_log_prob(bags.instances, bags.labels),
            even_odds_log_prob=loss.label_log_prob(bags.instances, scores.presence >= 0),
        )

    return evaluate_bags(
        score, {"validation": EvalSplit((), bags_of(0)), "test": EvalSplit((), bags_of(1))}
    )


@pytest.fixture(scope="module")
def of_exact() -> Evaluation:
    return evaluated("exact")


@dataclass
class Enumerated:
    """What the enumeration of all label maps says of the test bags."""

    nll: list[float]
    """-log Prb(the labels of the bag), of each bag."""
    presence: list[tuple[float, bool]]
    """Prb(class c is in the bag), and whether it is, of each class of each bag."""
    sets: list[tuple[float, bool]]
    """Prb(the set of all classes more probable than not), and whether it is right, of each bag."""


@pytest.fixture(scope="module")
def enumerated() -> Enumerated:
    found = Enumerated([], [], [])
    for bags in bags_of(1):
        for logits, labels in zip(bags.instances, bags.labels.tolist(), strict=True):
            probs = LabelMaps(logits).set_prob
            present = {c for c in range(C) if labels[c]}
            found.nll.append(-math.log(probs[frozenset(present)]))
            likely = set()
            for c in range(C):
                marginal = sum(float(prob) for classes, prob in probs.items() if c in classes)
                found.presence.append((marginal, c in present))
                if marginal >= 0.5:
                    likely.add(c)
            found.sets.append((float(probs[frozenset(likely)]), likely == present))
    return found


def error_of_equal_bins(forecasts: list[tuple[float, bool]]) -> float:
    """Return the calibration error over BINS bins that are equally full, of forecasts none of which are equal."""
    bins: list[list[tuple[float, bool]]] = [[] for _ in range(BINS)]
    for rank, forecast in enumerate(sorted(forecasts)):
        bins[BINS * rank // len(forecasts)].append(forecast)
    total = 0.0
    for forecasts_of_bin in bins:
        expected = sum(prob for prob, _ in forecasts_of_bin)
        happened = sum(is_right for _, is_right in forecasts_of_bin)
        total += abs(expected - happened)
    return total / len(forecasts)


def test_the_nll_of_exact_is_that_of_enumeration(
    of_exact: Evaluation, enumerated: Enumerated
) -> None:
    assert of_exact.metrics["test/nll"] == pytest.approx(np.mean(enumerated.nll), rel=1e-6)


def test_the_nll_of_each_bag_is_that_of_enumeration(
    of_exact: Evaluation, enumerated: Enumerated
) -> None:
    assert of_exact.predictions is not None
    of_bags = outcomes(of_exact.predictions)["nll"].sums.tolist()
    assert of_bags == pytest.approx(enumerated.nll, rel=1e-6)


# Forecasts are kept in single precision.


def test_the_calibration_of_presence_is_that_of_enumeration(
    of_exact: Evaluation, enumerated: Enumerated
) -> None:
    expected = error_of_equal_bins(enumerated.presence)
    assert of_exact.metrics["test/presence_ece"] == pytest.approx(expected, abs=1e-7)


def test_the_calibration_of_label_sets_is_that_of_enumeration(
    of_exact: Evaluation, enumerated: Enumerated
) -> None:
    expected = error_of_equal_bins(enumerated.sets)
    assert of_exact.metrics["test/set_ece"] == pytest.approx(expected, abs=1e-7)


def test_bins_hold_every_forecast_once(of_exact: Evaluation) -> None:
    assert of_exact.predictions is not None
    bins = reliability(of_exact.predictions["test"])
    assert sum(b.count for b in bins["presence_ece"]) == 40 * C
    assert sum(b.count for b in bins["set_ece"]) == 40


@pytest.mark.parametrize(
    ("loss", "names"),
    [
        pytest.param("max-pooling", set(), id="max-pooling has no probabilities"),
        pytest.param(
            "hard-em",
            {"validation/nll", "test/nll", "validation/set_ece", "test/set_ece"},
            id="hard-em has probabilities of label sets, and a presence that is no log-odds",
        ),
    ],
)
def test_what_a_loss_does_not_define_is_left_out(loss: str, names: set[str]) -> None:
    metrics = evaluated(loss).metrics
    assert {name for name in metrics if "ece" in name or "nll" in name} == names
    assert not [name for name, value in metrics.items() if math.isnan(value)]


@pytest.mark.parametrize(("loss", "kept"), [("max-pooling", set()), ("hard-em", {"set_ece"})])
def test_bins_are_kept_of_what_a_loss_defines(loss: str, kept: set[str]) -> None:
    predictions = evaluated(loss).predictions
    assert predictions is not None
    assert set(reliability(predictions["test"])) == kept


BINS_OF_PRESENCE = {"presence_ece": [Bin(0, 2, 0.25, 0.5), Bin(14, 1, 1.0, 1.0)]}


def test_bins_are_written_and_read(tmp_path: Path) -> None:
    path = tmp_path / "reliability.json"
    save_reliability(path, BINS_OF_PRESENCE)
    assert load_reliability(path) == BINS_OF_PRESENCE


def test_a_damaged_file_of_bins_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "reliability.json"
    save_reliability(path, BINS_OF_PRESENCE)
    path.write_text(path.read_text()[1:])
    with pytest.raises(UsageError, match=r"reliability .*reliability\.json cannot be read"):
        load_reliability(path)
