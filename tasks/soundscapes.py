"""Which real sounds occur in a scene, and when: clips of ESC-10, overlapping or one by one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
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
    Event,
    Recording,
    Sequences,
    SequencesInMemory,
    SequenceSplits,
    log_mel_sequences,
)

FRAMES = LogMel(SAMPLE_RATE, hop=512, window=1024, bands=40)
SAMPLES = 10 * SAMPLE_RATE
"""The number of audio samples in a scene, which lasts ten seconds."""
LONGEST = SAMPLES * 24 // 100
"""The length of the longest sound in audio samples: 2.4 seconds. `MOST` of them fit in a scene."""
MOST = 4
"""The largest number of sounds in a scene."""
FADE = SAMPLE_RATE // 100
"""Over how many audio samples a sound fades in and out, so that its edges do not click."""
LEVEL = 0.1
"""The root mean square of a sound of the middle level."""
LEVEL_RANGE = 6.0
"""By how many decibels the level of a sound may differ from the middle level."""
NOISE = 1e-3
"""The standard deviation of the white noise in a scene."""


class Soundscapes(SequencesInMemory):
    """Find which of ten kinds of real sounds occur in a scene of ten seconds, and when.

    The sounds are ESC-10 (K. J. Piczak, "ESC: Dataset for Environmental Sound Classification", ACM
    Multimedia 2015): 400 clips of dogs, rain, sea waves and so on. A scene has one to four clips,
    all four numbers equally often, in faint white noise. Of each clip the loudest 2.4 seconds are
    heard, or all of a shorter clip, at a level of -6 to 6 decibels. A network gets 313 frames of 40
    log-mel bands.

    The five folds are the official ones, and all clips of one source recording are in the same
    fold. Seed s tests on fold s % 5, validates on the next fold (after the last fold comes the
    first), and trains on the other three. Training scenes are made once for a seed, the other
    scenes once for a fold. Every clip is used once before any is used again. The one-instance error
    is measured on scenes of a single clip.

    Args:
        overlap: the share of scenes in which every sound begins anywhere. In the other scenes, the
            same sounds come one after the other, at the same levels, and the remaining silence is
            divided between them at random.
        train_bags: the number of training scenes.
        any_data: accept other clips in such files; the results are then named non-canonical.
    """

    name = "soundscapes"
    amount_parameter = "train_bags"
    format = BagFormat(FRAMES.bands, tuple(CLASSES), FRAMES.frames_per_second)
    eval_bags: ClassVar[dict[Split, int]] = {"validation": 250, "test": 500}

    def __init__(
        self,
        overlap: Annotated[float, Field(ge=0, le=1)] = 1.0,
        train_bags: Annotated[int, Field(ge=1)] = 600,
        any_data: bool = False,
    ) -> None:
        super().__init__(batch_bags=32)
        # Not `overlap`, which is a method of every task.
        self.overlapping = overlap
        self.train_bags = train_bags
        self.any_data = any_data

    def recipe(self) -> Recipe:
        # The learning rate was the better of two on validation bags.
        return Recipe(lr=5e-3, epochs=60, evaluate_every=20, precision="float32")

    def datasets(self) -> Sequence[str]:
        if self.any_data:
            return ()
        return ("esc10",)

    def check_data(self, data_dir: Path | None) -> str:
        instead = catalog.how_to_get("esc10", FOLDER, "sound-events needs no download")
        extras.load("soundfile", "audio", self.name)
        return catalog.check_dataset(
            "esc10", "ESC-10", data_dir, clip_files, instead, any_data=self.any_data
        )

    def folds(self, data_dir: Path | None) -> Folds:  # noqa: ARG002
        return Folds(FOLDS, repeats=None)

    def overlap(self, data_dir: Path | None) -> float:  # noqa: ARG002
        # One fold is for tests, and another for validation.
        trained_folds = FOLDS - 2
        return 1 / trained_folds

    def sequences(self, data_dir: Path | None, seed: int, limit: int | None) -> SequenceSplits:
        root = catalog.data_dir(data_dir)
        digest = self.check_data(data_dir)
        split = official_split(read_all(root, digest).folds, FOLDS, seed)
        fold = seed % FOLDS

        def scenes(clips: NDArray[np.int64], sampling: SceneSampling) -> Sequences:
            return _scenes(root, digest, tuple(clips.tolist()), sampling)

        train = scenes(split.train, self._sampling(self.train_bags, "train", seed))
        evaluated: dict[Split, Sequences] = {}
        single: dict[Split, Sequences] = {}
        for part, clips in split.evaluated.items():
            several = self._sampling(limited(self.eval_bags[part], limit), part, fold)
            evaluated[part] = scenes(clips, several)
            # Scenes of one clip each.
            alone = self._sampling(limited(len(clips), limit), part, fold)
            single[part] = scenes(clips, replace(alone, most=1))
        return SequenceSplits(train, evaluated, single)

    def _sampling(self, count: int, *axes: object) -> "SceneSampling":
        return SceneSampling(count, MOST, self.overlapping, (self.revision, *axes))


@dataclass(frozen=True)
class SceneSampling:
    """How scenes are made at random."""

    count: int
    """The number of scenes."""
    most: int
    """The largest number of sounds in a scene; the smallest is 1."""
    overlap: float
    """The share of scenes in which every sound begins anywhere."""
    axes: tuple[object, ...]
    """What the seed is made from, besides `most`."""


# Cached, so that the cells that one process computes share their scenes.
@lru_cache(maxsize=8)
def _scenes(root: Path, digest: str, clips: tuple[int, ...], sampling: SceneSampling) -> Sequences:
    """Return scenes made of the clips with the numbers in `clips`.

    The overlap decides only where sounds begin: clips, levels and noise are the same for any value.
    """
    rng = generator("soundscapes", sampling.most, *sampling.axes)
    recorded = read_all(root, digest)
    sounds = {clip: cut_sound(recorded.waveforms[clip]) for clip in clips}
    sizes = torch.randint(1, sampling.most + 1, (sampling.count,), generator=rng)
    total = int(sizes.sum())
    chosen = torch.tensor(clips)[draw_in_rounds(len(clips), total, rng)]
    are_one_by_one = torch.rand(sampling.count, generator=rng) >= sampling.overlap
    # Two uniform numbers from 0 to 1 for each sound, for its start and its level.
    start_numbers, levels = torch.rand(2, total, generator=rng)
    # Uniform on -LEVEL_RANGE..LEVEL_RANGE.
    decibels = (2 * levels - 1) * LEVEL_RANGE
    amplitudes = LEVEL * 10 ** (decibels / 20)

    def scenes() -> Iterator[Recording]:
        sounds_of_scenes = torch.arange(total).split(sizes.tolist())
        for one_by_one, scene in zip(are_one_by_one.tolist(), sounds_of_scenes, strict=True):
            clips_of_scene = chosen[scene].tolist()
            heard = [sounds[clip] for clip in clips_of_scene]
            lengths = torch.tensor([len(sound) for sound in heard])
            if one_by_one:
                starts = _starts_one_by_one(lengths, start_numbers[scene])
            else:
                starts = _starts_anywhere(lengths, start_numbers[scene])
            ends = starts + lengths
            waveform = NOISE * torch.randn(SAMPLES, generator=rng)
            for sound, amplitude, start in zip(heard, amplitudes[scene], starts, strict=True):
                waveform[start : start + len(sound)] += amplitude * sound
            classes = recorded.classes[clips_of_scene].tolist()
            events = zip(classes, starts.tolist(), ends.tolist(), strict=True)
            yield waveform, sorted(events, key=_start_and_end)

    origin = make_origin(chosen.split(sizes.tolist()))
    return log_mel_sequences(scenes(), FRAMES, len(CLASSES), sampling.most, origin)


def _starts_anywhere(lengths: Tensor, start_numbers: Tensor) -> Tensor:
    """Return (n,), the first audio sample of each sound in a scene where sounds may overlap.

    Args:
        lengths: (n,), the length of each sound, in audio samples.
        start_numbers: (n,), uniform on 0..1.
    """
    return (start_numbers * (SAMPLES - lengths)).long()


def _starts_one_by_one(lengths: Tensor, start_numbers: Tensor) -> Tensor:
    """Return (n,), the first audio sample of each sound in a scene where one follows the other.

    Args:
        lengths: (n,), the length of each sound, in audio samples.
        start_numbers: (n,), uniform on 0..1. Their order is the order of the sounds, and each says
            what share of all silence is before its sound.
    """
    silence = SAMPLES - lengths.sum()
    silence_before = (start_numbers * silence).long()
    is_earlier = start_numbers < start_numbers.unsqueeze(1)
    sound_before = is_earlier.long() @ lengths
    return silence_before + sound_before


def _start_and_end(event: Event) -> tuple[int, int]:
    _, start, end = event
    return start, end


def cut_sound(waveform: NDArray[np.float32]) -> Tensor:
    """Return the loudest part of a clip (S,), faded in and out, with a mean power of 1.

    It has `LONGEST` audio samples, or all of a shorter clip.
    """
    length = min(LONGEST, len(waveform))
    energy_before = np.concatenate([[0], np.square(waveform, dtype=np.float64).cumsum()])
    energy_of_parts = energy_before[length:] - energy_before[:-length]
    first = int(energy_of_parts.argmax())
    # `torch.tensor` copies: the clip itself must not change below.
    sound = torch.tensor(waveform[first : first + length])
    rise = (torch.arange(length) + 1) / FADE
    fall = rise.flip(0)
    sound *= torch.minimum(rise, fall).clamp(max=1)
    return sound / sound.square().mean().sqrt()
