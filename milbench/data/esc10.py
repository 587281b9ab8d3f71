"""ESC-10, short recordings of ten kinds of sounds, read as waveforms without the silence that they are padded with."""

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from milbench._utils import extras
from milbench._utils.files import reading
from milbench.data.array_cache import DeclareInputs, Fields, cache_place, cached_arrays
from milbench.errors import UsageError

FOLDER = Path("esc10")  # where the clips are, below the data directory
CLIPS = "*.ogg"
SAMPLE_RATE = 16_000  # samples a second of what is returned; the clips of ESC-10 have 44,100
CLASSES = (
    "dog bark", "rain", "sea waves", "baby cry", "clock tick", "person sneeze", "helicopter", "chainsaw", "rooster",
    "fire crackling",
)  # fmt: skip
FOLDS = 5
SILENCE = (
    1e-4  # softer beginnings and ends of clips are cut off: 80 dB below the loudest possible sound
)


class Clips(NamedTuple):
    """N waveforms (S_i,) in [-1, 1] at `SAMPLE_RATE`, with their classes (N,) and folds (N,), both from 0."""

    waveforms: Sequence[NDArray[np.float32]]
    classes: NDArray[np.int64]
    folds: NDArray[np.int64]


def clip_files(root: Path) -> list[Path]:
    """Return the clips below a data directory, sorted. Raises UsageError where there are none."""
    if not (paths := sorted((root / FOLDER).rglob(CLIPS))):
        raise UsageError(f"{root / FOLDER} has no {CLIPS} files")
    return paths


@lru_cache(maxsize=1)
def read_all(root: Path, digest: str) -> Clips:
    """Return all clips, sorted by file name; they are decoded once, and again where the `digest` of the data is new."""
    paths = clip_files(root)
    classes, folds = np.array([*map(_class_and_fold, paths)]).T

    def decode(new: Path, declare: DeclareInputs) -> Fields:  # noqa: ARG001
        declare([str(path.relative_to(root)) for path in paths])
        waveforms = [_decode(path) for path in paths]
        return {"samples": np.concatenate(waveforms), "ends": np.cumsum([0, *map(len, waveforms)])}

    key = hashlib.sha256(f"{digest} {SAMPLE_RATE} {SILENCE}".encode()).hexdigest()[:16]
    cached = cached_arrays(cache_place(root / FOLDER, "clips") / f"{FOLDER}-{key}", root, decode)
    return Clips(
        [cached["samples"][start:end] for start, end in pairwise(cached["ends"])], classes, folds
    )


def _class_and_fold(path: Path) -> tuple[int, int]:
    try:
        number, fold = int(path.parent.name.split(" ")[0]), int(path.name.split("-")[0])
        return range(len(CLASSES)).index(number - 1), range(FOLDS).index(fold - 1)
    except ValueError:
        parts = f"with a class from 1 to {len(CLASSES)} and a fold from 1 to {FOLDS}"
        raise UsageError(
            f"{path}: expected a name such as '001 - Dog bark/5-9032-A.ogg', {parts}"
        ) from None


def _decode(path: Path) -> NDArray[np.float32]:
    from scipy.signal import resample_poly

    soundfile = extras.load("soundfile", "audio", str(path))
    with reading(path, "is damaged"):
        samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
    mono = samples.mean(axis=1)
    loud = np.flatnonzero(np.abs(mono) > SILENCE)
    if not len(loud):
        raise UsageError(f"{path} is silent")
    common = np.gcd(rate, SAMPLE_RATE)
    return np.asarray(
        resample_poly(mono[loud[0] : loud[-1] + 1], SAMPLE_RATE // common, rate // common)
    )
