"""What a report needs of a cell beside its metrics: outcomes by test bag, counts by class, and calibration.

It is computed from the predictions of the cell. Cells of earlier versions and published reports
have no predictions. They keep it in three files, which in a published report are for all its cells
together.
"""

import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Protocol

from milbench.contracts.outcomes import CLASSES_FILE, OUTCOMES_FILE, Outcomes, load_outcomes
from milbench.contracts.predictions import PREDICTIONS_FILE, Predictions, load_predictions
from milbench.contracts.reliability import RELIABILITY_FILE, Bin, load_reliability
from milbench.errors import UsageError
from milbench.evaluation.metrics import class_counts, outcomes, reliability
from milbench.report.bag_items import BAG_ITEMS_FILE, BagItems, bag_items_of, load_bag_items

ClassCounts = dict[str, list[int]]
"""For each class the number of test bags in which it is present, predicted, and both, then the classes that were
predicted instead."""

MISFIT_ERRORS = (UsageError, KeyError, ValueError)
"""The errors of predictions that are damaged, or that somebody's own task has made and that do not fit together."""


class Evidence(Protocol):
    """What is known of a cell, or of all the cells of a published report."""

    @property
    def outcomes(self) -> list[dict[str, Outcomes]]:
        """A dict for each epoch that was kept, by metric; of a published report one, by CELL/METRIC."""

    @property
    def counts(self) -> dict[str, ClassCounts]:
        """By cell, after the last epoch."""

    @property
    def bag_items(self) -> dict[str, BagItems]:
        """What test bags are made of, by `Outcomes.items`; without an entry, nobody kept it."""

    @property
    def reliability(self) -> dict[str, list[Bin]]:
        """By metric, after the last epoch."""


@dataclass(frozen=True)
class NoEvidence:
    """Nothing is known."""

    outcomes: list[dict[str, Outcomes]] = field(default_factory=list)
    counts: dict[str, ClassCounts] = field(default_factory=dict)
    bag_items: dict[str, BagItems] = field(default_factory=dict)
    reliability: dict[str, list[Bin]] = field(default_factory=dict)


@dataclass(frozen=True)
class EarlierEvidence:
    """What the files of a published report say, or of a cell of an earlier version."""

    folder: Path

    @cached_property
    def outcomes(self) -> list[dict[str, Outcomes]]:
        """See `Evidence`."""
        return _earlier_outcomes(self.folder / OUTCOMES_FILE)

    @cached_property
    def counts(self) -> dict[str, ClassCounts]:
        """See `Evidence`."""
        return load_counts(self.folder / CLASSES_FILE)

    @cached_property
    def bag_items(self) -> dict[str, BagItems]:
        """See `Evidence`."""
        return _published_bag_items(self.folder / BAG_ITEMS_FILE)

    @cached_property
    def reliability(self) -> dict[str, list[Bin]]:
        """See `Evidence`."""
        return _earlier_reliability(self.folder / RELIABILITY_FILE)


@dataclass(frozen=True)
class CellEvidence:
    """What the predictions of a cell say. Each part is computed when it is first asked for."""

    cell: str
    epochs: list[Predictions]
    """The predictions after each epoch that was kept."""
    last: Predictions
    """Those after the last epoch."""

    @cached_property
    def outcomes(self) -> list[dict[str, Outcomes]]:
        """See `Evidence`."""
        try:
            return [outcomes(predictions) for predictions in self.epochs]
        except MISFIT_ERRORS:
            return []

    @cached_property
    def counts(self) -> dict[str, ClassCounts]:
        """See `Evidence`."""
        try:
            rows = class_counts(self.last).tolist()
            return {self.cell: dict(zip(self.last.class_names, rows, strict=True))}
        except MISFIT_ERRORS:
            return {}

    @cached_property
    def bag_items(self) -> dict[str, BagItems]:
        """See `Evidence`."""
        bags = self.last["test"]
        found = {bags.digest: bag_items_of(bags)}
        alone = self.last.single("test")
        if alone is not None:
            found[alone.digest] = bag_items_of(alone)
        return found

    @cached_property
    def reliability(self) -> dict[str, list[Bin]]:
        """See `Evidence`."""
        try:
            return reliability(self.last["test"])
        except MISFIT_ERRORS:
            return {}


def evidence_in(folder: Path) -> Evidence:
    """Return what the folder of a cell or of a published report has.

    A file that is damaged counts as absent, and with damaged predictions nothing is known.
    """
    path = folder / PREDICTIONS_FILE
    if not path.is_file():
        return EarlierEvidence(folder)
    try:
        by_epoch = load_predictions(path)
    except MISFIT_ERRORS:
        return NoEvidence()
    _, last = by_epoch["last"]
    if "test" not in last:
        return NoEvidence()
    epochs = [predictions for _, predictions in by_epoch.values()]
    return CellEvidence(folder.name, epochs, last)


def _earlier_outcomes(path: Path) -> list[dict[str, Outcomes]]:
    if not path.is_file():
        return []
    try:
        return [load_outcomes(path)]
    except UsageError:
        return []


def _published_bag_items(path: Path) -> dict[str, BagItems]:
    if not path.is_file():
        return {}
    try:
        return load_bag_items(path)
    except MISFIT_ERRORS:
        return {}


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
