"""Which real sounds occur in a scene, and when: clips of ESC-10 laid over one another, or one after the other."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from milbench._utils import extras
from milbench._utils.seeding import generator
from milbench.api.bags import label_matrix
from milbench.api.recipe import Recipe
from milbench.api.task import Folds, Split
from milbench.data.catalog import checked
from milbench.data.catalog import data_dir as default_data_dir
from milbench.data.esc10 import CLASSES, FOLDER, FOLDS, SAMPLE_RATE, clip_files, read_all
from milbench.data.log_mel import LogMel
from milbench.data.splits import official_split
from milbench.errors import UsageError
from milbench.families.fixed_bags import in_rounds, truth_of
from milbench.families.sequences import Sequences, SequenceSplits, SequenceTask

FRAMES = LogMel(SAMPLE_RATE, hop=512, window=1024, bands=40)
SAMPLES = 10 * SAMPLE_RATE
LONGEST = SAMPLES * 24 // 100
"""The longest sound, 2.4 seconds, in samples: four of them fit into a scene one after the other."""
FADE = SAMPLE_RATE // 100
"""The samples in which a sound begins and ends, so that its edges are no clicks."""
MOST = 4
"""Sounds in a scene."""
LEVEL, SPREAD, NOISE = 0.1, 6.0, 1e-3
"""The middle root mean square of a sound, how many decibels it differs from that, and the white noise in all of it."""
_AT_ONCE = 50
"""Scenes that become frames together: waveforms take twelve times the memory of their frames."""
MISSING = (
    f"point --data-dir or MILBENCH_DATA at a folder with {FOLDER}, or fetch it with `milbench data fetch esc10`; the "
    "task sound-events needs no download"
)


class Soundscapes(SequenceTask):
    """Find which of ten kinds of real sounds occur in a scene of ten seconds, and when, given the set of them.

    ESC-10 (K. J. Piczak, "ESC: Dataset for Environmental Sound Classification", ACM Multimedia 2015): 400 clips of
    dogs, rain, sea waves and so on. A scene has one to four of them, all numbers equally frequent, in faint white
    noise. Of a clip the loudest 2.4 seconds are heard, or all where there is less between the silence that it is padded
    with, at a level of -6 to 6 decibels. What a network gets are 313 frames of 40 log-mel bands. The five folds are the
    official ones, and clips of one source recording are in one of them: seed s tests on fold s % 5, validates on the
    next one, the first after the last, and trains on the other three. Training scenes are drawn once a seed, those to
    validate and test on are the same whatever is trained on; every clip is used before any is used again. The
    one-instance error is that of scenes with each clip by itself.

    Args:
        overlap: the share of scenes in which every sound begins anywhere, whatever the others do. In the rest sounds
            come one after the other, and the silence that they leave is spread between them by chance: of the same
            scenes, at the same levels, no two sounds are then heard at a time.
        train_bags: the number of training scenes.
        any_data: accept other clips in such files; the results are then named non-canonical.
    """

    name = "soundscapes"
    amount = "train_bags"
    num_classes = len(CLASSES)
    frames_per_second = FRAMES.frames_per_second
    folds = Folds(FOLDS, repeats=None)
    eval_bags: ClassVar[dict[Split, int]] = {"validation": 250, "test": 500}

    def __init__(
        self,
        overlap: Annotated[float, Field(ge=0, le=1)] = 1.0,
        train_bags: Annotated[int, Field(ge=1)] = 600,
        any_data: bool = False,
    ) -> None:
        super().__init__(batch_bags=32)
        self.overlapping = overlap
        self.train_bags = train_bags
        self.any_data = any_data
        self.inputs = FRAMES.bands

    @property
    def class_names(self) -> list[str]:
        return list(CLASSES)

    def recipe(self) -> Recipe:
        """Return one-cycle AdamW; the rate was chosen of two on validation scenes of seed 0, for three losses."""
        return Recipe(lr=5e-3, epochs=60, evaluate_every=20, precision="float32")

    def check_data(self, data_dir: Path | None) -> str:
        def look(root: Path) -> None:
            if not clip_files(root):
                raise UsageError(f"no clips found; {MISSING}")

        extras.load("soundfile", "audio", self.name)
        return checked("esc10", "ESC-10", data_dir, look, MISSING, any_data=self.any_data)

    def overlap(self, data_dir: Path | None) -> float:  # noqa: ARG002
        return 1 / (FOLDS - 2)

    def load(self, data_dir: Path | None) -> SequenceSplits:
        root, digest = default_data_dir(data_dir), self.check_data(data_dir)
        split = official_split(read_all(root, digest).folds, FOLDS, self.seed)

        def scenes(part: str, count: int, most: int = MOST) -> Sequences:
            clips, axis = tuple(getattr(split, part).tolist()), self.seed
            if part != "train":
                count, axis = len(range(count)[: self.evaluation_limit]), self.seed % FOLDS
            return _scenes(root, digest, clips, count, most, self.overlapping, (self.revision, part, axis))

        return SequenceSplits(
            scenes("train", self.train_bags),
            {part: scenes(part, count) for part, count in self.eval_bags.items()},
            {part: scenes(part, len(getattr(split, part)), most=1) for part in self.eval_bags},
        )


@lru_cache(maxsize=8)  # the cells of one process share their scenes
def _scenes(
    root: Path, digest: str, clips: tuple[int, ...], count: int, most: int, overlap: float, axes: tuple[object, ...]
) -> Sequences:
    """Return scenes of one to `most` clips of those with some numbers; what is drawn does not depend on `overlap`."""
    rng, known, classes = generator("soundscapes", most, *axes), _sounds(root, digest), read_all(root, digest).classes
    numbers = torch.randint(1, most + 1, (count,), generator=rng)
    chosen = torch.tensor(clips)[in_rounds(len(clips), int(numbers.sum()), rng)]
    apart = torch.rand(count, generator=rng) >= overlap
    places, decibels = torch.rand(2, len(chosen), generator=rng)
    amplitudes = LEVEL * 10 ** ((2 * decibels - 1) * SPREAD / 20)
    frames, events = torch.empty(count, FRAMES.bands, FRAMES.count(SAMPLES)), []
    last = numbers.cumsum(dim=0).tolist()
    for first in range(0, count, _AT_ONCE):
        waveforms = NOISE * torch.randn(min(_AT_ONCE, count - first), SAMPLES, generator=rng)
        for n, waveform in enumerate(waveforms, start=first):
            own = slice(last[n] - int(numbers[n]), last[n])
            sounds = [known[clip] for clip in chosen[own].tolist()]
            begun = starts(torch.tensor([*map(len, sounds)]), places[own], bool(apart[n]))
            found = []
            for clip, sound, amplitude, start in zip(chosen[own], sounds, amplitudes[own], begun.tolist(), strict=True):
                waveform[start : start + len(sound)] += amplitude * sound
                box = start / FRAMES.hop, 0, (start + len(sound)) / FRAMES.hop, FRAMES.bands
                found.append((int(classes[clip]), box))
            events.append(sorted(found, key=lambda event: event[1]))
        frames[first : first + len(waveforms)] = FRAMES(waveforms)
    truth = truth_of(events, most)
    return Sequences(list(frames), [frames.shape[2]] * count, label_matrix(truth.classes, len(CLASSES)), truth)


@lru_cache(maxsize=1)
def _sounds(root: Path, digest: str) -> list[Tensor]:
    return [*map(sound_of, read_all(root, digest).waveforms)]


def starts(lengths: Tensor, places: Tensor, apart: bool) -> Tensor:
    """Return the samples at which sounds begin in a scene, each anywhere or, `apart`, one after the other.

    Args:
        lengths: (M,) int64, of the sounds in samples.
        places: (M,) uniform in [0, 1), which decide where a sound begins and, if they are apart, their order.
        apart: whether they are.

    Examples:
        >>> starts(torch.tensor([16000, 32000]), torch.tensor([0.5, 0.25]), apart=False)
        tensor([72000, 32000])
        >>> starts(torch.tensor([16000, 32000]), torch.tensor([0.5, 0.25]), apart=True)
        tensor([88000, 28000])
    """
    before = (places < places.unsqueeze(1)).long() @ lengths
    free = SAMPLES - (lengths.sum() if apart else lengths)
    return (places * free).long() + (before if apart else 0)


def sound_of(waveform: NDArray[np.float32]) -> Tensor:
    """Return the loudest part of a clip (S,), `LONGEST` samples or all, with soft edges and a mean power of 1."""
    energy = np.concatenate([[0], np.square(waveform, dtype=np.float64).cumsum()])
    length = min(LONGEST, len(waveform))
    first = int((energy[length:] - energy[:-length]).argmax())
    sound = torch.tensor(waveform[first : first + length])
    edge = (torch.arange(length) + 1) / FADE
    sound *= torch.minimum(edge, edge.flip(0)).clamp(max=1)
    return sound / sound.square().mean().sqrt()
