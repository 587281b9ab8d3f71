"""Which sounds occur in a recording, and when: generated tones, sweeps, clicks and noises that overlap in noise."""

from functools import lru_cache
from pathlib import Path
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from milbench import BagFormat, Origin, Split, Truth, generator, label_matrix
from milbench.data.log_mel import LogMel
from milbench.data.sounds import CLASSES, SAMPLE_RATE, DrawnRecordings, draw_recordings
from milbench.families.fixed_bags import limited
from milbench.families.sequences import Sequences, SequencesInMemory, SequenceSplits

FRAMES = LogMel(SAMPLE_RATE, hop=128, window=256, bands=32)
_AT_ONCE = 50
"""How many recordings are drawn at once: waveforms take four times the memory of their frames."""


class SoundEvents(SequencesInMemory):
    """Find which of eight kinds of sounds occur in a recording, and when, given the label set.

    A recording has two seconds, and 0 to `max_events` sounds of 0.2 to 0.5 seconds in white noise.
    Number, classes, lengths and beginnings are uniform and independent; sounds may overlap. A
    network gets 125 frames of 32 log-mel bands. Training recordings are drawn once a seed, since to
    draw them takes longer than to train on them; those to validate and test on are the same for all
    seeds.

    Args:
        snr_db: the mean power of every sound while it lasts, above that of the noise, in decibels.
        max_events: the largest number of sounds in a recording.
        train_bags: the number of training recordings.
        bags_per_epoch: how many recordings an epoch has, cycling through all of them; None: each
            once. With it few recordings and many are trained on for the same number of steps.
    """

    name = "sound-events"
    amount_parameter = "train_bags"
    format = BagFormat(FRAMES.bands, tuple(CLASSES), FRAMES.frames_per_second)
    eval_bags: ClassVar[dict[Split, int]] = {"validation": 1000, "test": 4000}
    single_bags: ClassVar[dict[Split, int]] = {"validation": 250, "test": 1000}
    """How many recordings of one sound each split has."""

    def __init__(
        self,
        snr_db: Annotated[float, Field(ge=-40, le=60)] = -5.0,
        max_events: Annotated[int, Field(ge=1, le=16)] = 4,
        train_bags: Annotated[int, Field(ge=1)] = 5000,
        bags_per_epoch: Annotated[int, Field(ge=1, le=10_000_000)] | None = None,
    ) -> None:
        super().__init__(batch_bags=32, bags_per_epoch=bags_per_epoch)
        self.snr_db = snr_db
        self.max_events = max_events
        self.train_bags = train_bags
        # The most frequent label set is the empty one.
        self.chance = 1 - 1 / (max_events + 1)

    def check_data(self, data_dir: Path | None) -> str:  # noqa: ARG002
        return f"generated, revision {self.revision}"

    def sequences(self, data_dir: Path | None, seed: int, limit: int | None) -> SequenceSplits:  # noqa: ARG002
        train = self._draw(self.train_bags, "train", seed)
        evaluated: dict[Split, Sequences] = {}
        single: dict[Split, Sequences] = {}
        for split, count in self.eval_bags.items():
            evaluated[split] = self._draw(limited(count, limit), split, "many")
        for split, count in self.single_bags.items():
            single[split] = self._draw_single(limited(count, limit), split, "single")
        return SequenceSplits(train, evaluated, single)

    def _draw(self, bags: int, *axes: object) -> Sequences:
        """Return recordings of 0 to `max_events` sounds, drawn by a seed that the axes decide."""
        seed_axes = (self.name, self.revision, *axes)
        return _draw_sequences(bags, 0, self.max_events, self.snr_db, seed_axes)

    def _draw_single(self, bags: int, *axes: object) -> Sequences:
        """Return recordings of one sound each."""
        seed_axes = (self.name, self.revision, *axes)
        return _draw_sequences(bags, 1, 1, self.snr_db, seed_axes)


# The cells that one process computes share their recordings.
@lru_cache(maxsize=5)
def _draw_sequences(
    bags: int, least: int, most: int, snr_db: float, seed_axes: tuple[object, ...]
) -> Sequences:
    """Return recordings of `least` to `most` sounds."""
    rng = generator(*seed_axes)
    frames: list[Tensor] = []
    classes: list[Tensor] = []
    boxes: list[Tensor] = []
    for part in torch.arange(bags).split(_AT_ONCE):
        recordings = draw_recordings(len(part), least, most, snr_db, rng)
        frames += FRAMES(recordings.waveforms)
        classes.append(recordings.classes)
        boxes.append(_boxes_of(recordings))
    truth = Truth(torch.cat(classes), torch.cat(boxes))
    lengths = [mel.shape[1] for mel in frames]
    labels = label_matrix(truth.classes, len(CLASSES))
    return Sequences(frames, lengths, labels, truth, Origin(torch.arange(bags)))


def _boxes_of(recordings: DrawnRecordings) -> Tensor:
    """Return the box of every sound (B, M, 4): from its first to its last frame, over all bands."""
    start = FRAMES.frames_per_second * recordings.starts
    end = FRAMES.frames_per_second * recordings.ends
    lowest_band = torch.zeros_like(start)
    highest_band = torch.full_like(end, FRAMES.bands)
    return torch.stack([start, lowest_band, end, highest_band], dim=2)
