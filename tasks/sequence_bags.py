"""Your own sequences: a table of audio files or arrays in time, with the label set of each."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from milbench._utils.digests import read_digest, remembered
from milbench._utils.seeding import generator
from milbench.api.bags import Truth, label_matrix
from milbench.api.recipe import Recipe
from milbench.data.catalog import data_dir as default_data_dir
from milbench.data.sequence_files import FrameSettings, LoadedFrames, load_frames
from milbench.data.sequence_table import SPLITS, Row, read_table
from milbench.errors import UsageError
from milbench.families.sequences import Architecture, Sequences, SequenceSplits, SequenceTask
from milbench.networks.sequence import block_count

Share = Annotated[float, Field(ge=0, lt=1)]
# The cells of a comparison that one process computes share their frames.
_last: dict[tuple[str, str], LoadedFrames] = {}


class SequenceBags(SequenceTask):
    """Find which classes occur in a sequence, and when, from the label sets in a table of your own.

    The table is a CSV file with the columns `file`, `labels`, and perhaps `split` and `events`; see
    `milbench.data.sequence_table.read_table`. A file is a .npy array (T, F) of frames, a .npy waveform (S,), or audio.
    Waveforms become log-mel frames. The classes are the names of the labels in alphabetical order. Events give the hit
    rate in time, and targets for losses with more supervision than label sets; others are never given them.

    Args:
        table: path of the table, from the current folder or the folder of the data.
        network: `conv`, all-convolutional, where a position depends on some thirty frames around it, or `gru`, gated
            recurrent units in both directions, where it depends on all.
        stride: frames in the block that a position stands for.
        frames_per_second: how many frames of an array make a second, or how many are made of a second of a waveform.
        bands: log-mel bands, for waveforms.
        sample_rate: samples a second of waveforms in .npy files; audio files say theirs.
        test: the share of sequences to test on. Without a column `split` every seed has a split of its own, the same
            for every loss, with each label set in all three splits in these shares as far as possible.
        validation: the share of sequences to validate on; 0: none.
        batch_bags: the number of sequences in a training batch.
    """

    name = "sequence-bags"
    network_needs_data = True

    def __init__(
        self,
        table: str,
        network: Architecture = "conv",
        stride: Literal[1, 2, 4, 8, 16, 32] = 4,
        frames_per_second: Annotated[float, Field(gt=0, le=100_000)] = 62.5,
        bands: Annotated[int, Field(ge=1, le=512)] = 32,
        sample_rate: Annotated[int, Field(ge=100)] | None = None,
        test: Annotated[float, Field(gt=0, lt=1)] = 0.2,
        validation: Share = 0.15,
        batch_bags: Annotated[int, Field(ge=1)] = 32,
    ) -> None:
        super().__init__(network, stride, batch_bags)
        if test + validation >= 1:
            raise UsageError(f"{self.name}: test = {test:g} and validation = {validation:g} leave nothing to train on")
        self.table = table
        self.settings = FrameSettings(frames_per_second, bands, sample_rate)
        self.shares = {"train": 1 - test - validation, "validation": validation, "test": test}

    @property
    def class_names(self) -> list[str]:
        """Return the names of the classes, known after `prepare`."""
        return self._names

    def recipe(self) -> Recipe:
        """Return one-cycle AdamW, with more epochs than `sound-events` has, as tables are often small."""
        return Recipe(lr=5e-3, epochs=30, evaluate_every=10)

    def check_data(self, data_dir: Path | None) -> str:
        """Return a digest of the table and its files, all of which are read where that was not done before.

        Raises:
            UsageError: the table or files are wrong, or one recording is in two splits.
        """
        rows = self._rows(data_dir)
        paths = [row.path for row in rows]

        def compute() -> str:
            self._load(rows)
            digests = [read_digest(path, "sha256") for path in paths]
            _check_splits(rows, digests)
            return hashlib.sha256("".join(digests).encode()).hexdigest()

        table = self._path(data_dir)
        files = remembered(f"sequences {self._settings()} {self.shares}", [table, *paths], compute)
        whole = hashlib.sha256((read_digest(table, "sha256") + files).encode()).hexdigest()
        return f"{len(rows)} sequences, sha256 {whole[:16]}"

    def load(self, data_dir: Path | None) -> SequenceSplits:
        """Read the table and its files, or take the frames that this process read last, if they are the same."""
        rows = self._rows(data_dir)
        key = self.check_data(data_dir), self._settings()
        if key not in _last:
            loaded = self._load(rows)
            _last.clear()
            _last[key] = loaded
        loaded = _last[key]
        self._names = sorted({name for row in rows for name in row.labels})
        self.num_classes = len(self._names)
        splits = _splits(rows, self.shares, generator(self.name, "split", self.seed))
        numbers = {split: [i for i, s in enumerate(splits) if s == split] for split in SPLITS}
        for split in ("train", "test"):
            if not numbers[split]:
                raise UsageError(f"{self._path(data_dir)}: none of its {len(rows)} rows is in the split {split}")
        alone = {split: [i for i in n if len(rows[i].events or ()) == 1] for split, n in numbers.items()}

        def chosen(which: list[int]) -> Sequences:
            return self._sequences([rows[i] for i in which], [loaded.frames[i] for i in which], loaded)

        return SequenceSplits(
            chosen(numbers["train"]),
            {"validation": chosen(numbers["validation"]), "test": chosen(numbers["test"])},
            {"validation": chosen(alone["validation"]), "test": chosen(alone["test"])},
        )

    def _path(self, data_dir: Path | None) -> Path:
        path = Path(self.table).expanduser()
        if not path.exists() and not path.is_absolute():
            beside = default_data_dir(data_dir) / path
            path = beside if beside.exists() else path
        return path

    def _rows(self, data_dir: Path | None) -> list[Row]:
        return read_table(self._path(data_dir))

    def _settings(self) -> str:
        return repr((self.settings, self.stride))

    def _load(self, rows: Sequence[Row]) -> LoadedFrames:
        loaded = load_frames([row.path for row in rows], self.settings)
        for row, frames in zip(rows, loaded.frames, strict=True):
            positions, seconds = block_count(frames.shape[1], self.stride), frames.shape[1] / loaded.frames_per_second
            if len(row.labels) > positions:
                raise UsageError(
                    f"{row.place}: {row.path} has {len(row.labels)} classes and only {positions} positions, one for "
                    f"every {self.stride} of its {frames.shape[1]} frames; expected a position for every class"
                )
            late = [event for event in row.events or () if event.start >= seconds]
            if late:
                raise UsageError(
                    f"{row.place}: event {list(late[0])} begins after the end of {row.path}, {seconds:.3g} seconds"
                )
        return loaded

    def _sequences(self, rows: Sequence[Row], frames: Sequence[Tensor], loaded: LoadedFrames) -> Sequences:
        """Return rows as sequences, with the events where they are known of every row that has a label."""
        labels = torch.tensor([[name in row.labels for name in self._names] for row in rows])
        labels = labels.view(len(rows), self.num_classes).bool()
        if not rows or any(row.labels and row.events is None for row in rows):
            return Sequences(frames, labels)
        most = max(len(row.events or ()) for row in rows)
        classes = torch.full((len(rows), most), -1)
        boxes = torch.zeros(len(rows), most, 4)
        for number, row in enumerate(rows):
            for place, event in enumerate(row.events or ()):
                start, end = (loaded.frames_per_second * t for t in (event.start, event.end))
                classes[number, place] = self._names.index(event.name)
                boxes[number, place] = torch.tensor([start, 0, min(end, frames[number].shape[1]), len(frames[number])])
        if not torch.equal(label_matrix(classes, self.num_classes), labels):
            raise AssertionError("the table was read with events that are not its labels")
        return Sequences(frames, labels, Truth(classes, boxes))


def _check_splits(rows: Sequence[Row], digests: Sequence[str]) -> None:
    """Raise UsageError where two files of the same content are in two splits, or may be."""
    first: dict[str, Row] = {}
    for row, digest in zip(rows, digests, strict=True):
        other = first.setdefault(digest, row)
        if other is not row and (row.split is None or row.split != other.split):
            where = f"in {other.split} and {row.split}" if row.split else "and could get into two splits"
            raise UsageError(f"{row.place}: {row.path} is the same as {other.path}, {where}; expected it in one alone")


def _splits(rows: Sequence[Row], shares: dict[str, float], rng: torch.Generator) -> list[str]:
    """Return the split of every row: that of the table, else by chance, stratified by label set.

    Rows are shuffled and sorted by label set, and each goes to the split that lacks most of its share so far. So a
    split has its share of each label set, up to one or two rows.
    """
    if rows[0].split is not None:
        return [str(row.split) for row in rows]
    order = sorted(torch.randperm(len(rows), generator=rng).tolist(), key=lambda i: rows[i].labels)
    counts = dict.fromkeys(shares, 0)
    splits = [""] * len(rows)
    for done, number in enumerate(order, start=1):
        split = max(shares, key=lambda name: shares[name] * done - counts[name])
        splits[number] = split
        counts[split] += 1
    return splits
