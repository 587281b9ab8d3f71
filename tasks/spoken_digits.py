"""Which digits are spoken in a recording, and when: real recordings, one after the other, in silence."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
import torch
from pydantic import Field

from milbench import BagFormat, Recipe, Split, UsageError, generator
from milbench.data import catalog
from milbench.data.free_spoken_digits import FOLDER, SAMPLE_RATE, read_all, wav_files
from milbench.data.log_mel import LogMel
from milbench.families.fixed_bags import draw_in_rounds, limited, make_origin
from milbench.families.sequences import (
    Recording,
    Sequences,
    SequencesInMemory,
    SequenceSplits,
    log_mel_sequences,
)

DIGITS = 10
FRAMES = LogMel(SAMPLE_RATE, hop=128, window=256, bands=32)
TAKES = {"test": range(5), "validation": range(5, 10), "train": range(10, 1 << 31)}
"""Which recordings of every speaker and digit each split has; those of the test set are the official ones."""
GAP = 0.1, 0.5  # the shortest and the longest silence before, between and after digits, in seconds
NOISE = 1e-3  # the standard deviation of the white noise, 60 dB below the loudest possible sound


class SpokenDigits(SequencesInMemory):
    """Find which digits are spoken in a recording, and when, given the set of them; real recordings of six speakers.

    The Free Spoken Digit Dataset (Z. Jackson et al., 2016-2024): 3,000 recordings of one digit each. A bag has two
    to four of them one after the other, with 0.1 to 0.5 seconds of silence before, between and after them, in faint
    white noise. A network gets frames of 32 log-mel bands, 62.5 a second. Single recordings, for the one-instance
    error, have the same noise and no silence around them. The official test set is 0 to 4 of every speaker and digit,
    validation bags are made of 5 to 9, and training bags of 10 to 49: all of the same six speakers, so that nothing is
    learnt of how others are heard. Training bags are drawn once a seed, the others once for all; every recording is
    used before any is used again.

    Args:
        least: the smallest number of digits in a bag.
        most: the largest number, all from the smallest on equally frequent.
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
        self.least, self.most, self.train_bags, self.any_data = least, most, train_bags, any_data

    def recipe(self) -> Recipe:
        return Recipe(
            lr=1e-2, epochs=20, evaluate_every=10, precision="float32"
        )  # lr: best of three on validation

    def datasets(self) -> Sequence[str]:
        return () if self.any_data else (self.name,)

    def check_data(self, data_dir: Path | None) -> str:
        instead = catalog.how_to_get(self.name, FOLDER, "sound-events needs no download")
        title = "spoken digits" if self.any_data else "Free Spoken Digit Dataset"
        return catalog.check_dataset(
            self.name, title, data_dir, wav_files, instead, any_data=self.any_data
        )

    def sequences(self, data_dir: Path | None, seed: int, limit: int | None) -> SequenceSplits:
        root, digest = catalog.data_dir(data_dir), self.check_data(data_dir)

        def mixtures(split: str, count: int, *axes: object) -> Sequences:
            sizes = self.least, self.most
            return _bags(root, digest, split, count, sizes, (*sizes, self.revision, *axes))

        return SequenceSplits(
            mixtures("train", self.train_bags, seed),
            {
                split: mixtures(split, limited(count, limit))
                for split, count in self.eval_bags.items()
            },
            {
                split: _bags(root, digest, split, limit, None, ("single", self.revision))
                for split in self.eval_bags
            },
        )


@lru_cache(maxsize=12)  # cells of one process share their bags
def _bags(
    root: Path,
    digest: str,
    split: str,
    count: int | None,
    sizes: tuple[int, int] | None,
    axes: tuple[object, ...],
) -> Sequences:
    """Return bags of so many recordings of a split with silence around each, or, sizes None, each as it is."""
    rng, spoken = generator("spoken-digits", split, *axes), read_all(root, digest)
    numbers_of_split = [n for n, take in enumerate(spoken.takes) if take in TAKES[split]]
    if not numbers_of_split:
        raise UsageError(
            f"{root} has no spoken digits for the {split} split, numbered {TAKES[split].start} and up"
        )
    numbers, (shortest, longest) = torch.ones(len(numbers_of_split), dtype=torch.int64), (0.0, 0.0)
    if sizes and count:
        numbers, (shortest, longest) = (
            torch.randint(sizes[0], sizes[1] + 1, (count,), generator=rng),
            GAP,
        )
    bags = draw_in_rounds(len(numbers_of_split), int(numbers.sum()), rng).split(numbers.tolist())[
        :count
    ]

    def recordings() -> Iterator[Recording]:
        for bag in bags:
            silences = (
                shortest + (longest - shortest) * torch.rand(len(bag) + 1, generator=rng)
            ) * SAMPLE_RATE
            start, *gaps = silences.round().int().tolist()
            sounds, events = [torch.zeros(start)], []
            for n, gap in zip(bag.tolist(), gaps, strict=True):
                sound = torch.from_numpy(
                    spoken.waveforms[numbers_of_split[n]] / np.float32(1 << 15)
                )
                events.append((spoken.digits[numbers_of_split[n]], start, start + len(sound)))
                sounds += [sound, torch.zeros(gap)]
                start += len(sound) + gap
            waveform = torch.cat(sounds)
            yield waveform + NOISE * torch.randn(len(waveform), generator=rng), events

    number_of = torch.tensor(numbers_of_split)
    origin = make_origin([number_of[bag] for bag in bags])
    return log_mel_sequences(recordings(), FRAMES, DIGITS, max(map(len, bags)), origin)
