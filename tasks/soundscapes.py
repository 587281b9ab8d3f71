"""Which real sounds occur in a scene, and when: clips of ESC-10 laid over one another, or one after the other."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from milbench import BagFormat, Folds, Recipe, Split, generator
from milbench._utils import extras
from milbench.data import catalog
from milbench.data.esc10 import CLASSES, FOLDER, FOLDS, SAMPLE_RATE, clip_files, read_all
from milbench.data.log_mel import LogMel
from milbench.data.splits import official_split
from milbench.families.fixed_bags import draw_in_rounds, limited, make_origin
from milbench.families.sequences import (
    Recording,
    Sequences,
    SequencesInMemory,
    SequenceSplits,
    log_mel_sequences,
)

FRAMES = LogMel(SAMPLE_RATE, hop=512, window=1024, bands=40)
SAMPLES = 10 * SAMPLE_RATE
LONGEST = (
    SAMPLES * 24 // 100
)  # of a sound: 2.4 seconds, so that MOST fit into a scene one after the other
MOST = 4  # sounds in a scene
FADE = SAMPLE_RATE // 100  # in which a sound begins and ends, so that its edges are no clicks
LEVEL, SPREAD = (
    0.1,
    6.0,
)  # the middle root mean square of a sound, and how many decibels it differs from that at most
NOISE = 1e-3  # the standard deviation of the white noise in a scene


class Soundscapes(SequencesInMemory):
    """Find which of ten kinds of real sounds occur in a scene of ten seconds, and when, given the set of them.

    ESC-10 (K. J. Piczak, "ESC: Dataset for Environmental Sound Classification", ACM Multimedia 2015): 400 clips of
    dogs, rain, sea waves and so on. A scene has one to four of them, all numbers equally frequent, in faint white
    noise. Of a clip the loudest 2.4 seconds are heard, or all where there is less, at a level of -6 to 6 decibels. A
    network gets 313 frames of 40 log-mel bands. The five folds are the official ones, and clips of one source recording
    are in one of them: seed s tests on fold s % 5, validates on the next one, the first after the last, and trains on
    the other three. Training scenes are drawn once a seed, the others once a fold; every clip is used before any is
    used again. The one-instance error is that of scenes with each clip by itself.

    Args:
        overlap: the share of scenes in which every sound begins anywhere. In the rest the same sounds, at the same
            levels, come one after the other, with the silence that they leave spread between them by chance.
        train_bags: the number of training scenes.
        any_data: accept other clips in such files; the results are then named non-canonical.
    """

    name = "soundscapes"
    amount_parameter = "train_bags"
    format = BagFormat(FRAMES.bands, (*CLASSES,), FRAMES.frames_per_second)
    eval_bags: ClassVar[dict[Split, int]] = {"validation": 250, "test": 500}

    def __init__(
        self,
        overlap: Annotated[float, Field(ge=0, le=1)] = 1.0,
        train_bags: Annotated[int, Field(ge=1)] = 600,
        any_data: bool = False,
    ) -> None:
        super().__init__(batch_bags=32)
        self.overlapping, self.train_bags, self.any_data = overlap, train_bags, any_data

    def recipe(self) -> Recipe:
        return Recipe(
            lr=5e-3, epochs=60, evaluate_every=20, precision="float32"
        )  # lr: best of two on validation

    def datasets(self) -> Sequence[str]:
        return () if self.any_data else ("esc10",)

    def check_data(self, data_dir: Path | None) -> str:
        instead = catalog.how_to_get("esc10", FOLDER, "sound-events needs no download")
        extras.load("soundfile", "audio", self.name)
        return catalog.check_dataset(
            "esc10", "ESC-10", data_dir, clip_files, instead, any_data=self.any_data
        )

    def folds(self, data_dir: Path | None) -> Folds:  # noqa: ARG002
        return Folds(FOLDS, repeats=None)

    def overlap(self, data_dir: Path | None) -> float:  # noqa: ARG002
        return 1 / (FOLDS - 2)

    def sequences(self, data_dir: Path | None, seed: int, limit: int | None) -> SequenceSplits:
        root, digest = catalog.data_dir(data_dir), self.check_data(data_dir)
        split = official_split(read_all(root, digest).folds, FOLDS, seed)
        fold = seed % FOLDS

        def scenes(
            part: str, clips: NDArray[np.int64], count: int, seed: int, most: int = MOST
        ) -> Sequences:
            axes = self.revision, part, seed
            return _scenes(root, digest, tuple(clips.tolist()), count, most, self.overlapping, axes)

        parts = split.evaluated.items()
        return SequenceSplits(
            scenes("train", split.train, self.train_bags, seed),
            {
                part: scenes(part, clips, limited(self.eval_bags[part], limit), fold)
                for part, clips in parts
            },
            {
                part: scenes(part, clips, limited(len(clips), limit), fold, most=1)
                for part, clips in parts
            },
        )


@lru_cache(maxsize=8)  # the cells of one process share their scenes
def _scenes(
    root: Path,
    digest: str,
    clips: tuple[int, ...],
    count: int,
    most: int,
    overlap: float,
    axes: tuple[object, ...],
) -> Sequences:
    """Return scenes of one to `most` clips of those with some numbers; what is drawn does not depend on `overlap`."""
    rng, recorded = generator("soundscapes", most, *axes), read_all(root, digest)
    sounds = {clip: cut_sound(recorded.waveforms[clip]) for clip in clips}
    numbers = torch.randint(1, most + 1, (count,), generator=rng)
    chosen = torch.tensor(clips)[draw_in_rounds(len(clips), int(numbers.sum()), rng)]
    in_sequence = (torch.rand(count, generator=rng) >= overlap).tolist()
    places, decibels = torch.rand(2, len(chosen), generator=rng)
    amplitudes = LEVEL * 10 ** ((2 * decibels - 1) * SPREAD / 20)

    def scenes() -> Iterator[Recording]:
        for number, scene in enumerate(torch.arange(len(chosen)).split(numbers.tolist())):
            waveform, events = NOISE * torch.randn(SAMPLES, generator=rng), []
            heard, order = [sounds[clip] for clip in chosen[scene].tolist()], places[scene]
            lengths = torch.tensor([*map(len, heard)])
            onsets = order * (
                SAMPLES - (lengths.sum() if in_sequence[number] else lengths)
            )  # or where silence ends
            before = (order < order.unsqueeze(1)).long() @ lengths if in_sequence[number] else 0
            starts = (onsets.long() + before).tolist()
            for clip, sound, amplitude, start in zip(
                chosen[scene], heard, amplitudes[scene], starts, strict=True
            ):
                waveform[start : start + len(sound)] += amplitude * sound
                events.append((int(recorded.classes[clip]), start, start + len(sound)))
            yield waveform, sorted(events, key=lambda event: event[1:])

    origin = make_origin(chosen.split(numbers.tolist()))
    return log_mel_sequences(scenes(), FRAMES, len(CLASSES), most, origin)


def cut_sound(waveform: NDArray[np.float32]) -> Tensor:
    """Return the loudest part of a clip (S,), `LONGEST` samples or all, with soft edges and a mean power of 1."""
    energy = np.concatenate([[0], np.square(waveform, dtype=np.float64).cumsum()])
    length = min(LONGEST, len(waveform))
    first = int((energy[length:] - energy[:-length]).argmax())
    sound = torch.tensor(waveform[first : first + length])
    edge = (torch.arange(length) + 1) / FADE
    sound *= torch.minimum(edge, edge.flip(0)).clamp(max=1)
    return sound / sound.square().mean().sqrt()
