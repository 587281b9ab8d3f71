"""Bags of feature vectors from one's own table: a row an instance, or a row a bag and a file of features."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from milbench._utils.seeding import generator
from milbench.api.bags import Bags, NamedBags, Origin, Truth, pad_bags
from milbench.api.network import Network, NetworkMaker
from milbench.api.recipe import Recipe
from milbench.api.task import Evaluation, ScoreFunction
from milbench.data.bag_files import COORDINATES
from milbench.data.bags_store import single
from milbench.data.new_bags import finite_features, new_bags
from milbench.data.table_options import FeatureOptions
from milbench.errors import UsageError
from milbench.evaluation.baseline import MOST_BAGS, baseline_metrics, pool
from milbench.evaluation.evaluate import EvalSplit
from milbench.families.fixed_bags import Lazy, differing
from milbench.families.table_bags import TableBags, by_size, consecutive_batches
from milbench.networks.instance import InstanceMLP
from milbench.networks.standardise import StandardiseFeatures

_EVAL_BATCH = 64
_GALLERY = 8
_GALLERY_NUMBERS = 1 << 24
"""Features in all bags of a gallery, 64 MB; a single bag may have more."""


class FeatureBags(TableBags):
    """Find the classes of bags of feature vectors, one's own, given the label sets of training bags.

    The table is a file .csv, .tsv or .parquet. It has a row an instance with the columns `bag`,
    `labels` (classes with ";" between them, empty for none, the same in all rows of a bag) and features; or a row a bag
    and a file of its features (instances by features: .npy, .npz, .h5, .safetensors, or .pt with tensors). Instances
    are packed once into a cache beside the table and mapped, or mapped where they lie if all files are .npy.
    Where it has them, these columns are used: `instance_label` (a class, empty for background), to evaluate on and
    never to train on; `group` (such as a patient), whose bags stay together in a split; `split` (train, validation,
    test). Features are standardised with the mean and the standard deviation of the training instances.

    Without a column `split` a seed draws a split, stratified by label set, the same for every loss; or bags are in
    `folds`, and seed s tests on fold s % folds of repetition s // folds. Where no bags are held out for validation, the
    threshold of a loss's label sets is fitted on training bags.

    Its parameters are described with `milbench.data.table_options.FeatureOptions` and the classes that it extends.
    """

    name = "feature-bags"
    Options = FeatureOptions
    options: FeatureOptions
    networks: ClassVar[Mapping[str, NetworkMaker]] = {"mlp": InstanceMLP}

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.batch_instances = self.options.batch_instances
        self.instances = self.options.instances
        self.leaves_out_small = self.options.small_bags == "leave-out"

    def check_data(self, data_dir: Path | None) -> str:
        caption = super().check_data(data_dir)
        if self.instances:
            most = int(self.own_bags(data_dir).labels.sum(axis=1).max())
            if self.instances < most:
                raise UsageError(
                    f"{self.name}: task.instances={self.instances} are fewer than the {most} classes of a bag"
                )
            caption += (
                f"; {self.instances:,} instances of a bag a step, label sets hold for the whole bag"
            )
        return caption

    def prepare(self, data_dir: Path | None, device: torch.device) -> None:
        self._own = self.own_bags(data_dir)
        store = self._own.store
        split = self.split_bags(self._own)
        sizes = store.sizes[split.train]
        if self.instances:
            sizes = np.minimum(sizes, self.instances)
        self.typical_size = (max(1, round(float(sizes.mean()))),)
        self.batch_bags = max(1, min(self.batch_bags, self.batch_instances // int(sizes.max())))
        self._device = device
        self._feature_names = self._own.feature_names
        self.inputs = len(self._feature_names)
        mean, spread = store.standard(split.train)
        self._standard = torch.from_numpy(mean), torch.from_numpy(spread)
        self._labels = torch.from_numpy(self._own.labels)
        self.eval_splits = {
            part: EvalSplit(self._single_instances(bags), self._batches(self._limited(bags)))
            for part, bags in split.evaluated.items()
        }
        self.calibration = (
            None if len(split.validation) else self._batches(self._limited(split.train))
        )

    def evaluate(self, score: ScoreFunction) -> Evaluation:
        """Return the metrics of a loss, and beside them those of a simple baseline on the same bags."""
        evaluation = super().evaluate(score)
        if evaluation.predictions is None:
            return evaluation
        # These metrics depend on the bags alone, and not on the network: they are kept beside its predictions.
        known = {**evaluation.predictions.known, **self._baseline}
        return replace(
            evaluation,
            metrics={**evaluation.metrics, **self._baseline},
            predictions=replace(evaluation.predictions, known=known),
        )

    @cached_property
    def _baseline(self) -> dict[str, float]:
        """The metrics of pooled features with extra trees; none without test bags, or with too many to train on."""
        split = self._split
        if not len(split.test) or len(split.train) > MOST_BAGS:
            return {}
        parts = {str(part): bags for part, bags in split.evaluated.items()}
        if "validation" not in parts:
            # As for a loss, the threshold is then chosen on training bags.
            parts["calibration"] = split.train
        evaluated = {part: self._pooled(self._limited(bags)) for part, bags in parts.items()}
        return baseline_metrics(self._pooled(split.train), evaluated, self.seed)

    def _pooled(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Return pooled features and label sets of bags."""
        rows = [pool(self._own.store.single(bag)) for bag in numbers.tolist()]
        return np.stack(rows), self._own.labels[numbers]

    def training_batch(self, numbers: Tensor, rng: torch.Generator) -> Bags:
        return self._filled(self._split.train[numbers.numpy()], rng)

    def standardise(self) -> StandardiseFeatures:
        return StandardiseFeatures(*self._standard)

    def recipe(self) -> Recipe:
        """Return one-cycle AdamW, between settings that were tried with exact; the spec `classic` says on what."""
        return Recipe(lr=1e-3, weight_decay=1.0, epochs=40, evaluate_every=40, precision="float32")

    def memory(self) -> dict[str, Any]:
        return {**super().memory(), "features": list(self._feature_names)}

    def recall(self, memory: Mapping[str, Any]) -> None:
        super().recall(memory)
        self._feature_names = [str(name) for name in memory["features"]]
        # The weights of the cell replace these.
        self._standard = torch.zeros(self.inputs), torch.ones(self.inputs)

    def read_bags(self, paths: Sequence[Path], network: Network) -> Iterator[NamedBags]:  # noqa: ARG002
        new = [*new_bags(paths, self.options, self._feature_names).items()]
        sizes = np.array([file.shape[0] for _, file in new])
        for numbers in consecutive_batches(sizes, _EVAL_BATCH, self.batch_instances):
            names, files = zip(*(new[number] for number in numbers), strict=True)
            instances, mask = pad_bags(
                [finite_features(name, file) for name, file in zip(names, files, strict=True)]
            )
            labels = torch.zeros(len(names), self.num_classes, dtype=torch.bool)
            places = {"instance": torch.arange(mask.shape[1]).expand(mask.shape)}
            if all(COORDINATES in file.named for file in files):
                plane, _ = pad_bags([file.named[COORDINATES]() for file in files])
                places |= {"x": plane[..., 0].float(), "y": plane[..., 1].float()}
            bags = Bags(instances, labels, None if bool(mask.all()) else mask)
            yield NamedBags(self.options.bag, list(names), bags, places)

    def _limited(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return as many bags as an evaluation may have, drawn from all: the first batches have the smallest bags."""
        if self.evaluation_limit is None:
            return numbers
        drawn = torch.randperm(
            len(numbers), generator=generator(self.name, "limited", len(numbers))
        )
        return np.asarray(numbers[drawn[: self.evaluation_limit].sort().values.numpy()])

    def gallery(self) -> Bags:
        """Return bags that differ, as many as are no more numbers than a gallery keeps, and one at least."""
        bags_of = self._split.test if self.is_tested else self._split.train
        shown = bags_of[differing(self._labels[bags_of], _GALLERY).numpy()]
        sizes = self._own.store.sizes[shown]
        fits = (
            np.arange(1, len(sizes) + 1) * np.maximum.accumulate(sizes) * self._own.store.width
            <= _GALLERY_NUMBERS
        )
        numbers = shown[: max(1, int(fits.sum()))]
        bags = self.bags(numbers)
        if self._own.coords is None:
            return bags
        coords = pad_sequence(self._rows(self._own.coords, numbers), batch_first=True)
        return replace(bags, coords=coords.to(self._device))

    def bags(self, numbers: NDArray[np.int64]) -> Bags:
        """Return bags of the table, by their numbers (B,), as one batch, the smaller ones masked."""
        origin = self.origin_of(numbers).to(self._device)
        bags = replace(self._filled(numbers), origin=origin)
        if self._own.instance_classes is None:
            return bags
        rows = self._rows(self._own.instance_classes, numbers)
        classes = pad_sequence(rows, batch_first=True, padding_value=self.num_classes).to(
            self._device
        )
        return replace(
            bags,
            truth=Truth(
                classes.masked_fill(classes == self.num_classes, -1), position_classes=classes
            ),
        )

    def _rows(self, values: NDArray[Any], numbers: NDArray[np.int64]) -> list[Tensor]:
        """Return the values (N, ...) of the instances of each bag."""
        offsets = self._own.store.offsets
        return [torch.from_numpy(np.array(values[offsets[b] : offsets[b + 1]])) for b in numbers]

    def _filled(self, numbers: NDArray[np.int64], rng: torch.Generator | None = None) -> Bags:
        """Return bags without truth, with as many of their instances as training takes if these are drawn by `rng`."""
        store = self._own.store
        sizes = store.sizes[numbers]
        is_sample = rng is not None and self.instances > 0
        if is_sample:
            sizes = np.minimum(sizes, self.instances)
        instances = torch.empty(len(numbers), int(sizes.max()), store.width)
        for padded, number, size in zip(
            instances.numpy(), numbers.tolist(), sizes.tolist(), strict=True
        ):
            sample = None
            if is_sample and size < store.sizes[number]:
                drawn = torch.randperm(int(store.sizes[number]), generator=rng)[:size]
                sample = drawn.sort().values.numpy()
            store.copy(number, padded[:size], sample)
            padded[size:] = 0
        mask = torch.arange(instances.shape[1]) < torch.from_numpy(sizes).unsqueeze(1)
        labels = self._labels[torch.from_numpy(numbers)]
        return Bags(instances, labels, None if bool(mask.all()) else mask).to(self._device)

    def _batches(self, numbers: NDArray[np.int64]) -> Lazy[Bags]:
        return Lazy(
            by_size(numbers, self._own.store.sizes, _EVAL_BATCH, self.batch_instances), self.bags
        )

    def _single_instances(self, numbers: NDArray[np.int64]) -> Sequence[Bags]:
        """Return the instances of known class, background left out, as bags of one instance."""
        store = self._own.store
        classes = self._own.instance_classes
        packed = store.packed
        if classes is None or packed is None:
            return ()
        rows = np.concatenate([np.arange(store.offsets[b], store.offsets[b + 1]) for b in numbers])
        rows = rows[classes[rows] < self.num_classes]

        def single_instances(rows: NDArray[np.int64]) -> Bags:
            instances = torch.from_numpy(single(packed[rows], store.dtype)).unsqueeze(1)
            one_hot = torch.nn.functional.one_hot(torch.from_numpy(classes[rows]), self.num_classes)
            # Instances of one bag belong together, as do bags of one group.
            of_bags = self.origin_of(np.searchsorted(store.offsets, rows, side="right") - 1)
            group = of_bags.bag if of_bags.group is None else of_bags.group
            origin = Origin(torch.from_numpy(rows), group)
            return Bags(instances, one_hot.bool(), origin=origin).to(self._device)

        return Lazy.of(rows, self.batch_instances, single_instances)
