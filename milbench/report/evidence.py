"""What a report needs of a cell beside its metrics: outcomes by test bag, counts by class, and calibration.

It is computed from the predictions of the cell. Cells of earlier versions and published reports have no
predictions: they keep it in three files, a report for all its cells together.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from milbench.api.outcomes import CLASSES_FILE, OUTCOMES_FILE, Outcomes, load_outcomes
from milbench.api.predictions import PREDICTIONS_FILE, Ints, SplitPredictions, load_predictions
from milbench.api.reliability import RELIABILITY_FILE, Bin, load_reliability
from milbench.errors import UsageError
from milbench.evaluation.metrics import class_counts, outcomes, reliability

ClassCounts = dict[str, list[int]]
"""Of each class: in how many test bags it is present, predicted, and both, then what was predicted instead."""


@dataclass(frozen=True)
class Evidence:
    """What is known of a cell, or of all the cells of a published report."""

    outcomes: list[dict[str, Outcomes]] = field(default_factory=list)
    """A dict for each epoch that was kept, by metric; of a published report one, by CELL/METRIC."""
    counts: dict[str, ClassCounts] = field(default_factory=dict)
    """By cell, after the last epoch."""
    shared: str = "unknown"
    """What test bags share: "items", a "group", "nothing", or "unknown" where nobody kept it."""
    reliability: dict[str, list[Bin]] = field(default_factory=dict)
    """By metric, after the last epoch."""


def evidence_in(folder: Path) -> Evidence:
    """Return what the folder of a cell or of a published report has.

    A file that is damaged counts as absent, and with damaged predictions nothing is known.
    """
    try:
        if (folder / PREDICTIONS_FILE).is_file():
            return _from_predictions(folder)
    except (
        UsageError,
        KeyError,
        ValueError,
    ):  # what a task of somebody's has kept may not fit together
        return Evidence()
    return Evidence(
        outcomes=_earlier_outcomes(folder / OUTCOMES_FILE),
        counts=load_counts(folder / CLASSES_FILE),
        reliability=_earlier_reliability(folder / RELIABILITY_FILE),
    )


def _from_predictions(folder: Path) -> Evidence:
    by_epoch = load_predictions(folder / PREDICTIONS_FILE)
    _, last = by_epoch["last"]
    if "test" not in last:
        return Evidence()
    rows = class_counts(last).tolist()
    return Evidence(
        outcomes=[outcomes(predictions) for _, predictions in by_epoch.values()],
        counts={folder.name: dict(zip(last.class_names, rows, strict=True))},
        shared=shared_by(last["test"]),
        reliability=reliability(last["test"]),
    )


def shared_by(bags: SplitPredictions) -> str:
    """Return what some of the bags of a split share: "items", a "group", or "nothing"."""
    if bags.items is not None and _is_in_two_bags(bags.items):
        return "items"
    if bags.group is not None and len(np.unique(bags.group)) < len(bags.group):
        return "group"
    return "nothing"


def _is_in_two_bags(items: Ints) -> bool:
    """Return whether an item is in two rows of items (n, M), in which -1 stands for none."""
    in_bags = [np.unique(row[row >= 0]) for row in items]
    everything = np.concatenate(in_bags)
    return len(np.unique(everything)) < len(everything)


def _earlier_outcomes(path: Path) -> list[dict[str, Outcomes]]:
    if not path.is_file():
        return []
    try:
        return [load_outcomes(path)]
    except UsageError:
        return []


def load_counts(path: Path) -> dict[str, ClassCounts]:
    """Return the counts of each class by cell; nothing where the file is missing or damaged."""
    try:
        return dict(json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return {}


def _earlier_reliability(path: Path) -> dict[str, list[Bin]]:
    try:
        return load_reliability(path)
    except UsageError:
        return {}
