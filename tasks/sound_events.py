"""Which sounds occur in a recording, and when: generated tones, sweeps, clicks and noises that overlap in noise."""

from functools import lru_cache
from pathlib import Path
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from milbench import BagFormat, Origin, Split, Truth, generator, label_matrix
from milbench.data.log_mel import LogMel
from milbench.data.sounds import CLASSES, SAMPLE_RATE, draw_recordings
from milbench.families.fixed_bags import limited
from milbench.families.sequences import Sequences, SequencesInMemory, SequenceSplits

FRAMES = LogMel(SAMPLE_RATE, hop=128, window=256, bands=32)
_AT_ONCE = (
    50  # recordings that are drawn at once: waveforms take four times the memory of their frames
)


class SoundEvents(SequencesInMemory):
    """Find which of eight kinds of sounds occur in a recording, and when, given the label set.

    A recording has two seconds, and 0 to `max_events` sounds of 0.2 to 0.5 seconds in white noise. Number, classes,
    lengths and beginnings are uniform and independent; sounds may overlap. A network gets 125 frames of 32 log-mel
    bands. Training recordings are drawn once a seed, since to draw them takes longer than to train on them; those to
    validate and test on are the same for all seeds.

    Args:
        snr_db: the mean power of every sound while it lasts, above that of the noise, in decibels.
        max_events: the largest number of sounds in a recording.
        train_bags: the number of training recordings.
        bags_per_epoch: how many recordings an epoch has, cycling through all of them; None: each once. With it few
            recordings and many are trained on for the same number of steps.
    """

    name = "sound-events"
    amount_parameter = "train_bags"
    format = BagFormat(FRAMES.bands, (*CLASSES,), FRAMES.frames_per_second)
    eval_bags: ClassVar[dict[Split, int]] = {"validation": 1000, "test": 4000}
    single_bags: ClassVar[dict[Split, int]] = {
        "validation": 250,
        "test": 1000,
    }  # recordings of one sound each

    def __init__(
        self,
        snr_db: Annotated[float, Field(ge=-40, le=60)] = -5.0,
        max_events: Annotated[int, Field(ge=1, le=16)] = 4,
        train_bags: Annotated[int, Field(ge=1)] = 5000,
        bags_per_epoch: Annotated[int, Field(ge=1, le=10_000_000)] | None = None,
    ) -> None:
        super().__init__(batch_bags=32, bags_per_epoch=bags_per_epoch)
        self.snr_db, self.max_events, self.train_bags = snr_db, max_events, train_bags
        self.chance = 1 - 1 / (max_events + 1)  # by the most frequent label set, the empty one

    def check_data(self, data_dir: Path | None) -> str:  # noqa: ARG002
        return f"generated, revision {self.revision}"

    def sequences(self, data_dir: Path | None, seed: int, limit: int | None) -> SequenceSplits:  # noqa: ARG002
        def draw(count: int, least: int, most: int, *axes: object) -> Sequences:
            return _draw_sequences(
                count, least, most, self.snr_db, (self.name, self.revision, *axes)
            )

        most = self.max_events
        return SequenceSplits(
            draw(self.train_bags, 0, most, "train", seed),
            {
                split: draw(limited(count, limit), 0, most, split, "many")
                for split, count in self.eval_bags.items()
            },
            {
                split: draw(limited(count, limit), 1, 1, split, "single")
                for split, count in self.single_bags.items()
            },
        )


@lru_cache(maxsize=5)  # the cells of a comparison that one process computes share their recordings
def _draw_sequences(
    bags: int, least: int, most: int, snr_db: float, axes: tuple[object, ...]
) -> Sequences:
    rng, frames = generator(*axes), list[Tensor]()
    classes, boxes = [], []
    for part in torch.arange(bags).split(_AT_ONCE):
        recordings = draw_recordings(len(part), least, most, snr_db, rng)
        frames += FRAMES(recordings.waveforms)
        start, end = (
            FRAMES.frames_per_second * seconds for seconds in (recordings.starts, recordings.ends)
        )
        classes.append(recordings.classes)
        boxes.append(
            torch.stack(
                [start, torch.zeros_like(start), end, torch.full_like(end, FRAMES.bands)], dim=2
            )
        )
    truth = Truth(torch.cat(classes), torch.cat(boxes))
    lengths = [mel.shape[1] for mel in frames]
    labels = label_matrix(truth.classes, len(CLASSES))
    return Sequences(frames, lengths, labels, truth, Origin(torch.arange(bags)))
