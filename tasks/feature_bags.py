"""A task for bags of feature vectors of your own, which a table describes.

The table has a row for each instance; or it has a row for each bag, and each bag has a file.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from milbench._utils.seeding import generator
from milbench.contracts.bags import Bags, NamedBags, Origin, Truth, pad_bags
from milbench.contracts.network import Network, NetworkMaker
from milbench.contracts.problem import BagFormat, EvalSplit, Evaluation, ScoreFunction
from milbench.contracts.recipe import Recipe
from milbench.contracts.task import CPU
from milbench.data.bag_files import COORDINATES, BagFile
from milbench.data.bags_store import to_single_precision
from milbench.data.new_bags import finite_features, new_bags
from milbench.data.own_bags import OwnBags
from milbench.data.splits import BagSplit
from milbench.data.table_options import FeatureOptions
from milbench.errors import UsageError
from milbench.evaluation.baseline import MOST_BAGS, baseline_metrics, pool
from milbench.families.fixed_bags import FixedBags, Lazy, differing
from milbench.families.table_bags import (
    Origins,
    TableBags,
    TableFormat,
    by_size,
    class_names_in,
    consecutive_batches,
)
from milbench.networks.instance import InstanceMLP
from milbench.networks.standardise import StandardiseFeatures

_EVAL_BATCH = 64
"""The largest number of bags in a batch to evaluate on."""
_GALLERY = 8
"""The largest number of bags in a gallery."""
_GALLERY_VALUES = 1 << 24
"""The largest number of values in the bags of a gallery, 64 MB. One bag alone may have more."""


class FeatureBags(TableBags):
    """Find which classes occur in bags of your own feature vectors, trained from label sets alone.

    The table is a file .csv, .tsv or .parquet, in one of two forms. It has a row for each instance,
    with the columns `bag`, `labels` (classes with ";" between them, empty for none, the same in all
    rows of a bag) and the features. Or it has a row for each bag, and the features of each bag are
    in a file of their own (an array of instances by features: .npy, .npz, .h5, .safetensors, or .pt
    with tensors).

    Three more columns are used if the table has them: `instance_label` (a class, empty for
    background), to evaluate on and never to train on; `group` (such as a patient), whose bags stay
    in one part of a split; `split` (train, validation, test). Without a column `split`, the seed
    splits the bags, stratified by label set, the same for every loss. With `folds`, seed s tests on
    fold s % folds of repetition s // folds. If no bags are held out for validation, the threshold
    by which label sets are predicted is chosen on training bags.

    Features are standardised with the mean and the standard deviation of the training instances.
    Instances are packed once into a cache beside the table, from which they are mapped into memory.
    If all files are .npy, they are mapped without a cache.

    Its parameters are described with `milbench.data.table_options.FeatureOptions` and the classes
    that it extends.
    """

    name = "feature-bags"
    Options = FeatureOptions
    options: FeatureOptions
    networks: ClassVar[Mapping[str, NetworkMaker]] = {"mlp": InstanceMLP}

    def kept(self, bags: OwnBags, split: BagSplit) -> BagSplit:
        if self.options.small_bags == "refuse":
            return split
        has_enough_instances = bags.store.sizes >= bags.labels.sum(axis=1)
        return BagSplit(
            train=split.train[has_enough_instances[split.train]],
            validation=split.validation[has_enough_instances[split.validation]],
            test=split.test[has_enough_instances[split.test]],
        )

    def check_data(self, data_dir: Path | None) -> str:
        caption = super().check_data(data_dir)
        instances = self.options.instances
        if not instances:
            return caption
        most_classes = int(self.own_bags(data_dir).labels.sum(axis=1).max())
        if instances < most_classes:
            raise UsageError(
                f"{self.name}: task.instances={instances} are fewer "
                f"than the {most_classes} classes of a bag"
            )
        return (
            f"{caption}; {instances:,} instances of a bag a step, label sets hold for the whole bag"
        )

    def recipe(self) -> Recipe:
        """Return a one-cycle schedule with AdamW.

        Its settings lie between those that were tried; the spec `classic` says on which bags.
        """
        return Recipe(lr=1e-3, weight_decay=1.0, epochs=40, evaluate_every=40, precision="float32")

    def format_from(self, memory: Mapping[str, Any]) -> "FeatureFormat":
        inputs = int(memory["inputs"])
        # Placeholders: a saved network brings its own mean and standard deviation.
        standardise = partial(StandardiseFeatures, torch.zeros(inputs), torch.ones(inputs))
        feature_names = tuple(str(name) for name in memory["features"])
        return FeatureFormat(
            inputs=inputs,
            class_names=class_names_in(memory),
            standardise=standardise,
            feature_names=feature_names,
        )

    def load(
        self,
        data_dir: Path | None = None,
        seed: int = 0,
        device: torch.device = CPU,
        limit: int | None = None,
    ) -> "FeatureProblem":
        table = self.own_bags(data_dir)
        split = self.split(table, seed)
        bags = TableFeatures(table, self.options, device)
        bag_format = _format_of(table, split.train)
        sizes = bags.sizes_in_training(split.train)
        mean_size = max(1, round(float(sizes.mean())))
        # How many bags fit into a batch if all are padded to the size of the largest one.
        fitting = self.options.batch_instances // int(sizes.max())
        batch_bags = max(1, min(self.options.batch_bags, fitting))

        def make_batch(numbers: Tensor, rng: torch.Generator) -> Bags:
            return bags.to_train(split.train[numbers.numpy()], rng)

        splits = {}
        for part, numbers in split.evaluated.items():
            batches = bags.batches(_limited(numbers, limit))
            splits[part] = EvalSplit(bags.single_instances(numbers), batches)
        calibration = None
        if not len(split.validation):
            # Thresholds are then chosen on training bags.
            calibration = bags.batches(_limited(split.train, limit))
        labels = torch.from_numpy(table.labels[split.train])
        return FeatureProblem(
            task_name=self.name,
            seed=seed,
            format=bag_format,
            typical_shape=(mean_size, bag_format.inputs),
            batch_bags=batch_bags,
            splits=splits,
            max_labels=int(labels.sum(dim=1).max()),
            training_count=len(split.train),
            make_batch=make_batch,
            prefetches=True,
            calibration=calibration,
            training_labels=labels,
            limit=limit,
            bags=bags,
            split=split,
        )

    def read_bags(
        self,
        paths: Sequence[Path],
        bag_format: BagFormat,
        network: Network,  # noqa: ARG002
    ) -> Iterator[NamedBags]:
        # For mypy: `format_from` and `load` of this task always make such a format.
        assert isinstance(bag_format, FeatureFormat)  # noqa: S101
        file_of_bag = new_bags(paths, self.options, bag_format.feature_names)
        all_names = list(file_of_bag)
        sizes = np.array([file.shape[0] for file in file_of_bag.values()])
        for numbers in consecutive_batches(sizes, _EVAL_BATCH, self.options.batch_instances):
            names = [all_names[number] for number in numbers]
            features = [finite_features(name, file_of_bag[name]) for name in names]
            instances, mask = pad_bags(features)
            # A batch must have labels. Those of new bags are unknown, and nobody reads them.
            labels = torch.zeros(len(names), bag_format.num_classes, dtype=torch.bool)
            bags = Bags(instances, labels, None if bool(mask.all()) else mask)
            places = {"instance": torch.arange(mask.shape[1]).expand(mask.shape)}
            places |= _coordinates([file_of_bag[name] for name in names])
            yield NamedBags(self.options.bag, names, bags, places)


@dataclass(frozen=True, kw_only=True)
class FeatureFormat(TableFormat):
    """The format of bags of feature vectors, with the names of the features."""

    feature_names: tuple[str, ...]

    def memory(self) -> dict[str, Any]:
        remembered = super().memory()
        remembered["features"] = list(self.feature_names)
        return remembered


def _format_of(table: OwnBags, trained: NDArray[np.int64]) -> FeatureFormat:
    """Return the format of the bags of a table.

    Features are standardised by the mean and standard deviation of the bags in `trained`.
    """
    means, spreads = table.store.standard(trained)
    standardise = partial(StandardiseFeatures, torch.from_numpy(means), torch.from_numpy(spreads))
    return FeatureFormat(
        inputs=len(table.feature_names),
        class_names=tuple(table.class_names),
        standardise=standardise,
        feature_names=tuple(table.feature_names),
    )


def _coordinates(files: Sequence[BagFile]) -> dict[str, Tensor]:
    """Return x and y (B, K) of the instances of bags, or {} if any file has no coordinates."""
    have_coordinates = all(COORDINATES in file.named for file in files)
    if not have_coordinates:
        return {}
    plane, _ = pad_bags([file.named[COORDINATES]() for file in files])
    return {"x": plane[..., 0].float(), "y": plane[..., 1].float()}


@dataclass(kw_only=True, eq=False, repr=False)
class FeatureProblem(FixedBags):
    """Bags of feature vectors to train and to evaluate on."""

    bags: "TableFeatures"
    split: BagSplit

    def evaluate(self, score: ScoreFunction) -> Evaluation:
        """Return the metrics of a loss, with those of a simple baseline on the same bags."""
        evaluation = super().evaluate(score)
        if evaluation.predictions is None:
            return evaluation
        # The metrics of the baseline do not depend on the network. They are stored with its
        # predictions, so that metrics that are computed again include them.
        known = {**evaluation.predictions.known, **self._baseline}
        return replace(
            evaluation,
            metrics={**evaluation.metrics, **self._baseline},
            predictions=replace(evaluation.predictions, known=known),
        )

    @cached_property
    def _baseline(self) -> dict[str, float]:
        """The metrics of extra trees (a tree ensemble) on pooled features of each bag.

        {} if there are no test bags, or too many training bags to train trees on in little time.
        """
        split = self.split
        if not len(split.test) or len(split.train) > MOST_BAGS:
            return {}
        numbers_of_part = {str(part): numbers for part, numbers in split.evaluated.items()}
        if "validation" not in numbers_of_part:
            # Without validation bags the threshold is chosen on training bags, as for a loss.
            numbers_of_part["calibration"] = split.train
        evaluated = {}
        for part, numbers in numbers_of_part.items():
            evaluated[part] = self.bags.pooled(_limited(numbers, self.limit))
        return baseline_metrics(self.bags.pooled(split.train), evaluated, self.seed)

    def gallery(self) -> Bags:
        """Return some bags with different label sets, as many as a gallery has room for."""
        numbers = self.split.test if "test" in self.splits else self.split.train
        shown = differing(self.bags.labels[numbers], _GALLERY)
        return self.bags.to_show(numbers[shown.numpy()])


def _limited(numbers: NDArray[np.int64], limit: int | None) -> NDArray[np.int64]:
    """Return the numbers of at most `limit` of the bags, in their order; None: of all."""
    if limit is None:
        return numbers
    # A random sample: batches are ordered by size, so that the first would have only small bags.
    rng = generator(FeatureBags.name, "limited", len(numbers))
    sample = torch.randperm(len(numbers), generator=rng)[:limit]
    return np.asarray(numbers[sample.sort().values.numpy()])


class TableFeatures:
    """Makes batches of the bags of a table, by their numbers (B,), on a device."""

    def __init__(self, table: OwnBags, options: FeatureOptions, device: torch.device) -> None:
        self.labels = torch.from_numpy(table.labels)
        self._table = table
        self._options = options
        self._device = device
        self._origins = Origins(table)
        self._background = len(table.class_names)

    def sizes_in_training(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return (B,), how many instances of each bag a training step takes."""
        sizes: NDArray[np.int64] = self._table.store.sizes[numbers]
        most = self._options.instances
        if not most:
            return sizes
        return np.minimum(sizes, most)

    def to_train(self, numbers: NDArray[np.int64], rng: torch.Generator) -> Bags:
        """Return bags to train on, without truth.

        Of a bag larger than the option `instances`, `rng` chooses which instances are taken.
        """
        samples = [self._sample(size, rng) for size in self._table.store.sizes[numbers].tolist()]
        return self._filled(numbers, self.sizes_in_training(numbers), samples)

    def _sample(self, size: int, rng: torch.Generator) -> NDArray[np.int64] | None:
        """Return which instances of a bag a training step takes, ascending; None: all of them."""
        most = self._options.instances
        if not most or size <= most:
            return None
        sample = torch.randperm(size, generator=rng)[:most]
        ascending: NDArray[np.int64] = sample.sort().values.numpy()
        return ascending

    def whole(self, numbers: NDArray[np.int64]) -> Bags:
        """Return bags with all of their instances, their origin, and the truth if it is known."""
        sizes = self._table.store.sizes[numbers]
        bags = self._filled(numbers, sizes, [None] * len(numbers))
        bags = replace(bags, origin=self._origins.of(numbers).to(self._device))
        if self._table.instance_classes is None:
            return bags
        classes_of_bags = self._rows(self._table.instance_classes, numbers)
        classes = pad_sequence(classes_of_bags, batch_first=True, padding_value=self._background)
        classes = classes.to(self._device)
        things = classes.masked_fill(classes == self._background, -1)
        return replace(bags, truth=Truth(things, position_classes=classes))

    def batches(self, numbers: NDArray[np.int64]) -> Lazy[Bags]:
        """Return whole bags in batches to evaluate on."""
        sizes = self._table.store.sizes
        numbers_of_batches = by_size(numbers, sizes, _EVAL_BATCH, self._options.batch_instances)
        return Lazy(numbers_of_batches, self.whole)

    def to_show(self, numbers: NDArray[np.int64]) -> Bags:
        """Return bags for a gallery, with their coordinates if these are known.

        They are the first of the bags with these numbers: as many as a gallery has room for, and at
        least one.
        """
        store = self._table.store
        sizes = store.sizes[numbers]
        # How many values the first 1, 2, ... bags have, if all are padded to the largest of them.
        counts = np.arange(1, len(sizes) + 1)
        largest = np.maximum.accumulate(sizes)
        padded = counts * largest * store.width
        fitting = int((padded <= _GALLERY_VALUES).sum())
        shown = numbers[: max(1, fitting)]
        bags = self.whole(shown)
        if self._table.coords is None:
            return bags
        coords = pad_sequence(self._rows(self._table.coords, shown), batch_first=True)
        return replace(bags, coords=coords.to(self._device))

    def pooled(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Return the features of each bag, pooled over its instances, and its label set."""
        rows = [pool(self._table.store.single(bag)) for bag in numbers.tolist()]
        return np.stack(rows), self._table.labels[numbers]

    def single_instances(self, numbers: NDArray[np.int64]) -> Sequence[Bags]:
        """Return batches of bags of one instance: all instances of known class but background."""
        store = self._table.store
        classes = self._table.instance_classes
        packed = store.packed
        if classes is None or packed is None:
            return ()
        rows_of_bags = [np.arange(store.offsets[bag], store.offsets[bag + 1]) for bag in numbers]
        rows = np.concatenate(rows_of_bags)
        rows = rows[classes[rows] < self._background]

        def as_bags(rows: NDArray[np.int64]) -> Bags:
            features = to_single_precision(packed[rows], store.dtype)
            instances = torch.from_numpy(features).unsqueeze(1)
            classes_of_rows = torch.from_numpy(classes[rows])
            labels = torch.nn.functional.one_hot(classes_of_rows, self._background).bool()
            return Bags(instances, labels, origin=self._origin_of_rows(rows)).to(self._device)

        return Lazy.of(rows, self._options.batch_instances, as_bags)

    def _origin_of_rows(self, rows: NDArray[np.int64]) -> Origin:
        """Return the origin of bags of one instance: the instance, and the group of its bag."""
        bag_of_row = np.searchsorted(self._table.store.offsets, rows, side="right") - 1
        origin = self._origins.of(bag_of_row)
        # Bags of one group belong together; without groups, the instances of one bag do.
        group = origin.bag if origin.group is None else origin.group
        return Origin(torch.from_numpy(rows), group)

    def _rows(self, values: NDArray[Any], numbers: NDArray[np.int64]) -> list[Tensor]:
        """Return the values (K, ...) of the instances of each bag."""
        offsets = self._table.store.offsets
        rows = []
        for bag in numbers:
            # A copy, since torch warns of arrays that cannot be written to.
            of_bag = np.array(values[offsets[bag] : offsets[bag + 1]])
            rows.append(torch.from_numpy(of_bag))
        return rows

    def _filled(
        self,
        numbers: NDArray[np.int64],
        sizes: NDArray[np.int64],
        samples: Sequence[NDArray[np.int64] | None],
    ) -> Bags:
        """Return one batch of bags, without truth, padded to the size of the largest.

        Args:
            numbers: (B,), of the bags.
            sizes: (B,), how many instances each bag gets.
            samples: which instances each bag gets; None: all of them.
        """
        store = self._table.store
        instances = torch.empty(len(numbers), int(sizes.max()), store.width)
        for padded, number, size, sample in zip(
            instances.numpy(), numbers.tolist(), sizes.tolist(), samples, strict=True
        ):
            store.copy(number, padded[:size], sample)
            padded[size:] = 0
        mask = torch.arange(instances.shape[1]) < torch.from_numpy(sizes).unsqueeze(1)
        labels = self.labels[torch.from_numpy(numbers)]
        return Bags(instances, labels, None if bool(mask.all()) else mask).to(self._device)
