"""The contributions of single bags to macro F1, average precision and AUROC.

Their mean is the metric, and their variance tells how the metric varies with other bags.
"""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import f1_score

from milbench.evaluation.by_bag import (
    auroc_by_bag,
    average_precision_by_bag,
    macro_f1_by_bag,
)
from milbench.evaluation.metrics import ranking_metrics

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


def sample_bags(seed: int, bags: int = 60) -> tuple[Floats, Bools]:
    """Return scores (bags, 4) with ties, and labels; the last class is in one bag only."""
    rng = np.random.default_rng(seed)
    labels = rng.random((bags, 4)) < [0.5, 0.3, 0.1, 0]
    labels[rng.integers(bags), 3] = True
    scores = rng.normal(size=labels.shape) + 1.5 * labels
    return np.asarray(np.round(scores, 1), float), labels


def f1_of(scores: Floats, labels: Bools) -> float:
    """Return macro F1 by counting, over the classes that occur."""
    predicted = scores > 1
    of_classes = []
    for c in range(labels.shape[1]):
        if labels[:, c].any():
            both = (predicted[:, c] & labels[:, c]).sum()
            of_classes.append(2 * both / (predicted[:, c].sum() + labels[:, c].sum()))
    return float(np.mean(of_classes))


def average_precision_of(scores: Floats, labels: Bools) -> float:
    """Return average precision over the classes that some bags have and some have not."""
    return ranking_metrics(scores, labels)["average_precision"]


def auroc_of(scores: Floats, labels: Bools) -> float:
    return ranking_metrics(scores, labels)["auroc"]


def f1_by_bag(scores: Floats, labels: Bools) -> Floats | None:
    return macro_f1_by_bag(scores > 1, labels)


Metric = Callable[[Floats, Bools], float]
ByBag = Callable[[Floats, Bools], Floats | None]
METRICS = [
    pytest.param(f1_of, f1_by_bag, id="macro F1"),
    pytest.param(average_precision_of, average_precision_by_bag, id="average precision"),
    pytest.param(auroc_of, auroc_by_bag, id="AUROC"),
]


@pytest.mark.parametrize(("metric", "by_bag"), METRICS)
def test_the_mean_over_bags_is_the_metric(metric: Metric, by_bag: ByBag) -> None:
    scores, labels = sample_bags(0)
    found = by_bag(scores, labels)
    assert found is not None
    assert found.mean() == pytest.approx(metric(scores, labels), abs=1e-12)


@pytest.mark.parametrize(("metric", "by_bag"), METRICS[1:])
@pytest.mark.parametrize("seed", range(3))
def test_a_bag_adds_what_the_metric_loses_without_it(
    metric: Metric, by_bag: ByBag, seed: int
) -> None:
    scores, labels = sample_bags(seed)
    found = by_bag(scores, labels)
    assert found is not None
    count = len(labels)
    without = []
    for bag in range(count):
        rest = np.arange(count) != bag
        without.append(metric(scores[rest], labels[rest]))
    losses = (count - 1) * (np.mean(without) - np.array(without))
    np.testing.assert_allclose(found - metric(scores, labels), losses, atol=1e-9)


@pytest.mark.parametrize(("metric", "by_bag"), METRICS)
def test_bags_vary_as_the_metric_does_with_other_bags(metric: Metric, by_bag: ByBag) -> None:
    values = []
    variances = []
    for seed in range(300):
        scores, labels = sample_bags(seed, bags=100)
        found = by_bag(scores, labels)
        assert found is not None
        values.append(metric(scores, labels))
        variances.append(found.var(ddof=1) / len(labels))
    # The last class is in one bag only. For it the jackknife finds too much variance rather than
    # too little, so the upper bound is wide.
    truth = np.var(values, ddof=1)
    assert 0.8 * truth < np.mean(variances) < 3 * truth


def test_a_bag_adds_to_f1_what_its_weight_gains() -> None:
    """A bag's contribution is the derivative by its weight of scikit-learn's weighted F1."""
    scores, labels = sample_bags(1)
    found = f1_by_bag(scores, labels)
    assert found is not None
    whole = f1_of(scores, labels)
    step = 1e-5
    for bag in range(len(labels)):
        weights = np.ones(len(labels))
        weights[bag] += step
        weighted = f1_score(labels, scores > 1, average="macro", sample_weight=weights)
        gain = len(labels) * (weighted - whole) / step
        assert found[bag] - whole == pytest.approx(gain, rel=1e-3, abs=1e-3)


def test_classes_in_all_bags_or_in_none_do_not_count() -> None:
    scores, labels = sample_bags(2)
    in_all = np.ones(len(labels), bool)
    in_none = np.zeros(len(labels), bool)
    more_labels = np.column_stack([labels, in_all, in_none])
    more_scores = np.column_stack([scores, scores[:, :2]])
    found = auroc_by_bag(more_scores, more_labels)
    np.testing.assert_array_equal(found, auroc_by_bag(scores, labels))


def test_infinite_scores_are_ranked() -> None:
    labels = np.array([[True], [False], [True], [False]])
    found = auroc_by_bag(np.array([[np.inf], [-np.inf], [0.0], [1.0]]), labels)
    assert found is not None
    # Of the four pairs of a bag with and a bag without the class, only the pair of the scores 0 and
    # 1 is in the wrong order.
    assert found.mean() == pytest.approx(3 / 4)


@pytest.mark.parametrize("by_bag", [average_precision_by_bag, auroc_by_bag])
def test_without_a_class_to_rank_by_there_is_nothing(by_bag: ByBag) -> None:
    assert by_bag(np.zeros((3, 1)), np.zeros((3, 1), bool)) is None
