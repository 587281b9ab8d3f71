"""The base class of tasks on a user's table of bags, and batches of bags of similar sizes."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from milbench.contracts.bags import Origin
from milbench.contracts.folds import Folds
from milbench.contracts.problem import BagFormat
from milbench.contracts.task import Task
from milbench.data.bag_checks import check_bags
from milbench.data.catalog import find_file
from milbench.data.findings import fatal
from milbench.data.load_bags import load_bags
from milbench.data.own_bags import OwnBags
from milbench.data.split_checks import checked_splits
from milbench.data.splits import BagSplit, count_folds, mean_overlap, split_bags, split_files
from milbench.data.table_options import TableOptions
from milbench.errors import UsageError


def by_size(
    bags: NDArray[np.int64], sizes: NDArray[np.int64], most_bags: int, most_instances: int
) -> list[NDArray[np.int64]]:
    """Return batches of bags of about equal size, so that little padding is needed.

    A batch has at most `most_bags` bags and `most_instances` instances, padding included. A bag
    with more instances is a batch by itself.

    Args:
        bags: (B,), the bags to put into batches, as indices of `sizes`.
        sizes: (N,), the number of instances of every bag.
        most_bags: the most bags of a batch.
        most_instances: the most instances of a batch.

    Examples:
        >>> [batch.tolist() for batch in by_size(np.arange(5), np.array([9, 1, 2, 2, 30]), 2, 20)]
        [[1, 2], [3, 0], [4]]
    """
    ordered = bags[np.argsort(sizes[bags], kind="stable")]
    parts = consecutive_batches(sizes[ordered], most_bags, most_instances)
    return [ordered[part] for part in parts]


def consecutive_batches(
    sizes: NDArray[np.int64], most_bags: int, most_instances: int
) -> list[NDArray[np.int64]]:
    """Return batches of neighbouring bags, each bag as its index in `sizes`.

    `by_size` says how large a batch may be.
    """
    batches: list[NDArray[np.int64]] = []
    batch: list[int] = []
    largest = 0
    for bag, size in enumerate(sizes.tolist()):
        # All bags of a batch are padded to the size of its largest one.
        instances_with_bag = (len(batch) + 1) * max(largest, size)
        has_room = len(batch) < most_bags and instances_with_bag <= most_instances
        if batch and not has_room:
            batches.append(np.array(batch))
            batch = []
            largest = 0
        batch.append(bag)
        largest = max(largest, size)
    if batch:
        batches.append(np.array(batch))
    return batches


class TableBags(Task):
    """Base class of tasks on a user's table of bags.

    A subclass loads the bags, and reads new ones for a trained network.
    """

    # `Task` says what these attributes mean and when to change them.
    primary = "set_error"
    revision = 2
    added = TableOptions.added
    Options: ClassVar[type[TableOptions]]
    """The parameters of the constructor."""
    options: TableOptions

    def __init__(self, **options: Any) -> None:
        self.options = self.Options(**options)
        self.is_tested = self.options.test > 0

    def own_bags(self, data_dir: Path | None) -> OwnBags:
        """Return the bags of the table, which are packed first if they are not packed yet.

        Raises UsageError where the table is not found or cannot be read.
        """
        return load_bags(find_file(self.options.table, data_dir, "task.table"), self.options)

    def check_data(self, data_dir: Path | None) -> str:
        """Check the bags, and return the line that stands for them in the ids of cells.

        It has the name of the table, its counts and a digest. Raises UsageError for unusable bags.
        """
        bags = self.own_bags(data_dir)
        # A quick check does not read all instances again. It finds all faults, and only leaves out
        # some warnings, which do not stop training.
        faults = fatal(check_bags(bags, self.options, quick=True))
        if faults:
            raise UsageError(f"{bags.path}: {faults[0]}")
        # Raises UsageError where the bags cannot be split. The split itself is not needed now.
        split_bags(bags, self.options, seed=0)
        if self.options.kind == "features":
            counts = f"{len(bags):,} bags, {bags.store.offsets[-1]:,} instances"
        else:
            # A bag is an image or a sequence: the kind is "images" or "sequences".
            counts = f"{len(bags):,} {self.options.kind}"
        digest = bags.digest
        content_of_splits = b"".join(path.read_bytes() for path in split_files(bags, self.options))
        if content_of_splits:
            digest = hashlib.sha256(bags.digest.encode() + content_of_splits).hexdigest()
        return f"{bags.path.name}: {counts}, {len(bags.class_names)} classes, sha256 {digest[:16]}"

    def folds(self, data_dir: Path | None) -> Folds | None:
        if not self.options.folds and not self.options.splits:
            return None
        folds = count_folds(self.own_bags(data_dir), self.options)
        if folds is None:
            # A single split in the files of splits is not cross-validation.
            return None
        count, repeats = folds
        return Folds(count, repeats)

    def overlap(self, data_dir: Path | None) -> float:
        # The number of test bags for each training bag. Nadeau and Bengio's correction for
        # overlapping training sets needs it, see `Task.overlap`.
        return mean_overlap(self.own_bags(data_dir), self.options)

    def remarks(self, data_dir: Path | None, seeds: Sequence[int]) -> list[str]:
        bags = self.own_bags(data_dir)
        splits = checked_splits(bags, self.options, seeds)
        findings = check_bags(bags, self.options, quick=True, splits=splits)
        warnings = [finding for finding in findings if finding.level == "warning"]
        return [f"{bags.path.name}: {warning.what}: {warning.detail}" for warning in warnings]

    def format_from(self, memory: Mapping[str, Any]) -> BagFormat:
        # `memory` is what `TableFormat.memory` returned when the network was trained. It is stored
        # with the network.
        return TableFormat(int(memory["inputs"]), class_names_in(memory))

    def split(self, bags: OwnBags, seed: int) -> BagSplit:
        """Split bags by the table, the folds or the seed.

        Raises UsageError where no bag is left to train or test on.
        """
        split = self.kept(bags, split_bags(bags, self.options, seed))
        counts = {"train": len(split.train)}
        if self.is_tested:
            counts["test"] = len(split.test)
        for part, count in counts.items():
            if count == 0:
                raise UsageError(f"{bags.path}: no bag is left to {part} on")
        return split

    def kept(self, bags: OwnBags, split: BagSplit) -> BagSplit:  # noqa: ARG002
        """Return a split without the bags that the task leaves out; by default it keeps all."""
        return split


@dataclass(frozen=True)
class TableFormat(BagFormat):
    """The format of the bags of a table, which a trained network remembers with its classes."""

    def memory(self) -> dict[str, Any]:
        return {"classes": list(self.class_names), "inputs": self.inputs}


def class_names_in(memory: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the classes from what `TableFormat.memory` returned."""
    return tuple(str(name) for name in memory["classes"])


class Origins:
    """Says where bags come from: their indices in the table, and the indices of their groups."""

    def __init__(self, bags: OwnBags) -> None:
        self._groups: Tensor | None = None
        if bags.groups is not None:
            _, groups = np.unique(bags.groups, return_inverse=True)
            self._groups = torch.from_numpy(groups.astype(np.int64))

    def of(self, numbers: NDArray[np.int64]) -> Origin:
        """Return the origin of bags with these indices (B,) in the table."""
        bags = torch.from_numpy(numbers)
        groups = None
        if self._groups is not None:
            groups = self._groups[bags]
        return Origin(bags, groups)
