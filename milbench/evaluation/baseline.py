"""A simple baseline for bags of feature vectors: pooled features, and the extra trees of scikit-learn.

A bag becomes one row: the mean, the largest and the smallest value of each feature over its instances. One forest
learns all classes at once. It sees the training bags of a loss, with the same label sets, and its label sets are read
off by the same rule. A loss that does not beat it has not shown that it needs the instances.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from milbench.api.metric_info import BASELINE, BASELINE_METRICS
from milbench.api.predictions import Bools, Floats, Predictions, SplitPredictions
from milbench.evaluation.metrics import metrics_of

TREES = 100
MOST_BAGS = 20_000
"""Of more training bags trees take minutes, and there is no baseline."""
_HALF = 0.5
"""The share of the votes at which a class is as likely as not. Less this, even odds are 0, as for a loss."""


def pool(instances: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return mean, largest and smallest value of each feature over the instances (K, D) of a bag, as (3 D,).

    Examples:
        >>> pool(np.array([[1, 5], [3, 4]], np.float32)).tolist()
        [2.0, 4.5, 3.0, 5.0, 1.0, 4.0]
    """
    mean = instances.mean(axis=0, dtype=np.float64).astype(np.float32)
    return np.concatenate([mean, instances.max(axis=0), instances.min(axis=0)])


def fit_trees(features: Floats, labels: Bools, seed: int) -> Any:
    """Return extra trees trained on pooled features (N, F) and label sets (N, C), by settings that never change."""
    from sklearn.ensemble import ExtraTreesClassifier

    trees = ExtraTreesClassifier(n_estimators=TREES, random_state=seed % 2**32, n_jobs=1)
    # With one class scikit-learn expects (N,).
    return trees.fit(features, labels[:, 0] if labels.shape[1] == 1 else labels)


def class_probabilities(trees: Any, features: Floats) -> NDArray[np.float64]:
    """Return (n, C), the share of the trees' votes that each class has."""
    votes = trees.predict_proba(features)
    if not isinstance(votes, list):
        votes = [votes]
        known = [trees.classes_]
    else:
        known = trees.classes_
    columns = []
    for vote, values in zip(votes, known, strict=True):
        # A class that all training bags have, or none, has one column.
        is_present = np.asarray(values, bool)
        columns.append(vote[:, is_present].sum(axis=1))
    return np.stack(columns, axis=1)


def baseline_metrics(
    training: tuple[Floats, Bools],
    evaluated: Mapping[str, tuple[Floats, Bools]],
    seed: int,
) -> dict[str, float]:
    """Return the metrics of the baseline by split/metric, as they are kept beside those of a loss.

    Args:
        training: pooled features (N, F) and label sets (N, C) of the training bags.
        evaluated: the same of the bags of each split; those of "validation", or else of "calibration", choose the
            threshold. Trees know their training bags by heart, so that these leave it at even odds.
        seed: of the trees.
    """
    trees = fit_trees(*training, seed)
    splits = {}
    for name, (features, labels) in evaluated.items():
        presence = (class_probabilities(trees, features) - _HALF).astype(np.float32)
        splits[name] = SplitPredictions(
            labels=labels,
            presence=presence,
            classes=presence,
            bag=np.arange(len(labels)),
            digest="pooled",
        )
    values = {}
    for key, value in metrics_of(Predictions(splits)).items():
        split, _, metric = key.partition("/")
        if metric in BASELINE_METRICS:
            values[f"{split}/{BASELINE}{metric}"] = value
    return values
