"""The file of predictions, as `milbench.contracts.predictions` writes and reads it."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from milbench.contracts.predictions import (
    Predictions,
    Ratio,
    Reading,
    SplitPredictions,
    TrainingLabels,
    load_predictions,
    save_predictions,
)

LABELS = np.array([[True, False], [False, True]])
SCORES = np.array([[2.0, -1.0], [-3.0, 0.5]], np.float32)
SUMS = np.array([1.0, 3.0], np.float32)


def predictions() -> Predictions:
    """Return predictions for two test bags with two classes, with every kind of array."""
    # No string was read and no box found, so that all arrays are empty.
    empty: dict[str, Any] = {member.name: np.zeros((2, 0), np.int64) for member in fields(Reading)}
    test = SplitPredictions(
        labels=LABELS,
        presence=SCORES,
        classes=SCORES,
        bag=np.arange(2),
        digest="digest of the bags",
        ratios={"cost": Ratio(sums=SUMS, weights=np.ones(2, np.float32))},
        reading=Reading(**empty),
    )
    training = TrainingLabels(most_common_set=LABELS[0], class_shares=np.array([0.7, 0.3]))
    return Predictions({"test": test}, class_names=["x", "y"], training=training)


@pytest.mark.parametrize(
    "name",
    [
        "last/test/newer",
        "last/test/ratios/cost/newer",
        "last/test/reading/newer",
        "last/training/newer",
    ],
)
def test_arrays_that_a_later_version_adds_are_ignored(name: str, tmp_path: Path) -> None:
    path = tmp_path / "predictions.npz"
    save_predictions(path, {"last": (3, predictions())})
    with np.load(path) as stored:
        arrays: dict[str, Any] = dict(stored)
    arrays[name] = np.zeros(2)
    np.savez(path, **arrays)
    epoch, read = load_predictions(path)["last"]
    assert epoch == 3
    assert read["test"].digest == "digest of the bags"
    assert read["test"].ratios["cost"].sums.tolist() == SUMS.tolist()
    assert read.training is not None
    assert read.training.most_common_set.tolist() == LABELS[0].tolist()
