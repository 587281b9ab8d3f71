"""Base classes of tasks whose bags are sequences of frames, such as recordings of sounds.

Sequences may differ in length. The events in them, with their begin and end, may be known.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import ClassVar, Self

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from milbench.contracts.bags import Bags, Origin, Truth, label_matrix
from milbench.contracts.network import NetworkMaker
from milbench.contracts.problem import BagFormat, EvalSplit, Split
from milbench.contracts.recipe import Recipe
from milbench.contracts.task import CPU, Task
from milbench.data.log_mel import LogMel
from milbench.families.fixed_bags import FixedBags, Lazy, batched, make_truth
from milbench.networks.sequence import SequenceConvolutional, SequenceGRU, pad_frames
from milbench.networks.standardise import divisors

EVAL_BAGS = 250
"""The most sequences of a batch to evaluate on."""
GALLERY_BAGS = 8
"""The most sequences of a gallery."""
BATCH_FRAMES = 1 << 21
"""The default of the most frames of a batch."""
RECORDINGS_AT_ONCE = 50
"""How many recordings become frames together.

A waveform takes up to twelve times the memory of its frames, so that not all are kept in memory.
"""


@dataclass(frozen=True, slots=True)
class Sequences:
    """N sequences with their label sets."""

    frames: Sequence[Tensor]
    """N tensors (F, T_i) with F features in each of T_i frames. They may be read on access."""
    lengths: list[int]
    """The N numbers of frames, T_i."""
    labels: Tensor
    """(N, C) bool, the label sets."""
    truth: Truth | None = None
    """The events of each sequence in the order in which they begin, with boxes in frames.

    None where they are not known.
    """
    origin: Origin | None = None
    """Where the sequences come from; None for those to train on."""

    def __len__(self) -> int:
        return len(self.frames)

    def __getitem__(self, index: slice | Tensor) -> Self:
        """Return the sequences of a slice, or those numbered by `index` (n,) int64."""
        which = torch.arange(len(self))[index]
        frames = [self.frames[i] for i in which.tolist()]
        lengths = [self.lengths[i] for i in which.tolist()]
        truth = None if self.truth is None else self.truth.selected(which)
        origin = None if self.origin is None else self.origin.selected(which)
        return type(self)(frames, lengths, self.labels[which], truth, origin)

    def mean_and_divisor(self) -> tuple[Tensor, Tensor]:
        """Return mean (F, 1) and divisor (F, 1) of each feature, by which it is standardised.

        They are taken over all frames. The divisor is the standard deviation, or 1 where rounding
        alone can have caused it.
        """
        count = sum(self.lengths)
        sums = [frames.double().sum(dim=1, keepdim=True) for frames in self.frames]
        mean = torch.stack(sums).sum(dim=0) / count
        squares = [(frames - mean).square().sum(dim=1, keepdim=True) for frames in self.frames]
        variance = torch.stack(squares).sum(dim=0) / count
        return mean.float(), divisors(mean, variance.sqrt()).float()


@dataclass(frozen=True, slots=True)
class SequenceSplits:
    """The sequences to train on and to evaluate on."""

    train: Sequences
    evaluated: Mapping[Split, Sequences]
    """The sequences of each split. A split without sequences is left out of the problem."""
    single: Mapping[Split, Sequences]
    """For each split the sequences with only one event; there may be none."""


Event = tuple[int, int, int]
"""A class, and the start and the end of the event in samples."""
Recording = tuple[Tensor, list[Event]]
"""A waveform (S,) and its events in the order in which they begin."""


def log_mel_sequences(
    recordings: Iterable[Recording],
    log_mel: LogMel,
    num_classes: int,
    most: int,
    origin: Origin | None = None,
) -> Sequences:
    """Return recordings as sequences of log-mel frames.

    Args:
        recordings: waveforms with their events.
        log_mel: makes frames of waveforms.
        num_classes: C.
        most: the largest number of events in a recording.
        origin: where the recordings come from.
    """
    frames: list[Tensor] = []
    boxes: list[list[tuple[int, Sequence[float]]]] = []
    for batch in batched(recordings, RECORDINGS_AT_ONCE):
        waveforms = [waveform for waveform, _ in batch]
        # Shorter waveforms are filled up with silence, and its frames are cut off again.
        padded = log_mel(pad_sequence(waveforms, batch_first=True))
        for mel, waveform in zip(padded, waveforms, strict=True):
            frames.append(mel[:, : log_mel.count(len(waveform))].clone())
        boxes += [_boxes_of(events, log_mel) for _, events in batch]
    truth = make_truth(boxes, most)
    lengths = [mel.shape[1] for mel in frames]
    return Sequences(frames, lengths, label_matrix(truth.classes, num_classes), truth, origin)


def _boxes_of(events: Iterable[Event], log_mel: LogMel) -> list[tuple[int, Sequence[float]]]:
    """Return the class and the box of each event.

    A box is left, top, right and bottom: the start of the event in frames, band 0, the end in
    frames, and the number of bands.
    """
    hop = log_mel.hop
    return [(cls, (start / hop, 0, end / hop, log_mel.bands)) for cls, start, end in events]


class SequenceTask(Task):
    """Base class of tasks whose bags are sequences; a subclass loads them.

    Features are standardised by the mean and the standard deviation of the training frames.
    """

    bag_kind = "sequences"
    networks: ClassVar[Mapping[str, NetworkMaker]] = {
        "conv": SequenceConvolutional,
        "gru": SequenceGRU,
    }
    instances_are_ordered = True
    primary = "set_error"
    reads_files: ClassVar[bool] = False
    """Whether sequences are read from files when they are used, rather than kept in memory."""

    def __init__(self, batch_bags: int, bags_per_epoch: int | None = None) -> None:
        self.batch_bags = batch_bags
        self.bags_per_epoch = bags_per_epoch

    def recipe(self) -> Recipe:
        """Return one-cycle AdamW, with one learning rate and number of epochs for all losses.

        Both were chosen on validation bags of `sound-events`.
        """
        return Recipe(lr=5e-3, epochs=10, evaluate_every=5, precision="float32")

    def problem_of(
        self,
        splits: SequenceSplits,
        batches: SequenceBatches,
        bag_format: BagFormat,
        seed: int,
        limit: int | None,
    ) -> SequenceProblem:
        """Return the problem that trains and evaluates on sequences.

        Args:
            splits: the sequences.
            batches: makes batches of them.
            bag_format: the format of the bags.
            seed: the seed for which the sequences were loaded.
            limit: the most bags of each split to evaluate on; None: all.
        """
        train = replace(splits.train, origin=None)

        def make_batch(numbers: Tensor, rng: torch.Generator) -> Bags:  # noqa: ARG001
            return batches.bags(train[numbers])

        evaluated: dict[Split, EvalSplit] = {}
        for split, sequences in splits.evaluated.items():
            if len(sequences):
                single = batches.to_evaluate(splits.single[split])
                evaluated[split] = EvalSplit(single, batches.to_evaluate(sequences))
        calibration = None
        if "validation" not in evaluated:
            # Thresholds are then chosen on training bags.
            calibration = batches.to_evaluate(train)
        return SequenceProblem(
            task_name=self.name,
            seed=seed,
            format=bag_format,
            typical_shape=(bag_format.inputs, round(median(train.lengths))),
            batch_bags=batches.fitting(self.batch_bags, train),
            splits=evaluated,
            max_labels=int(train.labels.sum(dim=1).max()),
            training_count=len(train),
            make_batch=make_batch,
            bags_per_epoch=self.bags_per_epoch,
            calibration=calibration,
            prefetches=self.reads_files,
            limit=limit,
            shown=splits.evaluated.get("test", splits.train),
            batches=batches,
        )


class SequencesInMemory(SequenceTask):
    """Base class of tasks whose sequences fit into memory.

    A subclass makes the sequences and sets `format`.
    """

    format: BagFormat

    @abstractmethod
    def sequences(self, data_dir: Path | None, seed: int, limit: int | None) -> SequenceSplits:
        """Return the sequences of a seed, on the CPU.

        At most `limit` sequences of each split are needed to evaluate on; None: all.
        """

    def load(
        self,
        data_dir: Path | None = None,
        seed: int = 0,
        device: torch.device = CPU,
        limit: int | None = None,
    ) -> SequenceProblem:
        splits = self.sequences(data_dir, seed, limit)
        mean, divisor = splits.train.mean_and_divisor()
        batches = SequenceBatches(mean, divisor, device=device)
        return self.problem_of(splits, batches, self.format, seed, limit)


@dataclass(frozen=True)
class SequenceBatches:
    """Makes batches of sequences, standardised feature by feature.

    A batch has at most `batch_frames` frames, padding counted, unless a single sequence has more.
    """

    mean: Tensor
    """(F, 1), what is subtracted from each feature."""
    divisor: Tensor
    """(F, 1), what each feature is then divided by."""
    batch_frames: int = BATCH_FRAMES
    device: torch.device = CPU

    def bags(self, sequences: Sequences) -> Bags:
        """Return B sequences as one batch of T frames, as many as the longest one has.

        Where lengths differ, the batch has a mask (B, T), False after the end of a sequence.
        """
        mask = None
        if len(set(sequences.lengths)) > 1:
            lengths = torch.tensor(sequences.lengths).unsqueeze(1)
            mask = torch.arange(max(sequences.lengths)) < lengths
        frames = (pad_frames(sequences.frames) - self.mean) / self.divisor
        bags = Bags(frames, sequences.labels, mask, sequences.truth, origin=sequences.origin)
        return bags.to(self.device)

    def to_evaluate(self, sequences: Sequences) -> Lazy[Bags]:
        """Return sequences in batches to evaluate on."""
        return Lazy.of(sequences, self.fitting(EVAL_BAGS, sequences), self.bags)

    def fitting(self, bags: int, sequences: Sequences) -> int:
        """Return how many of these sequences a batch may have: at least 1, and at most `bags`."""
        longest = max(sequences.lengths, default=1)
        fitting = min(bags, self.batch_frames // longest)
        return max(1, fitting)


@dataclass(kw_only=True, eq=False, repr=False)
class SequenceProblem(FixedBags):
    """A problem that trains and evaluates on sequences."""

    shown: Sequences
    """The sequences from which the gallery is taken."""
    batches: SequenceBatches
    """Makes batches of sequences."""

    def gallery(self) -> Bags:
        """Return the first test sequences that have a class; if none has, the first ones."""
        labelled = self.shown.labels.any(dim=1).nonzero().flatten()
        if len(labelled) == 0:
            return self.batches.bags(self.shown[:GALLERY_BAGS])
        return self.batches.bags(self.shown[labelled[:GALLERY_BAGS]])
