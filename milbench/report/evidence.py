"""What a report needs of a cell beside its metrics: its evidence.

Evidence is the outcomes by test bag, the counts by class, the items of test bags, and the
calibration. It is computed from the predictions of the cell. A published report has files of
evidence instead, each for all of its cells together.
"""

import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Protocol

from milbench.contracts.outcomes import CLASSES_FILE, OUTCOMES_FILE, Outcomes, load_outcomes
from milbench.contracts.predictions import PREDICTIONS_FILE, Predictions, load_predictions
from milbench.contracts.reliability import Bin
from milbench.errors import UsageError
from milbench.evaluation.metrics import class_counts, outcomes, reliability
from milbench.report.bag_items import BAG_ITEMS_FILE, BagItems, bag_items_of, load_bag_items

ClassCounts = dict[str, list[int]]
"""Class -> numbers of test bags: where the class is present, where it is predicted, and both.

Then, for each class, the number of test bags in which it was wrongly predicted instead.
"""

MISFIT_ERRORS = (UsageError, KeyError, ValueError)
"""Errors from predictions that are damaged, or whose parts do not fit together.

A user's own task may make predictions that do not fit together.
"""


class Evidence(Protocol):
    """The evidence of a cell, or of all the cells of a published report."""

    @property
    def outcomes(self) -> list[dict[str, Outcomes]]:
        """Metric -> outcomes, a dict for each epoch that was kept.

        A published report has one dict, with keys CELL/METRIC.
        """

    @property
    def counts(self) -> dict[str, ClassCounts]:
        """Cell -> counts by class, after the last epoch."""

    @property
    def bag_items(self) -> dict[str, BagItems]:
        """`Outcomes.items` -> the items of these test bags, as far as they were kept."""

    @property
    def reliability(self) -> dict[str, list[Bin]]:
        """Metric -> bins of forecast probabilities, after the last epoch."""


@dataclass(frozen=True)
class NoEvidence:
    """The evidence of a cell that has kept nothing."""

    outcomes: list[dict[str, Outcomes]] = field(default_factory=list)
    counts: dict[str, ClassCounts] = field(default_factory=dict)
    bag_items: dict[str, BagItems] = field(default_factory=dict)
    reliability: dict[str, list[Bin]] = field(default_factory=dict)


@dataclass(frozen=True)
class PublishedEvidence:
    """The evidence in the files of a published report.

    There is no calibration among them.
    """

    folder: Path

    @cached_property
    def outcomes(self) -> list[dict[str, Outcomes]]:
        """See `Evidence`."""
        return _published_outcomes(self.folder / OUTCOMES_FILE)

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
        return {}


@dataclass(frozen=True)
class CellEvidence:
    """The evidence from the predictions of a cell. Each part is computed when first asked for."""

    cell: str
    epochs: list[Predictions]
    """The predictions after each epoch that was kept."""
    last: Predictions
    """The predictions after the last epoch."""

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
    """Return the evidence in the folder of a cell or of a published report.

    A damaged file counts as absent. With damaged predictions there is no evidence at all.
    """
    path = folder / PREDICTIONS_FILE
    if not path.is_file():
        # Only the folder of a cell has such a file. A cell that lacks it has none of the files of a
        # published report either, so that its evidence is empty.
        return PublishedEvidence(folder)
    try:
        by_epoch = load_predictions(path)
    except MISFIT_ERRORS:
        return NoEvidence()
    _, last = by_epoch["last"]
    if "test" not in last:
        return NoEvidence()
    epochs = [predictions for _, predictions in by_epoch.values()]
    return CellEvidence(folder.name, epochs, last)


def _published_outcomes(path: Path) -> list[dict[str, Outcomes]]:
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
    """Return cell -> counts by class; {} if the file is missing or damaged."""
    try:
        return dict(json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return {}
