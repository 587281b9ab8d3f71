"""Bags whose positions are time: sequences of frames, of one length or of many, with events where they are known."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from milbench.api.bags import Bags, Truth
from milbench.api.recipe import Recipe
from milbench.api.task import Network, Split
from milbench.data.bags_store import BagStore
from milbench.evaluation.evaluate import EvalSplit
from milbench.families.fixed_bags import FixedBags, LazyBatches
from milbench.networks.instance import divisors
from milbench.networks.sequence import SequenceConvolutional, SequenceGRU, block_centres, block_count, pad_frames

Architecture = Literal["conv", "gru"]
CPU = torch.device("cpu")
WIDTH = 48
"""Channels between the layers of the convolutional network, and the size of each state of the recurrent one."""
EVAL_BAGS, GALLERY_BAGS = 250, 8
BATCH_FRAMES = 1 << 21
"""Frames in a batch, at most, where nothing else is asked for."""


class MappedFrames(Sequence[Tensor]):
    """The frames (F, T) of some bags of a table, each read from its file when it is accessed by its number."""

    def __init__(self, store: BagStore, bags: NDArray[np.int64]) -> None:
        self.store, self.bags = store, bags
        self.lengths: list[int] = store.sizes[bags].tolist()

    def __len__(self) -> int:
        return len(self.bags)

    def __getitem__(self, n: Any) -> Any:
        return torch.from_numpy(np.array(self.store.single(int(self.bags[n])))).T


@dataclass(frozen=True, slots=True)
class Sequences:
    """N sequences with their label sets.

    Args:
        frames: N tensors (F, T_i), F features in each of T_i frames.
        labels: (N, C) bool.
        truth: the events in the order in which they begin, with boxes (start, 0, end, F) in frames; None: not known.
        scale: mean (F, 1) and divisor (F, 1) of each feature, which bags are standardised by; None: by none.
        device: of the bags.
    """

    frames: Sequence[Tensor]
    labels: Tensor
    truth: Truth | None = None
    scale: tuple[Tensor, Tensor] | None = None
    device: torch.device = CPU

    def __len__(self) -> int:
        return len(self.frames)

    def __getitem__(self, index: slice | Tensor) -> Self:
        """Return the sequences of a slice, or those numbered by `index` (n,) int64."""
        which = torch.arange(len(self))[index]
        frames = [self.frames[i] for i in which.tolist()]
        return replace(self, frames=frames, labels=self.labels[which], truth=self.truth and self.truth.selected(which))

    @property
    def lengths(self) -> list[int]:
        """The number of frames of each sequence; mapped ones are not read for it."""
        known = self.frames.lengths if isinstance(self.frames, MappedFrames) else None
        return known or [one.shape[1] for one in self.frames]

    def bags(self, stride: int) -> Bags:
        """Return the sequences as one batch of bags, the shorter ones padded; a position is `stride` frames."""
        mask = None
        if len(set(self.lengths)) > 1:
            counts = torch.tensor([block_count(length, stride) for length in self.lengths])
            mask = torch.arange(int(counts.max())) < counts.unsqueeze(1)
        frames = pad_frames(self.frames)
        if self.scale is not None:
            frames = (frames - self.scale[0]) / self.scale[1]
        return Bags(frames, self.labels, mask, self.truth).to(self.device)

    def mean_and_spread(self) -> tuple[Tensor, Tensor]:
        """Return mean (F, 1) and divisor (F, 1), by `divisors`, of each feature over all frames."""
        count = sum(one.shape[1] for one in self.frames)
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
        splits = self.load(data_dir)
        scale = splits.scale or splits.train.mean_and_spread()
        self._scale, self.features = scale, len(scale[0])
        self.positions = block_count(round(median(splits.train.lengths)), self.stride)
        self.max_labels = int(splits.train.labels.sum(dim=1).max())

        def ready(sequences: Sequences) -> Sequences:
            return replace(sequences, scale=scale, device=device)

        self._train = ready(splits.train)
        self.training_count = len(self._train)
        self.batch_bags = self.fitting(self.batch_bags, self._train)
        self._test = ready(splits.evaluated["test"])
        self.eval_splits = {
            split: EvalSplit(self._batches(ready(splits.single[split])), self._batches(ready(found)))
            for split, found in splits.evaluated.items()
            if len(found)
        }
        self.calibration = None if "validation" in self.eval_splits else self._batches(self._train)

    def training_batch(self, numbers: Tensor, rng: torch.Generator) -> Bags:  # noqa: ARG002
        return self._train[numbers].bags(self.stride)

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
        return self._test[chosen[:GALLERY_BAGS] if len(chosen) else slice(GALLERY_BAGS)].bags(self.stride)

    def _batches(self, sequences: Sequences) -> LazyBatches:
        size = self.fitting(EVAL_BAGS, sequences)
        return LazyBatches.of(sequences, size, partial(Sequences.bags, stride=self.stride))

    def fitting(self, bags: int, sequences: Sequences) -> int:
        """Return how many sequences a batch may have, at most `bags`."""
        return max(1, min(bags, self.batch_instances // max(sequences.lengths, default=1)))
