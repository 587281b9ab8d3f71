"""Read the clips of ESC-10, short recordings of ten classes of sounds, as waveforms.

The silence that pads a clip at its beginning and end is cut off.
"""

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

FOLDER = Path("esc10")
"""Where the clips are, below the data directory."""
CLIPS = "*.ogg"
SAMPLE_RATE = 16_000
"""Samples a second of the waveforms that are returned; the clips of ESC-10 have 44,100."""
CLASSES = (
    "dog bark",
    "rain",
    "sea waves",
    "baby cry",
    "clock tick",
    "person sneeze",
    "helicopter",
    "chainsaw",
    "rooster",
    "fire crackling",
)
FOLDS = 5
SILENCE = 1e-4
"""Samples up to this are silence. It is 80 dB below 1, the largest possible sample."""


class Clips(NamedTuple):
    """N clips."""

    waveforms: Sequence[NDArray[np.float32]]
    """The samples (S_i,) of each clip i, in [-1, 1] and at `SAMPLE_RATE`."""
    classes: NDArray[np.int64]
    """(N,), numbered from 0 as in `CLASSES`."""
    folds: NDArray[np.int64]
    """(N,), from 0 to `FOLDS` - 1."""


def clip_files(root: Path) -> list[Path]:
    """Return the files of the clips in a data directory, sorted.

    Raises UsageError where there are none.
    """
    paths = sorted((root / FOLDER).rglob(CLIPS))
    if not paths:
        raise UsageError(f"{root / FOLDER} has no {CLIPS} files")
    return paths


@lru_cache(maxsize=1)
def read_all(root: Path, digest: str) -> Clips:
    """Return all clips, in the order of `clip_files`.

    Clips are decoded once and then kept in a cache. Another `digest` of the files
    makes another cache.
    """
    paths = clip_files(root)
    # Decoding takes long. The names are read first, so that a wrong name is found at once.
    classes, folds = np.array([_class_and_fold(path) for path in paths]).T

    def decode_all(new: Path, declare: DeclareInputs) -> Fields:  # noqa: ARG001
        declare([str(path.relative_to(root)) for path in paths])
        waveforms = [_decode(path) for path in paths]
        bounds = np.cumsum([0, *(len(waveform) for waveform in waveforms)])
        return {"samples": np.concatenate(waveforms), "ends": bounds}

    # The key holds all that changes the samples.
    key = hashlib.sha256(f"{digest} {SAMPLE_RATE} {SILENCE}".encode()).hexdigest()[:16]
    place = cache_place(root / FOLDER, "clips") / f"{FOLDER}-{key}"
    cached = cached_arrays(place, root, decode_all)
    samples = cached["samples"]
    waveforms = [samples[start:end] for start, end in pairwise(cached["ends"])]
    return Clips(waveforms, classes, folds)


def _class_and_fold(path: Path) -> tuple[int, int]:
    """Return the class and the fold of a clip, both counted from 0.

    The name of the clip has both, counted from 1. Raises UsageError for another name.
    """
    class_text = path.parent.name.split(" ")[0]
    fold_text = path.name.split("-")[0]
    try:
        cls = int(class_text) - 1
        fold = int(fold_text) - 1
        is_known = 0 <= cls < len(CLASSES) and 0 <= fold < FOLDS
    except ValueError:
        is_known = False
    if not is_known:
        parts = f"with a class from 1 to {len(CLASSES)} and a fold from 1 to {FOLDS}"
        raise UsageError(f"{path}: expected a name such as '001 - Dog bark/5-9032-A.ogg', {parts}")
    return cls, fold


def _decode(path: Path) -> NDArray[np.float32]:
    """Return the samples (S,) of a clip in one channel, at `SAMPLE_RATE`, without silent ends."""
    from scipy.signal import resample_poly

    soundfile = extras.load("soundfile", "audio", str(path))
    with reading(path, "is damaged"):
        samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
    mono = samples.mean(axis=1)
    loud = np.flatnonzero(np.abs(mono) > SILENCE)
    if not len(loud):
        raise UsageError(f"{path} is silent")
    trimmed = mono[loud[0] : loud[-1] + 1]
    # `resample_poly` takes whole factors: the ratio of the rates in lowest terms.
    common = np.gcd(rate, SAMPLE_RATE)
    return np.asarray(resample_poly(trimmed, SAMPLE_RATE // common, rate // common))
