"""A simple baseline for bags of feature vectors: extra trees of scikit-learn on pooled features.

A bag becomes one row: the mean, the largest and the smallest value of each feature over its
instances. One forest learns all classes at once. It is trained on the same bags and label sets as a
loss, and its threshold is chosen by the same rule. A loss that does not beat the baseline has not
shown that it makes use of single instances.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from milbench.contracts.metric_info import BASELINE, BASELINE_METRICS
from milbench.contracts.predictions import Bools, Floats, Predictions, SplitPredictions
from milbench.evaluation.metrics import metrics_of

TREES = 100
"""The number of trees in the forest."""
MOST_BAGS = 20_000
"""The most training bags for which there is a baseline: with more, the trees would take minutes."""
_EVEN_SHARE = 0.5
"""The share of the votes at which a class is as likely present as absent."""


def pool(instances: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the mean, largest and smallest value of each feature over the instances of a bag.

    Instances are (K, D), the result (3 D,): all means, then all largest and all smallest values.

    Examples:
        >>> pool(np.array([[1, 5], [3, 4]], np.float32)).tolist()
        [2.0, 4.5, 3.0, 5.0, 1.0, 4.0]
    """
    mean = instances.mean(axis=0, dtype=np.float64).astype(np.float32)
    return np.concatenate([mean, instances.max(axis=0), instances.min(axis=0)])


def fit_trees(features: Floats, labels: Bools, seed: int) -> Any:
    """Return extra trees that are trained on pooled features (N, F) and label sets (N, C)."""
    from sklearn.ensemble import ExtraTreesClassifier

    # scikit-learn takes only seeds of 32 bits.
    trees = ExtraTreesClassifier(n_estimators=TREES, random_state=seed % 2**32, n_jobs=1)
    # For a single class scikit-learn expects (N,).
    target = labels[:, 0] if labels.shape[1] == 1 else labels
    return trees.fit(features, target)


def class_probabilities(trees: Any, features: Floats) -> NDArray[np.float64]:
    """Return (n, C), the share of the trees that find each class in each bag."""
    votes_by_class = trees.predict_proba(features)
    answers_by_class = trees.classes_
    # For a single class scikit-learn returns an array instead of a list.
    if not isinstance(votes_by_class, list):
        votes_by_class = [votes_by_class]
        answers_by_class = [answers_by_class]
    columns = []
    for votes, answers in zip(votes_by_class, answers_by_class, strict=True):
        # Answers are False and True, or only one of them where all training bags have the class or
        # none has it.
        is_present = np.asarray(answers, bool)
        columns.append(votes[:, is_present].sum(axis=1))
    return np.stack(columns, axis=1)


def baseline_metrics(
    training: tuple[Floats, Bools],
    evaluated: Mapping[str, tuple[Floats, Bools]],
    seed: int,
) -> dict[str, float]:
    """Return the metrics of the baseline by `split/metric`, as a run keeps them beside its own.

    Args:
        training: pooled features (N, F) and label sets (N, C) of the training bags.
        evaluated: pooled features and label sets of the bags of each split. The threshold is
            chosen on the bags of "calibration" if there are any, else on the bags of "validation".
            Trees know their training bags by heart; where these choose, the threshold stays near
            even odds.
        seed: the seed of the trees.
    """
    trees = fit_trees(*training, seed)
    splits = {}
    for name, (features, labels) in evaluated.items():
        # Presence scores are 0 at even odds, as with a loss.
        presence = (class_probabilities(trees, features) - _EVEN_SHARE).astype(np.float32)
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
