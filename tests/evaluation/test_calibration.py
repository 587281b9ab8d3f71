"""Calibration errors by hand, and the likelihood and calibration of losses against enumeration.

A forecast is the probability of an event, such as that a class is in a bag. Forecasts are sorted
into bins. The calibration error is the mean distance, over all forecasts, between the mean forecast
of a bin and the share of its events that happen.
"""

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from milbench import Bags, EvalSplit, Evaluation, Scores, evaluate_bags, load_loss
from milbench.contracts.problem import Split
from milbench.contracts.reliability import (
    BINS,
    Bin,
    calibration_error,
)
from milbench.evaluation.metrics import outcomes, reliability, reliability_bins
from milbench.evaluation.thresholds import EVEN_ODDS
from tests._helpers.label_maps import LabelMaps
from tests._helpers.losses import random_logits

C = 2
"""The number of classes."""
K = 3
"""The number of instances in each bag."""
BAGS = 40
"""The number of bags in each split."""


@pytest.fixture(scope="module")
def even_numerators() -> list[Bin]:
    """Return the bins of 45 forecasts 1/50, 2/50, ..., 45/50, given in random order.

    There are always 15 bins (BINS), here with three forecasts each. The event of a forecast happens
    if the numerator of the forecast is even.
    """
    numerators = np.random.default_rng(1).permutation(np.arange(1, 46))
    probabilities = numerators / 50
    happened = numerators % 2 == 0
    return reliability_bins(probabilities, happened)


def numerators_of_bin(index: int) -> list[int]:
    """Return the numerators of the three forecasts in a bin."""
    return [3 * index + 1, 3 * index + 2, 3 * index + 3]


def frequency_of_bin(index: int) -> Fraction:
    """Return the share of the forecasts in a bin whose event happens."""
    even = [numerator for numerator in numerators_of_bin(index) if numerator % 2 == 0]
    return Fraction(len(even), 3)


def mean_of_bin(index: int) -> Fraction:
    """Return the mean of the three forecasts in a bin."""
    return Fraction(sum(numerators_of_bin(index)), 3 * 50)


@pytest.mark.parametrize("index", range(15))
def test_bins_with_equally_many_forecasts_by_hand(even_numerators: list[Bin], index: int) -> None:
    found = even_numerators[index]
    assert found.index == index
    assert found.count == 3
    assert found.probability == pytest.approx(float(mean_of_bin(index)))
    assert found.frequency == pytest.approx(float(frequency_of_bin(index)))


def test_the_calibration_error_by_hand(even_numerators: list[Bin]) -> None:
    distances = [abs(frequency_of_bin(index) - mean_of_bin(index)) for index in range(15)]
    assert calibration_error(even_numerators) == pytest.approx(float(sum(distances) / 15))


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
    # Equal forecasts are in the bin of their first rank: 0, 60 and 90 of 100. With 15 bins these
    # are the bins 0, 15 * 60 // 100 = 9 and 15 * 90 // 100 = 13.
    assert [one.index for one in bins] == [0, 9, 13]
    assert [one.count for one in bins] == [60, 30, 10]
    assert [one.frequency for one in bins] == [0.0, 0.5, 1.0]
    # 30 % of the forecasts are off by 0.2, and 10 % by 0.1.
    assert calibration_error(bins) == pytest.approx(0.3 * 0.2 + 0.1 * 0.1)


def bags_of(seed: int) -> list[Bags]:
    """Return BAGS bags in batches of 15; their instances serve as the logits for a loss."""
    rng = torch.Generator().manual_seed(seed)
    logits = random_logits(BAGS, C + 1, K, seed=seed)
    noise = torch.randn(BAGS, C, generator=rng)
    # A class is in a bag where its largest logit, changed by noise, is above 0.5. So forecasts are
    # partly right. The bound is arbitrary: it only has to leave some classes in, and some out.
    labels = logits[:, :-1].amax(dim=2) + noise > 0.5
    return Bags(logits, labels).parts(15)


@torch.no_grad()
def evaluated(name: str) -> Evaluation:
    """Return the evaluation of a loss by name on validation and test bags."""
    loss = load_loss(name).build(C)

    def score(bags: Bags) -> Scores:
        logits = bags.instances
        scores = loss.score(logits)
        # The set of the classes whose presence is at least 0, as in every evaluation. If presence
        # is the log-odds that a class is in the bag, as for `exact`, these are the classes that are
        # at least as probable as not. For other losses 0 has no meaning, but this set still has a
        # probability.
        even_odds_sets = scores.presence >= EVEN_ODDS
        return replace(
            scores,
            log_prob=loss.label_log_prob(logits, bags.labels),
            even_odds_log_prob=loss.label_log_prob(logits, even_odds_sets),
        )

    splits: dict[Split, EvalSplit] = {
        "validation": EvalSplit((), bags_of(0)),
        "test": EvalSplit((), bags_of(1)),
    }
    return evaluate_bags(score, splits)


