"""Bags of feature vectors from one's own table: a row an instance, or a row a bag and a file of features."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from milbench._utils.seeding import generator
from milbench.api.bags import Bags, Truth
from milbench.api.named_bags import NamedBags
from milbench.api.recipe import Recipe
from milbench.api.task import Evaluation, Network, ScoreFunction, Split
from milbench.data.tables.bag_table import BagTable, Columns, load_bag_table
from milbench.data.tables.checks import check_bags, fatal
from milbench.data.tables.new_bags import load_new_bags
from milbench.errors import UsageError
from milbench.evaluation.evaluate import EvalSplit, evaluate_bags
from milbench.families.table_bags import Count, FoldCount, Share, TableBags, TestShare
from milbench.likelihood import EXACT_LABEL_LIMIT
from milbench.networks.instance import InstanceMLP

_EVAL_BATCH = 64
_GALLERY = 8


class FeatureBags(TableBags):
    """Find the classes of bags of feature vectors, one's own, given the label sets of training bags.

    The table is a file .csv, .tsv, .parquet, .arrow or .feather. It has a row an instance with the columns `bag`,
    `labels` (classes with ";" between them, empty for none, the same in all rows of a bag) and features; or a row a bag
    and a column with the path of a file of features (instances by features: .npy, .npz, .h5, or .pt with tensors).
    Where it has them, these columns are used: `instance_label` (a class, empty for background), to evaluate on and
    never to train on; `group` (such as a patient), whose bags stay together in a split; `split` (train, validation,
    test). Features are standardised with the mean and the standard deviation of the training instances.

    Without a column `split` a seed draws a split, stratified by label set, the same for every loss; or bags are in
    `folds`, and seed s tests on fold s % folds of repetition s // folds. Where no bags are held out for validation, the
    threshold of a loss's label sets is fitted on training bags.

    Args:
        table: path of the table, from the current folder or the folder of the data.
        bag: the column of the names of bags.
        labels: the column of label sets; or a pattern such as "has_*", or a list with ";", of columns with 0 and 1.
        features: the columns of features as a pattern or list; "": all other columns that hold numbers; "@file": the
            column `file` has paths of files with features, from the folder of the table.
        classes: the classes in their order, with ";" between them; "": those that occur, sorted.
        key: of the features in files that hold several arrays.
        folds: the number of folds; 0: none.
        repeats: how often the bags are put into folds.
        folds_file: a JSON file, beside the table: repetitions, each a list of folds, each a list of test bags. "*" in
            it stands for the name of the table, as in "*.folds.json".
        test: the share of the bags to test on, where a seed draws the split.
        validation: the share of the bags to validate on, where neither the table nor folds say; with folds the share
            of all bags, from those that are not tested on.
        hidden: the width of each hidden layer of the network, which is the same for every instance.
        layers: the number of hidden layers.
        batch_bags: the number of bags in a training batch.
    """

    name = "feature-bags"

    def __init__(
        self,
        table: str,
        bag: str = "bag",
        labels: str = "labels",
        features: str = "",
        classes: str = "",
        key: str = "",
        folds: FoldCount = 0,
        repeats: Count = 1,
        folds_file: str = "",
        test: TestShare = 0.2,
        validation: Share = 0.1,
        hidden: Count = 64,
        layers: Annotated[int, Field(ge=0)] = 1,
        batch_bags: Count = 8,
    ) -> None:
        super().__init__(table, folds, repeats, folds_file, test, validation, batch_bags)
        self.columns = Columns(bag, labels, features, classes, key)
        self.hidden = [hidden] * layers

    def read_table(self, data_dir: Path | None) -> BagTable:
        return load_bag_table(self.found(self.table, data_dir), self.columns)

    def check_data(self, data_dir: Path | None) -> str:
        """Return the name of the table with what it holds and a digest; raise UsageError for bags that are no use."""
        table = self.read_table(data_dir)
        for problem in fatal(check_bags(table, EXACT_LABEL_LIMIT)):
            raise UsageError(f"{table.path}: {problem}")
        digest = self.with_folds(table, table.digest)
        counts = f"{len(table):,} bags, {len(table.features):,} instances, {len(table.class_names)} classes"
        return f"{table.path.name}: {counts}, sha256 {digest[:16]}"

    def prepare(self, data_dir: Path | None, device: torch.device) -> None:
        """Read the table and split its bags by the seed."""
        self._table = table = self.read_table(data_dir)
        split = self.split_bags(table)
        self.positions = max(1, round(float(table.sizes[split.train].mean())))
        self._device = device
        self._features = torch.from_numpy(table.features)
        self._feature_names = table.feature_names
        trained_on = self._features[self._rows(split.train)].double()
        self._standard = trained_on.mean(dim=0), trained_on.std(dim=0, unbiased=False)
        self._labels = torch.from_numpy(table.labels)
        parts: dict[Split, NDArray[np.int64]] = {"validation": split.validation, "test": split.test}
        self._evaluated: dict[Split, NDArray[np.int64]] = {part: bags for part, bags in parts.items() if len(bags)}
        self._eval_splits = {part: self._eval_split(bags) for part, bags in self._evaluated.items()}
        self._calibrated_on = None if len(split.validation) else split.train
        self._calibration = None if len(split.validation) else self._batches(split.train)

    def train_batches(self, epoch: int, rng: torch.Generator) -> Iterator[Bags]:  # noqa: ARG002
        """Yield the training bags in random order."""
        for numbers in self.shuffled(rng):
            yield replace(self.bags(numbers), truth=None)

    def network(self, seed: int) -> Network:
        """Return a perceptron, the same for every instance, on features standardised by those of training bags."""
        widths = (len(self._feature_names), *self.hidden, self.num_classes + 1)
        return InstanceMLP(widths, seed, *self._standard)

    def recipe(self) -> Recipe:
        """Return one-cycle AdamW, between settings that were tried with exact; the spec `classic` says on what."""
        return Recipe(lr=1e-3, weight_decay=1.0, epochs=40, evaluate_every=40, precision="float32")

    def memory(self) -> dict[str, Any]:
        """Return the classes and the names of the features; what standardises these is among the weights."""
        return {**super().memory(), "features": self._feature_names}

    def recall(self, memory: Mapping[str, Any]) -> None:
        """Set the classes and the names of the features."""
        super().recall(memory)
        self._feature_names = [str(name) for name in memory["features"]]
        features = len(self._feature_names)
        self._standard = torch.zeros(features), torch.ones(features)  # the weights of the run replace these

    def read_bags(self, paths: Sequence[Path], network: Network) -> Iterator[NamedBags]:  # noqa: ARG002
        """Yield the bags of tables and of files of features; instances are counted from 0 in each bag."""
        found = load_new_bags(paths, self.columns, self._feature_names)
        for start in range(0, len(found), _EVAL_BATCH):
            some = found[start : start + _EVAL_BATCH]
            sizes = torch.tensor([len(bag.features) for bag in some])
            mask = torch.arange(int(sizes.max())) < sizes.unsqueeze(1)
            parts = [torch.from_numpy(bag.features) for bag in some]
            instances = torch.nn.utils.rnn.pad_sequence(parts, batch_first=True)
            labels = torch.zeros(len(some), self.num_classes, dtype=torch.bool)
            places = {"instance": torch.arange(mask.shape[1]).expand(mask.shape)}
            bags = Bags(instances, labels, None if bool(mask.all()) else mask)
            yield NamedBags(self.columns.bag, [bag.name for bag in some], bags, places)

    def evaluate(self, score: ScoreFunction) -> Evaluation:
        """Return the metrics of label sets, and those of instances where the table has their classes."""
        splits, calibration = self._eval_splits, self._calibration
        if self.evaluation_limit is not None:  # the first batches have the smallest bags
            kept = {part: self._batches(self._some(bags)) for part, bags in self._evaluated.items()}
            splits = {part: EvalSplit(splits[part].single_instance, bags) for part, bags in kept.items()}
            calibration = None if self._calibrated_on is None else self._batches(self._some(self._calibrated_on))
        return evaluate_bags(score, splits, calibration, limit=self.evaluation_limit)

    def _some(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return as many bags as the limit of an evaluation allows, drawn from all of them, always the same ones."""
        drawn = torch.randperm(len(numbers), generator=generator(self.name, "limited", len(numbers)))
        kept: NDArray[np.int64] = numbers[drawn[: self.evaluation_limit].sort().values.numpy()]
        return kept

    def gallery(self) -> Bags:
        """Return the first test bags."""
        return self.bags(self._split.test[:_GALLERY])

    def bags(self, numbers: NDArray[np.int64]) -> Bags:
        """Return bags of the table as one batch, those with fewer instances than the largest masked.

        Args:
            numbers: (B,) of the bags, in the order of the table.
        """
        sizes = torch.from_numpy(self._table.sizes[numbers])
        mask = torch.arange(int(sizes.max())) < sizes.unsqueeze(1)
        rows = torch.zeros(mask.shape, dtype=torch.int64)
        rows[mask] = torch.from_numpy(self._rows(numbers))
        instances = self._features[rows] * mask.unsqueeze(2)
        labels = self._labels[torch.from_numpy(numbers)]
        truth = self._truth(rows, mask)
        whole = bool(mask.all())
        return Bags(instances, labels, None if whole else mask, truth).to(self._device)

    def _truth(self, rows: Tensor, mask: Tensor) -> Truth | None:
        """Return the classes of instances, None where the table does not have them."""
        if self._table.instance_classes is None:
            return None
        known = torch.from_numpy(self._table.instance_classes)[rows].masked_fill(~mask, self.num_classes)
        return Truth(known.masked_fill(known == self.num_classes, -1), position_classes=known)

    def _rows(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the instances of some bags, one bag after the other."""
        starts = self._table.starts
        return np.concatenate([np.arange(starts[b], starts[b + 1]) for b in numbers])

    def _batches(self, numbers: NDArray[np.int64]) -> list[Bags]:
        """Return bags in batches of about equal size, so that little of them is masked."""
        ordered = numbers[np.argsort(self._table.sizes[numbers], kind="stable")]
        return [self.bags(ordered[start : start + _EVAL_BATCH]) for start in range(0, len(ordered), _EVAL_BATCH)]

    def _eval_split(self, numbers: NDArray[np.int64]) -> EvalSplit:
        bags = self._batches(numbers)
        return EvalSplit(self._lone(numbers), bags)

    def _lone(self, numbers: NDArray[np.int64]) -> Sequence[Bags]:
        """Return the instances of known class, background left out, as bags of one instance."""
        if self._table.instance_classes is None:
            return ()
        rows = self._rows(numbers)
        classes = torch.from_numpy(self._table.instance_classes[rows])
        kept = classes < self.num_classes
        if not kept.any():
            return ()
        instances = self._features[torch.from_numpy(rows)[kept]].unsqueeze(1)
        labels = torch.nn.functional.one_hot(classes[kept], self.num_classes).bool()
        return [Bags(instances, labels).to(self._device)]
