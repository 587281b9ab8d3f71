"""Macro F1, average precision and AUROC by bag: their mean is the metric, and they vary as it does."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score

from milbench.evaluation.influences import (
    auroc_by_bag,
    average_precision_by_bag,
    macro_f1_by_bag,
)

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

BAGS, CLASSES = 400, 3


def draw(seed: int) -> tuple[Floats, Bools]:
    """Return scores of classes, some of them equal, and which of the classes are there; one is rare."""
    rng = np.random.default_rng(seed)
    labels = rng.random((BAGS, CLASSES)) < [0.5, 0.3, 0.1]
    scores = rng.normal(size=labels.shape) + 1.5 * labels
    return np.asarray(np.round(scores, 1), float), labels


def f1_of(scores: Floats, labels: Bools, weights: Floats | None = None) -> float:
    return float(f1_score(labels, scores > 1, average="macro", sample_weight=weights))


def average_precision_of(scores: Floats, labels: Bools, weights: Floats | None = None) -> float:
    return float(average_precision_score(labels, scores, average="macro", sample_weight=weights))


def auroc_of(scores: Floats, labels: Bools, weights: Floats | None = None) -> float:
    return float(roc_auc_score(labels, scores, average="macro", sample_weight=weights))


def f1_by_bag(scores: Floats, labels: Bools) -> Floats | None:
    return macro_f1_by_bag(scores > 1, labels)


METRICS = [
    pytest.param(f1_of, f1_by_bag, id="macro F1"),
    pytest.param(average_precision_of, average_precision_by_bag, id="average precision"),
    pytest.param(auroc_of, auroc_by_bag, id="AUROC"),
]
Metric = Callable[..., float]
ByBag = Callable[[Floats, Bools], Floats | None]


@pytest.mark.parametrize(("metric", "by_bag"), METRICS)
def test_the_mean_over_bags_is_the_metric(metric: Metric, by_bag: ByBag) -> None:
    scores, labels = draw(0)
    found = by_bag(scores, labels)
    assert found is not None
    assert found.mean() == pytest.approx(metric(scores, labels), abs=1e-12)


@pytest.mark.parametrize(("metric", "by_bag"), METRICS)
def test_a_bag_adds_what_the_metric_gains_by_its_weight(metric: Metric, by_bag: ByBag) -> None:
    """scikit-learn computes the metric with weights: the influence is the derivative by that of a bag."""
    scores, labels = draw(1)
    found = by_bag(scores, labels)
    assert found is not None
    whole = metric(scores, labels)
    step = 1e-4
    for bag in range(0, BAGS, 20):
        weights = np.ones(BAGS)
        weights[bag] += step
        gain = (metric(scores, labels, weights) - whole) / step
        assert found[bag] - whole == pytest.approx(BAGS * gain, rel=1e-3, abs=1e-3)


@pytest.mark.parametrize(("metric", "by_bag"), METRICS)
def test_bags_vary_as_the_metric_does_with_other_bags(metric: Metric, by_bag: ByBag) -> None:
    values = []
    variances = []
    for seed in range(300):
        scores, labels = draw(seed)
        found = by_bag(scores, labels)
        assert found is not None
        values.append(metric(scores, labels))
        variances.append(found.var(ddof=1) / BAGS)
    # The standard error of the variance of 300 values is 8 %.
    assert np.mean(variances) == pytest.approx(np.var(values, ddof=1), rel=0.25)


def test_a_class_that_is_in_all_bags_or_none_ranks_nothing() -> None:
    scores, labels = draw(2)
    with_constant = np.column_stack([labels, np.ones(BAGS, bool), np.zeros(BAGS, bool)])
    with_scores = np.column_stack([scores, scores[:, :2]])
    np.testing.assert_array_equal(
        auroc_by_bag(with_scores, with_constant), auroc_by_bag(scores, labels)
    )


def test_infinite_scores_are_ranked() -> None:
    labels = np.array([[True], [False], [True], [False]])
    found = auroc_by_bag(np.array([[np.inf], [-np.inf], [0.0], [1.0]]), labels)
    assert found is not None
    assert found.mean() == pytest.approx(0.75)


@pytest.mark.parametrize("by_bag", [average_precision_by_bag, auroc_by_bag])
def test_without_a_class_to_rank_by_there_is_nothing(by_bag: ByBag) -> None:
    assert by_bag(np.zeros((3, 1)), np.zeros((3, 1), bool)) is None
