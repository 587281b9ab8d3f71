"""Bags whose positions are time: sequences of frames, of one length or of many, with events where they are known."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Literal, Self

import torch
from torch import Tensor

from milbench.api.bags import Bags, Truth
from milbench.api.recipe import Recipe
from milbench.api.task import Network, Split
from milbench.evaluation.evaluate import EvalSplit
from milbench.families.fixed_bags import FixedBags, Lazy
from milbench.networks.instance import divisors
from milbench.networks.sequence import SequenceConvolutional, SequenceGRU, block_centres, block_count, pad_frames

Architecture = Literal["conv", "gru"]
WIDTH = 48
"""Channels between the layers of the convolutional network, and the size of each state of the recurrent one."""
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
        frames, lengths = ([known[i] for i in which.tolist()] for known in (self.frames, self.lengths))
        return type(self)(frames, lengths, self.labels[which], self.truth and self.truth.selected(which))

    def mean_and_divisor(self) -> tuple[Tensor, Tensor]:
        """Return mean (F, 1) and divisor (F, 1), by `divisors`, of each feature over all frames."""
        count = sum(self.lengths)
        mean = torch.stack([one.double().sum(dim=1, keepdim=True) for one in self.frames]).sum(dim=0) / count
        squares = torch.stack([(one - mean).square().sum(dim=1, keepdim=True) for one in self.frames]).sum(dim=0)
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
        network: `conv`, all-convolutional, where a position depends on 30 frames at a stride of 4, or `gru`, gated
            recurrent units in both directions, where it depends on all.
        stride: frames in the block that a position stands for, a power of 2.
        batch_bags: the number of sequences in a training batch.
        bags_per_epoch: how many training sequences an epoch has, all of them in turn; None: each once.
        batch_instances: the most frames in a batch, padding counted, unless a single sequence has more.
    """

    instances_are_ordered = True
    primary = "set_error"
    _device = torch.device("cpu")

    def __init__(
        self,
        network: Architecture,
        stride: int,
        batch_bags: int,
        bags_per_epoch: int | None = None,
        batch_instances: int = BATCH_FRAMES,
    ) -> None:
        self.architecture: Architecture = network
        self.stride = stride
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
        self.features = len(self._scale[0])
        self.positions = block_count(round(median(self._train.lengths)), self.stride)
        self.max_labels = int(self._train.labels.sum(dim=1).max())
        self.training_count = len(self._train)
        self.batch_bags = self.fitting(self.batch_bags, self._train)
        self.eval_splits = {
            split: EvalSplit(self._batches(splits.single[split]), self._batches(found))
            for split, found in splits.evaluated.items()
            if len(found)
        }
        self.calibration = None if "validation" in self.eval_splits else self._batches(self._train)

    def bags(self, sequences: Sequences) -> Bags:
        """Return sequences, standardised, as one batch; shorter ones are padded, and a position is `stride` frames."""
        mask = None
        if len(set(sequences.lengths)) > 1:
            counts = torch.tensor([block_count(length, self.stride) for length in sequences.lengths])
            mask = torch.arange(int(counts.max())) < counts.unsqueeze(1)
        mean, divisor = self._scale
        frames = (pad_frames(sequences.frames) - mean) / divisor
        return Bags(frames, sequences.labels, mask, sequences.truth).to(self._device)

    def training_batch(self, numbers: Tensor, rng: torch.Generator) -> Bags:  # noqa: ARG002
        return self.bags(self._train[numbers])

    def encoder(self, width: int, seed: int) -> Network:
        kind = SequenceConvolutional if self.architecture == "conv" else SequenceGRU
        return kind(self.features, WIDTH, width, self.stride, seed)

    def recipe(self) -> Recipe:
        """Return one-cycle AdamW; rate and epochs were chosen on validation bags of `sound-events`, for all losses."""
        return Recipe(lr=5e-3, epochs=10, evaluate_every=5, precision="float32")

    def centres(self, height: int, width: int) -> tuple[Tensor, Tensor]:
        """Return y of the row of positions, and x of every position in frames, for sequences of `width` frames.

        The hit rate is that in time: the middle of the strongest position is inside an event of the class.
        """
        return block_centres(height, width, self.stride)

    def gallery(self) -> Bags:
        """Return the first eight test sequences that have a class, or the first eight where none has."""
        chosen = self._test.labels.any(dim=1).nonzero().flatten()
        return self.bags(self._test[chosen[:GALLERY_BAGS] if len(chosen) else slice(GALLERY_BAGS)])

    def _batches(self, sequences: Sequences) -> Lazy[Bags]:
        return Lazy.of(sequences, self.fitting(EVAL_BAGS, sequences), self.bags)

    def fitting(self, bags: int, sequences: Sequences) -> int:
        """Return how many sequences a batch may have, at most `bags`."""
        return max(1, min(bags, self.batch_instances // max(sequences.lengths, default=1)))
