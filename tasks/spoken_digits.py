"""Which digits are spoken in a recording, and when: single digits, joined with silence."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from milbench import BagFormat, Recipe, Split, UsageError, generator
from milbench.data import catalog
from milbench.data.free_spoken_digits import FOLDER, SAMPLE_RATE, Recordings, read_all, wav_files
from milbench.data.log_mel import LogMel
from milbench.families.fixed_bags import draw_in_rounds, limited, make_origin
from milbench.families.sequences import (
    Event,
    Recording,
    Sequences,
    SequencesInMemory,
    SequenceSplits,
    log_mel_sequences,
)

DIGITS = 10
FRAMES = LogMel(SAMPLE_RATE, hop=128, window=256, bands=32)
TAKES = {"test": range(5), "validation": range(5, 10), "train": range(10, 1 << 31)}
"""Which recordings of every speaker and digit each split has. The test set is the official one."""
SHORTEST_SILENCE = 0.1
LONGEST_SILENCE = 0.5
"""The range of the silence before, between and after the digits of a bag, in seconds."""
LOUDEST = 1 << 15
"""The largest absolute value of an audio sample in a file."""
NOISE = 1e-3
"""The standard deviation of the white noise, 60 dB below the loudest possible sound."""


class SpokenDigits(SequencesInMemory):
    """Find which digits are spoken in a recording, and when, trained from label sets alone.

    The Free Spoken Digit Dataset (Z. Jackson et al., 2016-2024) has 3,000 recordings of one digit
    each, by six speakers. A bag has two to four recordings one after the other, with 0.1 to 0.5
    seconds of silence before, between and after them, in faint white noise. A network gets frames
    of 32 log-mel bands, 62.5 a second. Single recordings, for the one-instance error, have the same
    noise and no silence around them.

    Every speaker said every digit 50 times. Test bags are made of recordings 0 to 4, which are the
    official test set, validation bags of recordings 5 to 9, and training bags of recordings 10 to
    49. As all splits have the same six speakers, the results say nothing about other speakers.
    Training bags are made once for a seed, and the other bags are the same for all seeds. Every
    recording is used once before any is used again.

    Args:
        least: the smallest number of digits in a bag.
        most: the largest number of digits in a bag. All numbers from `least` on are equally
            frequent.
        train_bags: the number of training bags.
        bags_per_epoch: how many bags an epoch has, cycling through all of them; None: each once.
        any_data: accept other recordings in such files; the results are then named non-canonical.
    """

    name = "spoken-digits"
    amount_parameter = "train_bags"
    format = BagFormat(
        FRAMES.bands, tuple(str(digit) for digit in range(DIGITS)), FRAMES.frames_per_second
    )
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
        self.least = least
        self.most = most
        self.train_bags = train_bags
        self.any_data = any_data

    def recipe(self) -> Recipe:
        # The learning rate was the best of three on validation bags.
        return Recipe(lr=1e-2, epochs=20, evaluate_every=10, precision="float32")

    def datasets(self) -> Sequence[str]:
        if self.any_data:
            return ()
        return (self.name,)

    def check_data(self, data_dir: Path | None) -> str:
        instead = catalog.how_to_get(self.name, FOLDER, "sound-events needs no download")
        title = "spoken digits" if self.any_data else "Free Spoken Digit Dataset"
        return catalog.check_dataset(
            self.name, title, data_dir, wav_files, instead, any_data=self.any_data
        )

    def sequences(self, data_dir: Path | None, seed: int, limit: int | None) -> SequenceSplits:
        root = catalog.data_dir(data_dir)
        digest = self.check_data(data_dir)

        def mixtures(split: str, count: int, *axes: object) -> Sequences:
            axes_of_seed = (self.revision, *axes)
            sampling = MixtureSampling(split, count, self.least, self.most, axes_of_seed)
            return _mixtures(root, digest, sampling)

        train = mixtures("train", self.train_bags, seed)
        evaluated: dict[Split, Sequences] = {}
        single: dict[Split, Sequences] = {}
        for split, count in self.eval_bags.items():
            evaluated[split] = mixtures(split, limited(count, limit))
            single[split] = _single_recordings(root, digest, split, limit, self.revision)
        return SequenceSplits(train, evaluated, single)


@dataclass(frozen=True)
class MixtureSampling:
    """How bags of several recordings are made at random."""

    split: str
    """train, validation or test."""
    count: int
    """The number of bags."""
    least: int
    """The smallest number of digits in a bag."""
    most: int
    """The largest number of digits in a bag."""
    axes: tuple[object, ...]
    """What the seed is made from, besides `split`, `least` and `most`."""


# Cached, so that the cells that one process computes share their bags.
@lru_cache(maxsize=8)
def _mixtures(root: Path, digest: str, sampling: MixtureSampling) -> Sequences:
    """Return bags of several recordings, with silence before, between and after them."""
    rng = generator("spoken-digits", sampling.split, sampling.least, sampling.most, *sampling.axes)
    spoken = read_all(root, digest)
    numbers = _numbers_of(sampling.split, spoken, root)
    sizes = torch.randint(sampling.least, sampling.most + 1, (sampling.count,), generator=rng)
    order = draw_in_rounds(len(numbers), int(sizes.sum()), rng)
    bags = numbers[order].split(sizes.tolist())
    range_of_silence = (SHORTEST_SILENCE, LONGEST_SILENCE)
    return _as_sequences(spoken, bags, range_of_silence, rng)


@lru_cache(maxsize=4)
def _single_recordings(
    root: Path, digest: str, split: Split, limit: int | None, revision: int
) -> Sequences:
    """Return recordings of a split as bags of one, without silence around them."""
    rng = generator("spoken-digits", split, "single", revision)
    spoken = read_all(root, digest)
    numbers = _numbers_of(split, spoken, root)
    order = draw_in_rounds(len(numbers), len(numbers), rng)
    bags = numbers[order].split(1)
    no_silence = (0.0, 0.0)
    return _as_sequences(spoken, bags[:limit], no_silence, rng)


def _numbers_of(split: str, spoken: Recordings, root: Path) -> Tensor:
    """Return the numbers (n,) of the recordings of a split. Raises UsageError if it has none."""
    takes = TAKES[split]
    numbers = [number for number, take in enumerate(spoken.takes) if take in takes]
    if not numbers:
        raise UsageError(
            f"{root} has no spoken digits for the {split} split, numbered {takes.start} and up"
        )
    return torch.tensor(numbers)


def _as_sequences(
    spoken: Recordings,
    bags: Sequence[Tensor],
    range_of_silence: tuple[float, float],
    rng: torch.Generator,
) -> Sequences:
    """Return bags of recordings as frames, with silence before, between and after the recordings.

    Args:
        spoken: all recordings.
        bags: the numbers of the recordings of each bag.
        range_of_silence: the shortest and the longest silence, in seconds, uniform between them.
        rng: generates silences and noise.
    """
    shortest, longest = range_of_silence

    def recordings() -> Iterator[Recording]:
        for bag in bags:
            # One silence before the first digit, and one after each digit.
            seconds = shortest + (longest - shortest) * torch.rand(len(bag) + 1, generator=rng)
            before, *after = (seconds * SAMPLE_RATE).round().int().tolist()
            parts = [torch.zeros(before)]
            events: list[Event] = []
            start = before
            for number, silence in zip(bag.tolist(), after, strict=True):
                sound = torch.from_numpy(spoken.waveforms[number] / np.float32(LOUDEST))
                end = start + len(sound)
                events.append((spoken.digits[number], start, end))
                parts += [sound, torch.zeros(silence)]
                start = end + silence
            waveform = torch.cat(parts)
            noise = NOISE * torch.randn(len(waveform), generator=rng)
            yield waveform + noise, events

    most = max(len(bag) for bag in bags)
    return log_mel_sequences(recordings(), FRAMES, DIGITS, most, make_origin(bags))
