"""Which digits are spoken in a recording, and when: real recordings, one after the other, in silence."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from milbench._utils.seeding import generator
from milbench.api.bags import label_matrix
from milbench.api.recipe import Recipe
from milbench.api.task import Split
from milbench.data.catalog import checked
from milbench.data.catalog import data_dir as default_data_dir
from milbench.data.log_mel import LogMel
from milbench.data.spoken_digits import SAMPLE_RATE, read_all, wav_files
from milbench.errors import UsageError
from milbench.families.fixed_bags import in_rounds, truth_of
from milbench.families.sequences import Sequences, SequenceSplits, SequenceTask

DIGITS = 10
FRAMES = LogMel(SAMPLE_RATE, hop=128, window=256, bands=32)
TAKES = {"test": range(5), "validation": range(5, 10), "train": range(10, 1 << 31)}
"""Which recordings of every speaker and digit each split has; those of the test set are the official ones."""
GAP = 0.1, 0.5
"""The shortest and the longest silence before, between and after digits, in seconds."""
NOISE = 1e-3
"""The standard deviation of the white noise in the whole recording, 60 dB below the loudest possible sound."""
_AT_ONCE = 50
"""Waveforms that become frames together."""
MISSING = (
    "point --data-dir or MILBENCH_DATA at a folder with spoken-digits/recordings, or fetch it with `milbench data "
    "fetch spoken-digits`; the task sound-events needs no download"
)


class SpokenDigits(SequenceTask):
    """Find which digits are spoken in a recording, and when, given the set of them; real recordings of six speakers.

    The Free Spoken Digit Dataset (Z. Jackson et al., 2016-2024): 3,000 recordings of one digit each. A bag has two
    to four of them one after the other, with 0.1 to 0.5 seconds of silence before, between and after them, and faint
    white noise in all of it. What a network gets are frames of 32 log-mel bands, 62.5 a second. Single recordings, for
    the one-instance error, have the same noise and no silence around them. Test bags, and single recordings, are made
    of the official test set (0 to 4 of every speaker and digit), validation bags of 5 to 9, training bags of 10 to 49:
    no recording is in two of them, but all have the same six speakers, and nothing is learnt of how others are heard.
    Training bags are drawn once a seed, test and validation bags once for all; every recording is used before any is
    used again.

    Args:
        least: the smallest number of digits in a bag.
        most: the largest number, all from the smallest on equally frequent.
        train_bags: the number of training bags.
        bags_per_epoch: how many bags an epoch has, cycling through all of them; None: each once.
        any_data: accept other recordings in such files; the results are then named non-canonical.
    """

    name = "spoken-digits"
    amount = "train_bags"
    num_classes = DIGITS
    frames_per_second = FRAMES.frames_per_second
    eval_bags: ClassVar[dict[Split, int]] = {"validation": 500, "test": 1000}

    def __init__(
        self,
        least: Annotated[int, Field(ge=1, le=16)] = 2,
        most: Annotated[int, Field(ge=1, le=16)] = 4,
        train_bags: Annotated[int, Field(ge=1)] = 600,
        bags_per_epoch: Annotated[int, Field(ge=1, le=10_000_000)] | None = None,
        any_data: bool = False,
    ) -> None:
        if least > most:
            raise UsageError(f"least = {least} is more than most = {most}")
        super().__init__(batch_bags=32, bags_per_epoch=bags_per_epoch)
        self.least, self.most = least, most
        self.train_bags = train_bags
        self.any_data = any_data
        self.inputs = FRAMES.bands

    def recipe(self) -> Recipe:
        """Return one-cycle AdamW; the rate was chosen of three on validation bags, for all losses together."""
        return Recipe(lr=1e-2, epochs=20, evaluate_every=10, precision="float32")

    def check_data(self, data_dir: Path | None) -> str:
        def look(root: Path) -> None:
            if not wav_files(root):
                raise UsageError(f"no recordings found; {MISSING}")

        title = "spoken digits" if self.any_data else "Free Spoken Digit Dataset"
        return checked(self.name, title, data_dir, look, MISSING, any_data=self.any_data)

    def load(self, data_dir: Path | None) -> SequenceSplits:
        root, digest = default_data_dir(data_dir), self.check_data(data_dir)

        def mixtures(split: str, count: int, *axes: object) -> Sequences:
            if split != "train":
                count = len(range(count)[: self.evaluation_limit])
            return _mixtures(root, digest, split, count, self.least, self.most, axes)

        return SequenceSplits(
            mixtures("train", self.train_bags, self.revision, self.seed),
            {split: mixtures(split, count, self.revision) for split, count in self.eval_bags.items()},
            {split: _singles(root, digest, split, self.evaluation_limit, self.revision) for split in self.eval_bags},
        )


@lru_cache(maxsize=8)  # cells of one process share their bags
def _mixtures(
    root: Path, digest: str, split: str, count: int, least: int, most: int, axes: tuple[object, ...]
) -> Sequences:
    """Return bags of `least` to `most` recordings of a split, one after the other, with silence around each."""
    rng = generator("spoken-digits", split, least, most, *axes)
    numbers = torch.randint(least, most + 1, (count,), generator=rng).tolist()
    recordings = iter(_in_turn(_recordings(root, digest, split), sum(numbers), rng))
    return _placed(root, digest, [[next(recordings) for _ in range(number)] for number in numbers], GAP, rng)


@lru_cache(maxsize=4)
def _singles(root: Path, digest: str, split: str, limit: int | None, revision: int) -> Sequences:
    """Return recordings of a split by themselves, those that a limit leaves drawn from all of them."""
    rng = generator("spoken-digits", split, "single", revision)
    recordings = _recordings(root, digest, split)
    return _placed(root, digest, [[n] for n in _in_turn(recordings, len(recordings), rng)[:limit]], (0, 0), rng)


def _recordings(root: Path, digest: str, split: str) -> list[int]:
    recordings = [n for n, take in enumerate(read_all(root, digest).takes) if take in TAKES[split]]
    if not recordings:
        raise UsageError(f"{root} has no spoken digits for the {split} split, numbered {TAKES[split].start} and up")
    return recordings


def _in_turn(items: list[int], count: int, rng: torch.Generator) -> list[int]:
    """Return `count` of the items in random order, every one before any again."""
    return [items[n] for n in in_rounds(len(items), count, rng).tolist()]


def _placed(
    root: Path, digest: str, bags: list[list[int]], gap: tuple[float, float], rng: torch.Generator
) -> Sequences:
    """Return bags of recordings, given by their numbers, with when each of them is heard as truth."""
    spoken, waveforms, events = read_all(root, digest), [], []
    for members in bags:
        silences = (gap[0] + (gap[1] - gap[0]) * torch.rand(len(members) + 1, generator=rng)) * SAMPLE_RATE
        digits = [spoken.waveforms[n] for n in members]
        starts, waveform = place(digits, silences.round().int().tolist())
        waveforms.append(torch.from_numpy(waveform) + NOISE * torch.randn(len(waveform), generator=rng))
        ends = [start + len(digit) for start, digit in zip(starts, digits, strict=True)]
        boxes = [
            (start / FRAMES.hop, 0, end / FRAMES.hop, FRAMES.bands) for start, end in zip(starts, ends, strict=True)
        ]
        events.append([*zip((spoken.digits[n] for n in members), boxes, strict=True)])
    lengths, truth = [FRAMES.count(len(waveform)) for waveform in waveforms], truth_of(events, max(map(len, bags)))
    return Sequences(_frames(waveforms), lengths, label_matrix(truth.classes, DIGITS), truth)


def _frames(waveforms: list[Tensor]) -> list[Tensor]:
    frames: list[Tensor] = []
    for first in range(0, len(waveforms), _AT_ONCE):
        batch = waveforms[first : first + _AT_ONCE]
        together = FRAMES(pad_sequence(batch, batch_first=True))  # a frame past the end of a waveform is silence
        frames += [one[:, : FRAMES.count(len(own))].clone() for one, own in zip(together, batch, strict=True)]
    return frames


def place(recordings: list[NDArray[np.int16]], silences: list[int]) -> tuple[list[int], NDArray[np.float32]]:
    """Return where each of M recordings begins, and all in one waveform in [-1, 1], with M + 1 silences, in samples.

    Examples:
        >>> place([np.array([1 << 14], np.int16), np.array([-(1 << 15)], np.int16)], [1, 2, 0])
        ([1, 4], array([ 0. ,  0.5,  0. ,  0. , -1. ], dtype=float32))
    """
    lengths = [len(recording) for recording in recordings]
    starts = [int(n) for n in np.cumsum(silences[:-1]) + np.cumsum([0, *lengths[:-1]])]
    waveform = np.zeros(sum(lengths) + sum(silences), np.float32)
    for start, recording in zip(starts, recordings, strict=True):
        waveform[start : start + len(recording)] = recording / np.float32(1 << 15)
    return starts, waveform
