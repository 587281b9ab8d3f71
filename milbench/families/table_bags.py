"""Bags from one's own table: which are trained on and tested on, by the table, by a seed or in folds."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from milbench._utils.prefetch import prefetched
from milbench.api.bags import Bags
from milbench.api.task import Folds
from milbench.data.checks import TOO_SMALL, check_bags, fatal
from milbench.data.own_bags import Kind, OwnBags
from milbench.data.splits import BagSplit, drawn_folds, drawn_split, fold_split, given_split, read_folds
from milbench.errors import UsageError
from milbench.families.fixed_bags import FixedBags

Share = Annotated[float, Field(ge=0, lt=1)]
TestShare = Annotated[float, Field(gt=0, lt=1)]
Count = Annotated[int, Field(ge=1)]
FoldCount = Annotated[int, Field(ge=0)]


def by_size(
    bags: NDArray[np.int64], sizes: NDArray[np.int64], most_bags: int, most_instances: int
) -> list[NDArray[np.int64]]:
    """Return bags in batches of about equal size, so that little of them is masked.

    A batch has at most so many bags, and instances, masked ones counted; a larger bag is a batch by itself.

    Examples:
        >>> [batch.tolist() for batch in by_size(np.arange(5), np.array([9, 1, 2, 2, 30]), 2, 20)]
        [[1, 2], [3, 0], [4]]
    """
    ordered = bags[np.argsort(sizes[bags], kind="stable")]
    return [ordered[part] for part in in_turn(sizes[ordered], most_bags, most_instances)]


def in_turn(sizes: NDArray[np.int64], most_bags: int, most_instances: int) -> list[NDArray[np.int64]]:
    """Return the numbers of bags of some sizes in their order, as many at once as `by_size` says."""
    batches: list[NDArray[np.int64]] = []
    first = 0
    for last in range(1, len(sizes) + 1):
        full = last - first == most_bags
        if last == len(sizes) or full or (last - first + 1) * sizes[first : last + 1].max() > most_instances:
            batches.append(np.arange(first, last))
            first = last
    return batches


class TableBags(FixedBags):
    """Base class of tasks whose bags a table names; a subclass opens them and makes batches.

    The parameters are those that the task feature-bags describes.
    """

    primary = "set_error"
    revision = 2
    kind: ClassVar[Kind]
    """What the table names."""
    leaves_out_small = False
    """Whether bags with more classes than instances are in no part of a split; else a table with one is refused."""

    def __init__(
        self, table: str, folds: int, repeats: int, folds_file: str, test: float, validation: float, batch_bags: int
    ) -> None:
        if folds == 1:
            raise UsageError("folds = 1 leaves no bag to train on, expected 2 or more, or 0 for none")
        if not folds and (given := f"repeats = {repeats}" if repeats > 1 else folds_file and "folds_file"):
            raise UsageError(f"{given} needs the number of folds, such as folds = 10")
        if (1 / folds if folds else test) + validation >= 1:
            tested = f"folds = {folds}" if folds else f"test = {test:g}"
            raise UsageError(f"{tested} and validation = {validation:g} leave no bag to train on")
        self.table = table
        self.folds = Folds(folds, repeats) if folds else None
        self.folds_file = folds_file
        self.shares = test, validation
        self.batch_bags = batch_bags

    @abstractmethod
    def own_bags(self, data_dir: Path | None) -> OwnBags:
        """Return the bags of the table, packed now if they were not before. Raises UsageError."""

    def check_data(self, data_dir: Path | None) -> str:
        """Return the name of the table with what it holds and a digest; raise UsageError for bags that are no use."""
        bags = self.own_bags(data_dir)
        found = check_bags(bags, self.kind, quick=True)
        for problem in fatal([one for one in found if not (self.leaves_out_small and one.what == TOO_SMALL)]):
            raise UsageError(f"{bags.path}: {problem}")
        instances = f"{bags.store.offsets[-1]:,} instances, " if self.kind == "features" else ""
        counts = f"{len(bags):,} {'bags' if instances else self.kind}, {instances}{len(bags.class_names)} classes"
        digest, _ = bags.digest, self._split_of(bags)  # which raises UsageError where there is none
        if self.folds_file:
            digest = hashlib.sha256(digest.encode() + self._folds_path(bags).read_bytes()).hexdigest()
        return f"{bags.path.name}: {counts}, sha256 {digest[:16]}"

    def overlap(self, data_dir: Path | None) -> float:
        """Return the test bags for each training bag, of folds or splits by seed; 0 where the table has a split."""
        test, validation = self.shares
        if self.folds:
            test = 1 / self.folds.count
        elif self.own_bags(data_dir).split:
            return 0.0
        return test / (1 - test - validation)

    @property
    def class_names(self) -> list[str]:
        return self._class_names

    def memory(self) -> dict[str, Any]:
        return {"classes": self.class_names, "inputs": self.inputs}

    def recall(self, memory: Mapping[str, Any]) -> None:
        self._class_names = [str(name) for name in memory["classes"]]
        self.num_classes = len(self._class_names)
        self.inputs = int(memory["inputs"])

    def train_batches(self, epoch: int, rng: torch.Generator) -> Iterator[Bags]:
        yield from prefetched(super().train_batches(epoch, rng))

    def split_bags(self, bags: OwnBags) -> BagSplit:
        """Split the bags by the table, the folds or the seed, and set what follows. Raises UsageError for no bags."""
        self._class_names, self._split = bags.class_names, self._split_of(bags)
        if self.leaves_out_small:
            enough = bags.labels.sum(axis=1) <= bags.store.sizes
            self._split = BagSplit(*(part[enough[part]] for part in self._split))
        for part in ("train", "test"):
            if not len(getattr(self._split, part)):
                raise UsageError(f"{bags.path}: no bag is left to {part} on")
        self.num_classes, self.training_count = len(bags.class_names), len(self._split.train)
        self.max_labels = int(bags.labels[self._split.train].sum(axis=1).max())
        return self._split

    def _folds_path(self, bags: OwnBags) -> Path:
        return bags.path.parent / self.folds_file.replace("*", bags.path.stem)

    def _split_of(self, bags: OwnBags) -> BagSplit:
        test, validation = self.shares
        if self.folds is None:
            return given_split(bags) if bags.split else drawn_split(bags, test, validation, self.seed)
        if bags.split:
            raise UsageError(f"{bags.path} has a column 'split': folds = {self.folds.count} would be another split")
        shape = self.folds.count, self.folds.repeats
        folds = read_folds(self._folds_path(bags), bags, *shape) if self.folds_file else drawn_folds(bags, *shape)
        return fold_split(bags, folds, validation, self.seed)
