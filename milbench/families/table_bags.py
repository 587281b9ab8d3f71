"""The base class of tasks on a user's table: its split, its checks, and batches of bags of similar sizes."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from milbench.api.bags import Bags, Origin
from milbench.api.task import Folds
from milbench.data.catalog import find_file
from milbench.data.checks import check_bags, checked_splits, fatal
from milbench.data.in_order import prefetched
from milbench.data.own_bags import OwnBags, load_bags
from milbench.data.splits import BagSplit, count_folds, mean_overlap, split_bags, split_files
from milbench.data.table_options import TableOptions
from milbench.errors import UsageError
from milbench.families.fixed_bags import FixedBags


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
    return [
        ordered[part] for part in consecutive_batches(sizes[ordered], most_bags, most_instances)
    ]


def consecutive_batches(
    sizes: NDArray[np.int64], most_bags: int, most_instances: int
) -> list[NDArray[np.int64]]:
    """Return the numbers of bags of some sizes in batches of neighbours, as large as `by_size` says."""
    batches: list[NDArray[np.int64]] = []
    first = 0
    for last in range(1, len(sizes) + 1):
        full = last - first == most_bags
        if (
            last == len(sizes)
            or full
            or (last - first + 1) * sizes[first : last + 1].max() > most_instances
        ):
            batches.append(np.arange(first, last))
            first = last
    return batches


class TableBags(FixedBags):
    """Base class of tasks on a table of bags; a subclass makes batches."""

    primary = "set_error"
    revision = 2
    added = TableOptions.added
    Options: ClassVar[type[TableOptions]]
    """The parameters of the constructor."""
    options: TableOptions
    leaves_out_small = False
    """Whether bags with more classes than instances are in no part of a split; else a table with one is refused."""

    def __init__(self, **options: Any) -> None:
        self.options = self.Options(**options)
        self.batch_bags = self.options.batch_bags
        self.is_tested = self.options.test > 0

    def own_bags(self, data_dir: Path | None) -> OwnBags:
        """Return the bags of the table, packed now if they were not before. Raises UsageError."""
        return load_bags(find_file(self.options.table, data_dir, "task.table"), self.options)

    def check_data(self, data_dir: Path | None) -> str:
        """Return the name of the table, its counts and a digest; raise UsageError for unusable bags."""
        bags, kind = self.own_bags(data_dir), self.options.kind
        for problem in fatal(check_bags(bags, self.options, quick=True)):
            raise UsageError(f"{bags.path}: {problem}")
        counts = f"{len(bags):,} {kind}"
        if kind == "features":
            counts = f"{len(bags):,} bags, {bags.store.offsets[-1]:,} instances"
        split_bags(bags, self.options, self.seed)  # raises UsageError where there is none
        folds = count_folds(bags, self.options)
        self.folds = Folds(*folds) if folds else None
        of_splits = b"".join(path.read_bytes() for path in split_files(bags, self.options))
        digest = (
            hashlib.sha256(bags.digest.encode() + of_splits).hexdigest()
            if of_splits
            else bags.digest
        )
        return f"{bags.path.name}: {counts}, {len(bags.class_names)} classes, sha256 {digest[:16]}"

    def remarks(self, data_dir: Path | None, seeds: Sequence[int]) -> list[str]:
        bags = self.own_bags(data_dir)
        findings = check_bags(
            bags, self.options, quick=True, splits=checked_splits(bags, self.options, seeds)
        )
        return [
            f"{bags.path.name}: {one.what}: {one.detail}"
            for one in findings
            if one.level == "warning"
        ]

    def overlap(self, data_dir: Path | None) -> float:
        return mean_overlap(self.own_bags(data_dir), self.options)

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
        self._class_names, self._split = bags.class_names, split_bags(bags, self.options, self.seed)
        if self.leaves_out_small:
            enough = bags.labels.sum(axis=1) <= bags.store.sizes
            self._split = BagSplit(*(part[enough[part]] for part in self._split))
        for part in ("train", "test") if self.is_tested else ("train",):
            if not len(getattr(self._split, part)):
                raise UsageError(f"{bags.path}: no bag is left to {part} on")
        self._groups = None
        if bags.groups is not None:
            _, groups = np.unique(bags.groups, return_inverse=True)
            self._groups = torch.from_numpy(groups.astype(np.int64))
        self.num_classes, self.training_count = len(bags.class_names), len(self._split.train)
        self.training_labels = torch.from_numpy(bags.labels[self._split.train])
        self.max_labels = int(self.training_labels.sum(dim=1).max())
        return self._split

    def origin_of(self, numbers: NDArray[np.int64]) -> Origin:
        """Return the origin of bags of the table: their numbers in it, and their groups if any."""
        bags = torch.from_numpy(numbers)
        return Origin(bags, None if self._groups is None else self._groups[bags])