@pytest.fixture(scope="module")
def of_exact() -> Evaluation:
    return evaluated("exact")


class Forecast(NamedTuple):
    """The probability of a statement, and whether it is true."""

    prob: float
    is_so: bool


@dataclass
class Enumerated:
    """Results for the test bags by an enumeration of all label maps.

    A label map gives each position a class or background.
    """

    nll: list[float] = field(default_factory=list)
    """For each bag: the negative log-probability of its label set."""
    presence: list[Forecast] = field(default_factory=list)
    """For each class and bag, the forecast of the statement: the class is in the bag."""
    sets: list[Forecast] = field(default_factory=list)
    """For each bag, the forecast of the statement: its label set is that of its likely classes.

    A class is likely in a bag if it is at least as probable as not.
    """

    def add(self, logits: Tensor, present: set[int]) -> None:
        """Add the results for a bag with logits (C+1, K) and the label set `present`."""
        probs = LabelMaps(logits).set_prob
        self.nll.append(-math.log(probs[frozenset(present)]))
        likely = set()
        for c in range(C):
            marginal = sum(float(prob) for classes, prob in probs.items() if c in classes)
            self.presence.append(Forecast(marginal, c in present))
            if marginal >= 0.5:
                likely.add(c)
        self.sets.append(Forecast(float(probs[frozenset(likely)]), likely == present))


@pytest.fixture(scope="module")
def enumerated() -> Enumerated:
    found = Enumerated()
    for bags in bags_of(1):
        for logits, labels in zip(bags.instances, bags.labels, strict=True):
            found.add(logits, set(labels.nonzero().flatten().tolist()))
    return found


def error_of_equal_bins(forecasts: list[Forecast]) -> float:
    """Return the calibration error over BINS bins of about equally many forecasts.

    No two forecasts may be equal.
    """
    bins: list[list[Forecast]] = [[] for _ in range(BINS)]
    for rank, forecast in enumerate(sorted(forecasts)):
        bins[BINS * rank // len(forecasts)].append(forecast)
    total = 0.0
    for forecasts_of_bin in bins:
        expected = sum(forecast.prob for forecast in forecasts_of_bin)
        happened = len([forecast for forecast in forecasts_of_bin if forecast.is_so])
        total += abs(expected - happened)
    return total / len(forecasts)


def test_the_nll_of_exact_agrees_with_enumeration(
    of_exact: Evaluation, enumerated: Enumerated
) -> None:
    assert of_exact.metrics["test/nll"] == pytest.approx(np.mean(enumerated.nll), rel=1e-6)


def test_the_nll_of_each_bag_agrees_with_enumeration(
    of_exact: Evaluation, enumerated: Enumerated
) -> None:
    assert of_exact.predictions is not None
    of_bags = outcomes(of_exact.predictions)["nll"].sums.tolist()
    assert of_bags == pytest.approx(enumerated.nll, rel=1e-6)


SINGLE_PRECISION = 1e-7
"""The rounding error of forecasts, which are kept in single precision."""


def test_the_calibration_of_presence_agrees_with_enumeration(
    of_exact: Evaluation, enumerated: Enumerated
) -> None:
    expected = error_of_equal_bins(enumerated.presence)
    found = of_exact.metrics["test/presence_ece"]
    assert found == pytest.approx(expected, abs=SINGLE_PRECISION)


def test_the_calibration_of_label_sets_agrees_with_enumeration(
    of_exact: Evaluation, enumerated: Enumerated
) -> None:
    expected = error_of_equal_bins(enumerated.sets)
    assert of_exact.metrics["test/set_ece"] == pytest.approx(expected, abs=SINGLE_PRECISION)


def test_bins_hold_every_forecast_once(of_exact: Evaluation) -> None:
    assert of_exact.predictions is not None
    bins = reliability(of_exact.predictions["test"])
    assert sum(one.count for one in bins["presence_ece"]) == BAGS * C
    assert sum(one.count for one in bins["set_ece"]) == BAGS


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
    # "ece" is in the names of the (expected) calibration errors, and "nll" in those of the negative
    # log-likelihood.
    assert {name for name in metrics if "ece" in name or "nll" in name} == names
    undefined = [name for name, value in metrics.items() if math.isnan(value)]
    assert undefined == []


@pytest.mark.parametrize(
    ("loss", "kept"),
    [
        pytest.param("max-pooling", set(), id="max-pooling"),
        pytest.param("hard-em", {"set_ece"}, id="hard-em"),
    ],
)
def test_bins_are_kept_of_what_a_loss_defines(loss: str, kept: set[str]) -> None:
    predictions = evaluated(loss).predictions
    assert predictions is not None
    assert set(reliability(predictions["test"])) == kept
