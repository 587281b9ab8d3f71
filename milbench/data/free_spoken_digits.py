"""Read the recordings of the Free Spoken Digit Dataset as waveforms."""

import wave
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from milbench._utils.files import reading
from milbench.errors import UsageError

SAMPLE_RATE = 8000
"""Samples a second."""
FOLDER = Path("spoken-digits/recordings")
"""Where the recordings are, below the data directory."""


class Recordings(NamedTuple):
    """N recordings, each of one spoken digit."""

    waveforms: Sequence[NDArray[np.int16]]
    """The samples (S_i,) of each recording i, at `SAMPLE_RATE`."""
    digits: Sequence[int]
    """The digit of each recording, from 0 to 9."""
    takes: Sequence[int]
    """The number of each recording among those of its speaker and digit, counted from 0.

    Takes 0 to 4 are the official test set.
    """


def wav_files(root: Path) -> list[Path]:
    """Return the files of the recordings in a data directory, sorted by name.

    Raises UsageError where there are none.
    """
    paths = sorted((root / FOLDER).glob("*.wav"))
    if not paths:
        raise UsageError(f"{root / FOLDER} has no .wav files")
    return paths


@lru_cache(maxsize=1)
def read_all(root: Path, digest: str) -> Recordings:  # noqa: ARG001
    """Return all recordings, in the order of `wav_files`.

    They are kept in memory for the next call. `digest` is that of the files: with another one the
    files are read again.
    """
    waveforms = []
    digits = []
    takes = []
    for path in wav_files(root):
        digit, take = _digit_and_take(path)
        waveforms.append(_read_samples(path))
        digits.append(digit)
        takes.append(take)
    return Recordings(waveforms, digits, takes)


def _digit_and_take(path: Path) -> tuple[int, int]:
    """Return the digit and the take of a recording, which its name has. Raises UsageError."""
    try:
        digit_text, _, take_text = path.stem.split("_")
        digit = int(digit_text)
        take = int(take_text)
        is_digit = 0 <= digit <= 9
    except ValueError:
        is_digit = False
    if not is_digit:
        raise UsageError(
            f"{path}: expected a name such as 7_theo_12.wav, with a digit, a speaker, a number"
        )
    return digit, take


def _read_samples(path: Path) -> NDArray[np.int16]:
    """Return the samples (S,) of a recording.

    Raises UsageError for a recording whose format is not that of the data set.
    """
    with reading(path, "is damaged"), wave.open(str(path)) as file:
        is_mono = file.getnchannels() == 1
        has_two_bytes = file.getsampwidth() == 2
        has_usual_rate = file.getframerate() == SAMPLE_RATE
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    is_usual = is_mono and has_two_bytes and has_usual_rate
    if not is_usual or not len(samples):
        raise UsageError(
            f"{path}: expected a mono recording of 16 bits at {SAMPLE_RATE} Hz that is not empty"
        )
    return samples
