"""Bags whose positions are in time: sequences of frames of one length or many, perhaps with events."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import ClassVar, Self

import torch
from torch import Tensor

from milbench.api.bags import Bags, Truth
from milbench.api.network import NetworkMaker
from milbench.api.recipe import Recipe
from milbench.api.task import Split
from milbench.evaluation.evaluate import EvalSplit
from milbench.families.fixed_bags import FixedBags, Lazy
from milbench.networks.sequence import SequenceConvolutional, SequenceGRU, pad_frames
from milbench.networks.standardise import divisors

EVAL_BAGS, GALLERY_BAGS = 250, 8
BATCH_FRAMES = 1 << 21
"""Frames in a batch, at most, where nothing else is asked for."""


@dataclass(frozen=True, slots=True)
class Sequences:
    """N sequences with their label sets.

    Args:
        frames: N tensors (F, T_i), F features in each of T_i frames, which may be read when they are accessed.
        lengths: the N numbers T_i.
        labels: (N, C) bool.
        truth: the events in the order in which they begin, with boxes (start, 0, end, F) in frames; None: not known.
    """

    frames: Sequence[Tensor]
    lengths: list[int]
    labels: Tensor
    truth: Truth | None = None

    def __len__(self) -> int:
        return len(self.frames)

    def __getitem__(self, index: slice | Tensor) -> Self:
        """Return the sequences of a slice, or those numbered by `index` (n,) int64."""
        which = torch.arange(len(self))[index]
        frames, lengths = ([values[i] for i in which.tolist()] for values in (self.frames, self.lengths))
        return type(self)(frames, lengths, self.labels[which], self.truth and self.truth.selected(which))

    def mean_and_divisor(self) -> tuple[Tensor, Tensor]:
        """Return mean (F, 1) and divisor (F, 1), by `divisors`, of each feature over all frames."""
        count = sum(self.lengths)
        mean = torch.stack([frames.double().sum(dim=1, keepdim=True) for frames in self.frames]).sum(dim=0) / count
        squares = torch.stack([(frames - mean).square().sum(dim=1, keepdim=True) for frames in self.frames]).sum(dim=0)
        return mean.float(), divisors(mean, (squares / count).sqrt()).float()


@dataclass(frozen=True, slots=True)
class SequenceSplits:
    """Sequences to train on, to validate on (none where it has the length 0) and to test on.

    `single` are sequences with one event each, perhaps none. `scale` is the mean (F, 1) and divisor (F, 1) of training
    frames; None: they are computed.
    """

    train: Sequences
    evaluated: Mapping[Split, Sequences]
    single: Mapping[Split, Sequences]
    scale: tuple[Tensor, Tensor] | None = None


class SequenceTask(FixedBags):
    """Base class of tasks with sequences; a subclass adds the sequences and sets `num_classes`.

    Features are standardised by the mean and the standard deviation of the training frames.

    Args:
        batch_bags: the number of sequences in a training batch.
        bags_per_epoch: how many training sequences an epoch has, cycling through all of them; None: each once.
        batch_instances: the most frames in a batch, padding counted, unless a single sequence has more.
    """

    bag_kind = "sequences"
    networks: ClassVar[Mapping[str, NetworkMaker]] = {"conv": SequenceConvolutional, "gru": SequenceGRU}
    instances_are_ordered = True
    primary = "set_error"
    _device = torch.device("cpu")

    def __init__(
        self,
        batch_bags: int,
        bags_per_epoch: int | None = None,
        batch_instances: int = BATCH_FRAMES,
    ) -> None:
        self.batch_bags = batch_bags
        self.bags_per_epoch = bags_per_epoch
        self.batch_instances = batch_instances

    @abstractmethod
    def load(self, data_dir: Path | None) -> SequenceSplits:
        """Return the sequences, on the CPU."""

    def prepare(self, data_dir: Path | None, device: torch.device) -> None:
        splits, self._device = self.load(data_dir), device
        self._train, self._test = splits.train, splits.evaluated["test"]
        self._scale = splits.scale or self._train.mean_and_divisor()
        self.inputs = len(self._scale[0])
        self.typical_size = (round(median(self._train.lengths)),)
        self.max_labels = int(self._train.labels.sum(dim=1).max())
        self.training_count = len(self._train)
        self.batch_bags = self.fitting(self.batch_bags, self._train)
        self.eval_splits = {
            split: EvalSplit(self._batches(splits.single[split]), self._batches(sequences))
            for split, sequences in splits.evaluated.items()
            if len(sequences)
        }
        self.calibration = None if "validation" in self.eval_splits else self._batches(self._train)

    def bags(self, sequences: Sequences) -> Bags:
        """Return sequences, standardised, as one batch; the mask (B, T) is False at frames that pad shorter ones."""
        mask = None
        if len(set(sequences.lengths)) > 1:
            mask = torch.arange(max(sequences.lengths)) < torch.tensor(sequences.lengths).unsqueeze(1)
        mean, divisor = self._scale
        frames = (pad_frames(sequences.frames) - mean) / divisor
        return Bags(frames, sequences.labels, mask, sequences.truth).to(self._device)

    def training_batch(self, numbers: Tensor, rng: torch.Generator) -> Bags:  # noqa: ARG002
        return self.bags(self._train[numbers])

    def recipe(self) -> Recipe:
        """Return one-cycle AdamW; rate and epochs were chosen on validation bags of `sound-events`, for all losses."""
        return Recipe(lr=5e-3, epochs=10, evaluate_every=5, precision="float32")

    def gallery(self) -> Bags:
        """Return the first eight test sequences that have a class, or the first eight where none has."""
        labelled = self._test.labels.any(dim=1).nonzero().flatten()
        return self.bags(self._test[labelled[:GALLERY_BAGS] if len(labelled) else slice(GALLERY_BAGS)])

    def _batches(self, sequences: Sequences) -> Lazy[Bags]:
        return Lazy.of(sequences, self.fitting(EVAL_BAGS, sequences), self.bags)

    def fitting(self, bags: int, sequences: Sequences) -> int:
        """Return how many sequences a batch may have, at most `bags`."""
        return max(1, min(bags, self.batch_instances // max(sequences.lengths, default=1)))
